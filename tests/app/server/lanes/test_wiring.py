"""Processes of lanes: each is replaced when it ends, and the others go on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.server.lanes.small import LANES, Small, ending, small, until
from tests.server_process import children_of

MIB = 1 << 20
_TICK = 0.2
"""Seconds after ten of which a process hangs: one that waits for a core is silent for fewer."""
_SOON = 5.0
"""Seconds within which a process comes on the busiest machine: less than a limit of time."""


@pytest.mark.parametrize("lane", ["front", "quick", "long"])
def test_a_lane_is_replaced(tmp_path: Path, lane: str) -> None:
    with small(tmp_path) as service:
        service.wait()
        before, victims = set(service.children()), set()
        for number in (signal.SIGKILL, signal.SIGSEGV):
            told = service.get(f"/{lane}")
            victims.add(told["pid"])
            os.kill(told["pid"], number)
            until(lambda: not victims.intersection(service.children()))
            assert service.get(f"/{lane}")["lane"] == lane
        until(lambda: len(service.lanes()) == 4)
        assert before - set(service.children()) <= victims
        deaths = [(death["reason"], death["pause"]) for death in service.deaths()]
        assert deaths == [("SIGKILL", 0), ("SIGSEGV", 0)]
        assert service.end(signal.SIGTERM) == 0


def test_the_acceptor_is_replaced_and_no_lane_ends(tmp_path: Path) -> None:
    with small(tmp_path) as service:
        service.wait()
        lanes = service.lanes()
        acceptor, _, _ = service.others()
        os.kill(acceptor, signal.SIGKILL)
        until(lambda: acceptor not in service.children())
        assert service.get("/quick")["lane"] == "quick"
        assert service.lanes() == lanes
        assert service.end(signal.SIGTERM) == 0


def test_either_template_is_replaced_from_the_other_and_no_lane_ends(tmp_path: Path) -> None:
    with small(tmp_path, importing=str(tmp_path / "import")) as service:
        service.wait()
        lanes = service.lanes()
        _, *templates = service.others()
        # Whoever had to import would not come.
        (tmp_path / "import").touch()
        count, killed = len(service.children()), set()
        for template in templates:
            os.kill(template, signal.SIGKILL)
            killed.add(template)
            until(lambda: not killed.intersection(service.children()))
            until(lambda: len(service.children()) == count)
        assert service.lanes() == lanes
        quick = service.get("/quick")["pid"]
        os.kill(quick, signal.SIGKILL)
        until(lambda: quick not in service.children())
        assert service.get("/quick")["lane"] == "quick"
        assert service.end(signal.SIGTERM) == 0


def test_without_templates_lanes_go_on_and_come_once_there_is_one(tmp_path: Path) -> None:
    with small(tmp_path, importing=str(tmp_path / "import")) as service:
        service.wait()
        lanes = service.lanes()
        _, *templates = service.others()
        (tmp_path / "import").touch()
        for template in templates:
            os.kill(template, signal.SIGSTOP)
        for template in templates:
            os.kill(template, signal.SIGKILL)
        until(lambda: not set(templates).intersection(service.children()))
        quick = service.get("/quick")["pid"]
        os.kill(quick, signal.SIGKILL)
        until(lambda: quick not in service.children())
        assert service.get("/front")["pid"] in lanes
        (tmp_path / "import").unlink()
        assert service.get("/quick")["lane"] == "quick"
        assert set(lanes) - set(service.lanes()) == {quick}
        assert service.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("point", ["ordered", "forked", "hello"])
def test_a_lane_comes_though_whoever_makes_it_is_killed(tmp_path: Path, point: str) -> None:
    """The template before and after it forks, and the process before it tells its pid."""
    with small(tmp_path, fault=str(tmp_path / "fault-")) as service:
        service.wait()
        # Those of four lanes and the spare.
        until(lambda: sum(event["event"] == "hello" for event in service.events()) == 5)
        others = service.others()
        (tmp_path / f"fault-{point}").touch()
        begin = time.monotonic()
        quick = service.get("/quick")["pid"]
        os.kill(quick, signal.SIGKILL)
        until(lambda: quick not in service.children())
        assert service.get("/quick")["pid"] != quick
        assert time.monotonic() - begin < _SOON
        assert not (tmp_path / f"fault-{point}").exists()
        until(lambda: len(service.children()) == len(LANES) + 3)
        assert (service.others() == others) == (point == "hello")
        assert all(death["pause"] == 0 for death in service.deaths())
        assert service.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("also", ["acceptor", "template", "spare", "front"])
def test_a_lane_comes_though_another_process_is_killed_with_it(tmp_path: Path, also: str) -> None:
    with small(tmp_path) as service:
        service.wait()
        others = dict(zip(("acceptor", "template", "spare"), service.others(), strict=True))
        pids = {lane: service.get(f"/{lane}")["pid"] for lane in ("front", "quick")}
        begin = time.monotonic()
        victims = {pids["quick"], (others | pids)[also]}
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not victims.intersection(service.children()))
        for lane in pids:
            assert service.get(f"/{lane}")["lane"] == lane
        assert time.monotonic() - begin < _SOON
        # The spare may not have told its pid yet: nobody has died then. Nor need it be ready.
        until(lambda: len(service.deaths()) >= (1 if also == "spare" else 2))
        assert all(death["pause"] <= 0.05 for death in service.deaths())


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_lane_comes_though_its_template_never_forks_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It has got the order: it stands still, or is killed before it can read it."""
    with small(tmp_path, tick=_TICK if number == signal.SIGSTOP else 1) as service:
        service.wait()
        _, template, _ = service.others()
        quick = service.get("/quick")["pid"]
        os.kill(template, signal.SIGSTOP)
        os.kill(quick, signal.SIGKILL)
        until(lambda: quick not in service.children())
        begin = time.monotonic()
        os.kill(template, number)
        assert service.get("/quick")["pid"] != quick
        assert time.monotonic() - begin < _SOON
        until(lambda: len(service.children()) == len(LANES) + 3)
        assert template not in service.others()
        reasons = [death["reason"] for death in service.deaths()]
        assert reasons == ["SIGKILL", "hung" if number == signal.SIGSTOP else "SIGKILL"]


