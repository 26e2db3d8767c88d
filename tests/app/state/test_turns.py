"""One at a time: threads, other openings of the file, and other processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.state.base import StoreBusyError
from app.state.turns import Turns
from tests.descriptors import nothing_left_open

HOLD = """
import sys
from pathlib import Path
from app.state.turns import Turns
with Turns(Path(sys.argv[1]), wait=60).turn():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_nobody_else_has_a_turn_meanwhile(path: Path) -> None:
    one, other = Turns(path, wait=0), Turns(path, wait=0)
    with one.turn():
        with pytest.raises(StoreBusyError, match="others held"), other.turn():
            pytest.fail("two have a turn")
        with pytest.raises(StoreBusyError, match="others held"), one.turn():
            pytest.fail("two have a turn")
    with other.turn(), pytest.raises(StoreBusyError, match="others held"), one.turn():
        pytest.fail("two have a turn")
    one.close()
    other.close()


def test_a_turn_ends_with_the_block_however_it_is_left(path: Path) -> None:
    one, other = Turns(path, wait=0), Turns(path, wait=0)
    with pytest.raises(KeyError), one.turn():
        raise KeyError
    with other.turn():
        pass
    with one.turn():
        pass
    one.close()
    other.close()


def test_whoever_waits_gets_the_next_turn(path: Path) -> None:
    one, other = Turns(path, wait=60), Turns(path, wait=60)
    seen: list[str] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with other.turn():
            seen.append("other")

    thread = threading.Thread(target=wait)
    with one.turn():
        thread.start()
        begun.wait()
        seen.append("one")
    thread.join()
    assert seen == ["one", "other"]
    one.close()
    other.close()


def test_a_process_that_dies_gives_its_turn_back(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        hasty, patient = Turns(path, wait=0), Turns(path, wait=60)
        with pytest.raises(StoreBusyError, match="others held"), hasty.turn():
            pytest.fail("two have a turn")
        process.kill()
        with patient.turn():
            pass
    hasty.close()
    patient.close()


def test_the_file_is_its_owners_and_is_let_go_of(path: Path) -> None:
    with nothing_left_open():
        turns = Turns(path, wait=0)
        assert path.stat().st_mode & 0o777 == 0o600
        turns.close()
        turns.close()
    with pytest.raises(OSError, match="closed"), turns.turn():
        pytest.fail("it is closed")
