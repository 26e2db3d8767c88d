"""Processes that are present, and those that have ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.state import presence as module
from app.state.presence import Presence
from tests.descriptors import nothing_left_open
from tests.server_process import ROOT

OTHER = """
import sys
from pathlib import Path
from app.state.presence import Presence
here = Presence(Path(sys.argv[1]))
print(here.name, flush=True)
sys.stdin.read()
"""


def test_a_death_is_seen_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    here = Presence(tmp_path / "here")
    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o700
    with nothing_left_open():
        command = [sys.executable, "-c", OTHER, str(tmp_path / "here")]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            name = other.stdout.readline().strip()
            assert here.pids() == [other.pid]
            for _ in range(2):
                assert not here.has_ended(name)
            other.kill()
            other.wait()
            assert here.has_ended(name)
            assert here.pids() == []
        # Whoever comes next removes its file, which tells the same.
    next_one = Presence(tmp_path / "here")
    assert len(list(tmp_path.glob("here/*.json"))) == 2
    assert here.has_ended(name)
    assert not here.has_ended(next_one.name)
    next_one.close()
    next_one.close()
    assert here.has_ended(next_one.name)
    assert not here.has_ended(here.name)
    here.close()


def test_the_end_of_a_process_elsewhere_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Presence(tmp_path)
    machine, _, ident = here.name.partition(" ")
    for name in ("another", f"another {ident}", ""):
        assert not here.is_near(name)
        assert not here.has_ended(name)
    # Earlier versions had other names, and processes of theirs have ended by now.
    assert here.has_ended(f"{machine} pid:[4026531836] 17 4711 0123abcd")
    here.close()
    monkeypatch.setattr(module, "_BOOT", tmp_path / "missing")
    nameless = Presence(tmp_path)
    assert not nameless.has_ended(" 1-gone")
    nameless.close()


def test_a_process_without_a_directory_is_alone() -> None:
    here = Presence()
    assert here.pids() == []
    assert not here.has_ended(here.name)
    assert here.has_ended(Presence().name)
    with here.turn():
        assert list(here.others()) == []
