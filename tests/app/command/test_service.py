"""``serve``: which settings it starts with."""

from collections.abc import Iterator

import pytest
import structlog

from app.command import serving
from app.command.main import main
from app.settings import Settings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Settings]]:
    settings: list[Settings] = []

    def run(given: Settings) -> int:
        settings.append(given)
        return 0

    monkeypatch.setattr(serving, "run_server", run)
    yield settings
    structlog.reset_defaults()


def test_the_log_level_is_that_of_the_environment_unless_given(
    started: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THALWEG_LOG_LEVEL", "error")
    assert main(["serve"]) == 0
    assert main(["--log-level", "debug", "serve"]) == 0
    monkeypatch.delenv("THALWEG_LOG_LEVEL")
    assert main(["serve"]) == 0
    assert [settings.log_level for settings in started] == ["error", "debug", "info"]


def test_variables_that_are_no_settings_are_told(
    started: list[Settings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THALWEG_QUOTA_RUN", "1")
    assert main(["serve"]) == 0
    assert len(started) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "not a setting" in line]
    assert '"THALWEG_QUOTA_RUN"' in line
    assert '"nearest": "THALWEG_QUOTA_RUNS"' in line
