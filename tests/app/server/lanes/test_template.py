"""The template: what it has when it forks, and what lanes do not share."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.app.server.lanes.small import ROOT, small, until


def files_of(pid: int) -> set[str]:
    """What the descriptors of a process refer to, but for standard input and output."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if int(entry.name) > 2:
                found.add(str(entry.readlink()))
    return found


def test_it_has_one_thread_and_one_channel(tmp_path: Path) -> None:
    """Besides that, it has what was open in the process that was started."""
    with small(tmp_path) as service:
        service.wait()
        _, *templates = service.others()
        assert len(templates) == 2
        inherited = files_of(os.getpid())
        # A spare closes that of who forked it a moment later.
        until(lambda: all(len(files_of(pid) - inherited) == 1 for pid in templates))
        for template in templates:
            assert len(list(Path(f"/proc/{template}/task").iterdir())) == 1
            (control,) = files_of(template) - inherited
            assert control.startswith("socket:")


def test_lanes_draw_numbers_of_their_own(tmp_path: Path) -> None:
    with small(tmp_path) as service:
        service.wait()
        drawn = [service.get(path)["random"] for path in ("/front", "/quick", "/long")]
    assert len({number for numbers in drawn for number in numbers}) == 6


def test_the_front_answers_and_is_replaced_while_kernels_are_compiled(tmp_path: Path) -> None:
    compiling = tmp_path / "compiling"
    compiling.touch()
    with small(tmp_path, compiling=str(compiling)) as service:
        service.listen()
        first = service.get("/front")["pid"]
        assert len(service.lanes()) == 1
        os.kill(first, signal.SIGKILL)
        until(lambda: service.get("/front")["pid"] != first)
        assert len(service.lanes()) == 1
        until(lambda: [e for e in service.events() if e["event"] == "compiling"])
        assert service.get("/quick")["code"] == "starting"
        compiling.unlink()
        service.wait()
        assert service.end(signal.SIGTERM) == 0


def test_what_compiles_ends_with_the_service(tmp_path: Path) -> None:
    compiling = tmp_path / "compiling"
    compiling.touch()
    with small(tmp_path, compiling=str(compiling)) as service:
        service.listen()
        until(lambda: [e for e in service.events() if e["event"] == "compiling"])
        (event,) = (e for e in service.events() if e["event"] == "compiling")
        assert service.end(signal.SIGTERM) == 0
        until(lambda: not Path(f"/proc/{event['pid']}").exists())


UNWANTED = """
import os
from app.server.board import Board
from app.server.forking import adopt_orphans, fork
from app.server.lanes.channel import FORK, Message, make_pair, receive, send
from app.server.lanes.template import Loading, run_template

adopt_orphans()
board = Board(lanes=["front"])
ours, theirs = make_pair()
ours.setblocking(True)
loading = Loading(lambda: None, lambda: None, lambda: None, lambda *_: 5)
template = fork(lambda: run_template(loading, board, board.templates[0], theirs), ours.close)
print([receive(ours).text for _ in range(2)])
gone, control = make_pair()
gone.close()
send(ours, Message(FORK, "0", sock=control))
control.close()
lane, status = os.waitpid(-1, 0)
print(lane != template, os.waitstatus_to_exitcode(status))
"""


def test_a_process_that_nobody_waits_for_any_more_ends_quietly() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNWANTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['front', 'all']", "True 0"]
