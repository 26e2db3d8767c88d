"""Where audit lines go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from app.audit import AuditLog


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_is_appended_to_and_may_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit = AuditLog(str(path))
    other = AuditLog(str(path))
    audit.write(action="create", id="a", key_id=None)
    other.write(action="create", id="b\n\udcff")
    path.rename(tmp_path / "audit.1")
    audit.write(action="delete", id="a")
    audit.close()
    other.close()
    assert [line["id"] for line in lines(tmp_path / "audit.1")] == ["a", "b\n\udcff"]
    (line,) = lines(path)
    assert {**line, "timestamp": ""} == {
        "timestamp": "",
        "event": "audit",
        "action": "delete",
        "id": "a",
    }
    assert (tmp_path / "audit.1").stat().st_mode & 0o777 == 0o600


def test_the_log_of_the_service_gets_lines_whatever_its_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    audit = AuditLog("log")
    audit.write(action="create")
    AuditLog("none").write(action="delete")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["action"] == "create"


def test_refusals_are_limited_in_number_and_those_left_out_are_counted(tmp_path: Path) -> None:
    now = [0.0]
    audit = AuditLog(str(tmp_path / "audit"), clock=lambda: now[0])
    for _ in range(50):
        audit.write_refusal(status=401)
    now[0] = 10.0
    for _ in range(2):
        audit.write_refusal(status=403)
    audit.close()
    written = lines(tmp_path / "audit")
    assert [line["status"] for line in written] == [401] * 20 + [403] * 2
    assert [line.get("suppressed") for line in written[-3:]] == [None, 30, None]


def test_a_full_disk_is_told_to_the_log() -> None:
    audit = AuditLog("/dev/full")
    with structlog.testing.capture_logs() as logs:
        audit.write(action="create", id="a")
        audit.close()
    line = logs[0]
    assert "No space left" in line["reason"]
    assert '"id": "a"' in line["line"]