def test_a_lane_that_hangs_is_replaced(tmp_path: Path) -> None:
    with small(tmp_path, tick=_TICK) as service:
        service.wait()
        hanging = service.get("/quick")["pid"]
        with pytest.raises(OSError, match=r"reset|closed|refused"):
            service.get("/quick/hang")
        assert service.get("/quick")["pid"] != hanging
        assert [death["reason"] for death in service.deaths()] == ["hung"]


@pytest.mark.parametrize(("how", "reason"), [("killed", "SIGKILL"), ("hangs", "hung")])
def test_a_lane_comes_though_its_first_process_does_not_start(
    tmp_path: Path, how: str, reason: str
) -> None:
    creating = tmp_path / "creating"
    creating.write_text(how)
    with small(tmp_path, creating=str(creating), tick=_TICK / 2) as service:
        service.wait()
        assert not creating.exists()
        # Another one may be ready before the end of the first is told.
        until(lambda: bool(service.deaths()))
        deaths = [(death["reason"], death["pause"]) for death in service.deaths()]
        assert deaths == [(reason, 0.05)]
        assert service.end(signal.SIGTERM) == 0


def test_a_lane_that_takes_too_much_memory_is_replaced(tmp_path: Path) -> None:
    """Idle size, what requests may hold and what is not accounted together are not too much."""
    allowed = 64 * MIB
    with small(tmp_path, memory=allowed, slack=64 * MIB) as service:
        service.wait()
        pids = {lane: service.get(f"/{lane}")["pid"] for lane in ("front", "quick")}
        assert service.get(f"/quick/take?{allowed}")["pid"] == pids["quick"]
        time.sleep(0.2)
        assert service.get("/quick")["pid"] == pids["quick"]
        with contextlib.suppress(OSError):
            service.get(f"/quick/take?{2 * allowed}")
        until(service.deaths)
        assert [death["reason"] for death in service.deaths()] == ["memory"]
        assert service.get("/quick")["pid"] != pids["quick"]
        assert service.get("/front")["pid"] == pids["front"]


def test_the_kernel_is_to_end_a_lane_first(tmp_path: Path) -> None:
    with small(tmp_path) as service:
        service.wait()
        scores = {pid: _score(pid) for pid in (service.supervisor, *service.others())}
        assert {_score(pid) for pid in service.lanes()} == {200 + max(scores.values())}


def _score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.mark.parametrize("after", ["import", "front", "all"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left(tmp_path: Path, after: str, number: signal.Signals) -> None:
    """Also where the service is ended while it starts."""
    if after == "import":
        (tmp_path / "import").touch()
    with small(tmp_path, importing=str(tmp_path / "import")) as service:
        if after == "import":
            until(lambda: len(service.children()) == 2)
            time.sleep(0.1)
        elif after == "front":
            service.listen()
        else:
            service.wait()
            started = service.get("/long/start")["started"]
        pids = service.children() + (started if after == "all" else [])
        with ending(pids):
            code = service.end(number)
        assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        if number == signal.SIGTERM:
            assert service.deaths() == []


def test_requests_are_finished_after_the_first_signal_and_cut_after_the_second(
    tmp_path: Path,
) -> None:
    with small(tmp_path, delay=0.3) as service:
        service.wait()
        with _asking(service, "/long/sleep?1") as answers:
            os.kill(service.supervisor, signal.SIGTERM)
            # For a moment, connections are accepted still.
            assert service.get("/front")["lane"] == "front"
            assert service.process.wait(20) == 0
        assert answers[0]["lane"] == "long"
    with small(tmp_path, drain=60.0, delay=60.0) as service:
        service.wait()
        with _asking(service, "/long/sleep?60") as answers:
            begin = time.monotonic()
            # Also where both come before anybody was told of the first.
            assert service.end(signal.SIGTERM, signal.SIGINT) == 0
            assert time.monotonic() - begin < 30
        assert answers[0]["code"] == "cut-off"
        closed = [event for event in service.events() if event["event"] == "closed"]
        assert len(closed) == len(LANES)


def test_a_terminal_ends_all_by_one_signal(tmp_path: Path) -> None:
    with small(tmp_path) as service:
        service.wait()
        with _asking(service, "/long/sleep?1") as answers:
            os.killpg(service.supervisor, signal.SIGHUP)
            os.killpg(service.supervisor, signal.SIGINT)
            assert service.process.wait(20) == 0
        assert answers[0]["lane"] == "long"
        assert service.deaths() == []


def test_it_may_be_the_first_process_of_a_container(tmp_path: Path) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("this machine makes no namespaces")
    with small(tmp_path, *command) as service:
        until(lambda: children_of(service.process.pid))
        (service.supervisor,) = children_of(service.process.pid)
        service.wait()
        with _asking(service, "/long/sleep?1") as answers:
            assert service.end(signal.SIGTERM) == 0
        assert answers[0]["lane"] == "long"
        assert service.deaths() == []


@contextlib.contextmanager
def _asking(service: Small, path: str) -> Iterator[list[dict[str, Any]]]:
    """Have a request answered during the block; the list has its answer after it, if it got one."""
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        with contextlib.suppress(OSError):
            answers.append(service.get(path))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    yield answers
    thread.join()
