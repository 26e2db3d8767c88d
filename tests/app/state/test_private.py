"""Directories of services that keep nothing."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from app.state.base import StorageError
from app.state.private import private_directory
from tests.descriptors import nothing_left_open


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_for_its_user_alone_and_gone_at_the_end(temporary: Path) -> None:
    with private_directory("test") as first, private_directory("test") as second:
        assert {first.parent, second.parent} == {temporary}
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "state").write_bytes(b"x")
    assert list(temporary.iterdir()) == []


def test_a_place_that_cannot_have_it_is_named(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with (
        pytest.raises(StorageError, match=r"TMPDIR has no room .*missing"),
        private_directory("test"),
    ):
        pass


def test_that_of_a_process_that_was_killed_is_removed_by_the_next_and_no_other(
    temporary: Path,
) -> None:
    pid = os.fork()
    if not pid:
        with private_directory("test") as mine:
            (mine / "state").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (abandoned,) = temporary.iterdir()
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / "thalweg-test-link").symlink_to(elsewhere)
    with nothing_left_open(), private_directory("test") as mine:
        assert not abandoned.exists()
        with private_directory("test"):
            assert mine.exists()
    assert elsewhere.exists()


def test_it_stays_as_long_as_a_forked_process_uses_it(temporary: Path) -> None:
    told, hold = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        with private_directory("test"):
            worker = os.fork()
            if worker:
                os.write(told[1], b"x")
                os.kill(os.getpid(), signal.SIGKILL)
            os.close(hold[1])
            os.read(hold[0], 1)
            os._exit(0)
    os.close(hold[0])
    os.read(told[0], 1)
    os.waitpid(pid, 0)
    (used,) = temporary.iterdir()
    with private_directory("test"):
        assert used.exists()
    os.close(hold[1])
