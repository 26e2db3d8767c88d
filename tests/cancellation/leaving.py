"""A client that leaves in the middle of its request, and what the server computes afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.e2e.service import Service
from tests.server_process import children_of

_PAUSE = 0.02
_QUIET_SECONDS = 0.2
"""Time without work after which a server does nothing for whoever left."""
_NOTHING_SECONDS = 0.002
"""CPU time that a thread takes to look whether there is something to do."""
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Work:
    """A request that takes long.

    Attributes:
        method: of the request.
        target: path and query.
        body: of the request.
        headers: further lines of its head.
        end: what ends it, where it goes on without its client: called before this one leaves.
        clear: called once it has ended, to make the server as it was.
        goes_on: whether it does, where its answer comes at once.
    """

    method: str
    target: str
    body: bytes = b""
    headers: Sequence[str] = ()
    end: Callable[[], object] | None = None
    clear: Callable[[], object] | None = None
    goes_on: Callable[[], bool] | None = None


@dataclass(slots=True)
class _Asking:
    """What is known of an answer."""

    work: Work
    status: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> bool:
        """Wait until the work has ended, or for so long; whether it has ended."""
        until = time.monotonic() + seconds
        while (goes_on := self.work.goes_on) is not None and time.monotonic() < until:
            if not goes_on():
                return True
            time.sleep(_PAUSE)
        return goes_on is None and self.ended.wait(seconds)


class Rest(NamedTuple):
    """What was computed after a client had left."""

    seconds: float
    """CPU time of the thread that took most."""
    thread: str
    """Its name."""


def run(server: Service, work: Work, longest: float) -> tuple[float, bool]:
    """Have work done, or leave after ``longest`` seconds; how long it took, and if it ended."""
    begun = time.monotonic()
    with _asking(server, work) as asking:
        ended = asking.wait(longest)
        seconds = time.monotonic() - begun
    assert asking.status is None or asking.status < 300, (work.target, asking.status)
    _end(server, work)
    return seconds, ended


def leave(server: Service, work: Work, after: float, *, reset: bool) -> Rest:
    """Have work begun, and leave after so many seconds; what is computed then.

    Args:
        server: the server, which does nothing else.
        work: the request.
        after: seconds from the first byte of the request on.
        reset: whether the connection is reset instead of being closed.
    """
    with _asking(server, work, reset=reset) as asking:
        asking.wait(after)
        before = _usage(server)
        if work.end is not None:
            work.end()
    rest = _rest_of(server, before)
    if work.clear is not None:
        work.clear()
    return rest


def _end(server: Service, work: Work) -> None:
    """End work that may go on, and wait until nothing does."""
    if work.end is not None:
        work.end()
    _rest_of(server, _usage(server))
    if work.clear is not None:
        work.clear()


@contextlib.contextmanager
def _asking(server: Service, work: Work, *, reset: bool = True) -> Iterator[_Asking]:
    """Send a request and read its answer, until the block ends."""
    connection = server.connect(timeout=600)
    asking = _Asking(work)

    def send() -> None:
        with contextlib.suppress(OSError):
            connection.begin(work.method, work.target, *work.headers, size=len(work.body))
            connection.send(work.body)

    def read() -> None:
        # The connection is cut below, even in the middle of a head.
        with contextlib.suppress(OSError, ValueError, IndexError):
            asking.status = connection.read_head().status
            for _ in connection.pieces():
                pass
            asking.ended.set()

    threads = [threading.Thread(target=send), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    try:
        yield asking
    finally:
        # A system that has bytes to send goes on sending them after the end of its process, so
        # that nobody sees from the other end that it has left.
        unsent = connection.unacknowledged() > 0
        connection.break_off()
        for thread in threads:
            thread.join()
        if reset or unsent:
            connection.reset()
        else:
            connection.close()


def _rest_of(server: Service, before: dict[tuple[int, int], int]) -> Rest:
    """Wait until a server is idle; the most that a thread of it has used since ``before``."""
    most: dict[tuple[int, int], int] = {}
    names: dict[tuple[int, int], str] = {}
    active = time.monotonic()
    deadline = active + _PATIENCE
    while (now := time.monotonic()) < min(active + _QUIET_SECONDS, deadline):
        for thread, total in _usage(server).items():
            used = total - before.get(thread, 0)
            if used > most.get(thread, 0) + 1e9 * _NOTHING_SECONDS:
                active = now
                names.setdefault(thread, _name(*thread))
            most[thread] = max(used, most.get(thread, 0))
        time.sleep(_PAUSE)
    worst = max(most, key=lambda thread: most[thread], default=(0, 0))
    return Rest(most.get(worst, 0) / 1e9, names.get(worst, ""))


def _usage(server: Service) -> dict[tuple[int, int], int]:
    """CPU time in nanoseconds of each thread of a server, of its workers, and their children."""
    found: dict[tuple[int, int], int] = {}
    # A directory that is read while threads end may leave others out: it is read again.
    own = [server.pid, *children_of(server.pid)]
    for process in 3 * [*own, *(child for pid in server.beside for child in _started_by(pid))]:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(OSError):
                    used = int((task / "schedstat").read_text().split()[0])
                    found[process, int(task.name)] = used
    return found


def _started_by(nanny: int) -> list[int]:
    """The processes that threads of a process have started."""
    children = [path.read_text() for path in Path(f"/proc/{nanny}/task").glob("*/children")]
    return [int(pid) for pid in " ".join(children).split()]


def _name(process: int, thread: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/task/{thread}/comm").read_text().strip()
    return "ended"
