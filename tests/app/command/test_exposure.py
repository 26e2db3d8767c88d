"""Where a service without API keys may listen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.command.exposure import check_exposure, is_loopback
from app.command.main import main
from app.settings import Settings
from tests.server_process import ROOT

EVERYWHERE = "0.0.0.0"  # noqa: S104 - refused or not


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback(host: str, tmp_path: Path) -> None:
    assert is_loopback(host)
    check_exposure(Settings(host=host, data_dir=tmp_path))


@pytest.mark.parametrize(
    "host", [EVERYWHERE, "::", "10.1.2.3", "", "no such host", "255.255.255.255"]
)
def test_elsewhere_strangers_could_come(host: str, tmp_path: Path) -> None:
    settings = Settings(host=host, data_dir=tmp_path)
    with pytest.raises(ValueError, match="THALWEG_ALLOW_ANONYMOUS=true"):
        check_exposure(settings)
    check_exposure(settings.model_copy(update={"allow_anonymous": True}))
    check_exposure(settings.model_copy(update={"api_keys": ("alice:" + "0" * 64,)}))


def test_a_stored_key_is_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_DATA_DIR", str(tmp_path))
    assert main(["keys", "add", "alice", "--scope", "losses"]) == 0
    check_exposure(Settings(host=EVERYWHERE, data_dir=tmp_path))


def test_the_command_says_so_and_ends(tmp_path: Path) -> None:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("THALWEG_")}
    done = subprocess.run(
        [sys.executable, "-m", "app.command", "serve", "--host", EVERYWHERE, "--port", "0"],
        env={**environment, "PYTHONPATH": str(ROOT), "THALWEG_DATA_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert f"without API keys everybody who reaches {EVERYWHERE}" in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_that_cannot_be_read_may_exist(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match="cannot be read"):
        check_exposure(Settings(data_dir=tmp_path))
