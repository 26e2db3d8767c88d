"""A place of a process that the supervisor keeps running: its attempts, its memory, its ends.

Requests account for what they hold, and are refused in time. What they forget would take the
memory of the machine, and the kernel might end any process for it. So the supervisor looks at the
workers often, as the kernel counts them: pages that are theirs alone, not those of files or shared
memory. Each may have so many more than it had when it was forked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from .board import WorkerSlot

LOOK_SECONDS = 0.05
"""Time between two looks."""
SLACK_BYTES = 1 << 30
"""Memory of a process that is not accounted: threads, pieces of files, small and free things."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FEW_ENDS, _FEW_SECONDS = 5, 10.0
"""Ends within so many seconds, without a request answered, after which a process that was ready
is replaced after a pause."""
SILENT_TICKS = 10
"""Ticks, of about a second each, without a beat after which a worker is replaced, or without an
answer a template that was ordered to fork. They are the supervisor's own: while a whole machine
stands still, there are none."""
STARTING_TICKS = 60
"""The same for a process of a lane that has not beaten yet: it opens what the service stores."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 30.0
_CGROUP = Path("/sys/fs/cgroup")
_COUNTERS = ("memory.events", "memory/memory.oom_control")
"""Where version 2 and version 1 of control groups count processes killed for memory."""
_MEMORY = (
    "the kernel ended a process for lack of memory: raise the memory limit, or lower"
    " THALWEG_WORKERS, THALWEG_BUFFERS or THALWEG_DECODERS"
)
_HINTS = {
    signal.SIGBUS: "a page of a mapped file was missing, and a plugin handles SIGBUS in our place",
    signal.SIGSEGV: "a fault in native code: please report it with the requests before it",
    signal.SIGABRT: "a fault in native code: please report it with the requests before it",
    signal.SIGKILL: "somebody sent it, or the machine that runs the container did",
}


class Watched:
    """A process whose memory is looked at.

    Args:
        pid: the process, which exists.
        most: bytes that it may take besides those that it has.
    """

    def __init__(self, pid: int, most: int) -> None:
        # A number may be another process's by the next look; what is open stays that of this one.
        self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._most = self._look() + most

    def is_over(self) -> bool:
        """Look; return whether the process has too much."""
        return self._look() > self._most

    def _look(self) -> int:
        try:
            _, resident, shared, _ = os.pread(self._statm, 128, 0).split(b" ", 3)
        except (OSError, ValueError):
            # It has ended.
            return 0
        return (int(resident) - int(shared)) * _PAGE_BYTES

    def close(self) -> None:
        """Look no more."""
        os.close(self._statm)


@dataclass
class Place:
    """A process, and the attempts to keep one there."""

    slot: WorkerSlot
    pid: int = 0
    """Id of the process; 0 while there is none, or it has not told."""
    end: int = -1
    """A descriptor that is readable once the process has ended."""
    ordered: bool = False
    """Whether a process will come that has not told its pid."""
    started: float = 0.0
    answered: int = 0
    """Requests that all workers had answered then."""
    due: float = 0.0
    """When to start the next one."""
    failures: int = 0
    """Ends in a row after which there was a pause."""
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_FEW_ENDS))
    """When the last ones ended that answered no request."""
    beaten: float = 0.0
    silent: int = 0
    """Ticks since the beat changed, or since a process was ordered or has come."""
    fault: str | None = None
    """Why it was killed: ``hung`` or ``memory``; None if it was not."""
    signalled: int = 0
    """How many of the supervisor's signals it was told."""
    watched: Watched | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no process, nor will one come that was ordered."""
        return not (self.pid or self.ordered)

    def begin(self, answered: int) -> None:
        """Note that a process is being started, and what all workers have answered."""
        self.answered = answered
        self.started, self.silent, self.fault, self.signalled = time.monotonic(), 0, None, 0

    def arrive(self, pid: int, memory: int | None) -> None:
        """Note the process.

        Args:
            pid: the process, which has not been reaped.
            memory: bytes that it may take besides those that it has.
        """
        self.pid, self.end, self.ordered = pid, os.pidfd_open(pid), False
        self.silent = 0
        if memory is not None and self.slot.lane:
            self.watched = Watched(pid, memory)

    def leave(self) -> None:
        """Note that there is none any more."""
        self.close()
        self.pid, self.ordered = 0, False

    def close(self) -> None:
        """Close the descriptors of the process."""
        if self.end >= 0:
            os.close(self.end)
        if self.watched is not None:
            self.watched.close()
        self.end, self.watched = -1, None

    def tell(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.end, number)

    def kill(self, fault: str) -> None:
        """End the process for a fault; its end is noted when it comes, which may be late."""
        if self.pid and self.fault is None:
            self.fault = fault
            self.tell(signal.SIGKILL)

    def tick(self) -> bool:
        """Note whether it has been heard of since the last tick; return whether it hangs."""
        beaten = self.slot.beaten
        self.silent = 0 if beaten != self.beaten else self.silent + 1
        self.beaten = beaten
        if self.ordered or beaten:
            return self.silent > SILENT_TICKS
        # A process that rests is not expected to beat, nor one that has to load all by itself.
        starts = bool(self.pid and self.slot.lane) and not self.slot.has_begun
        return starts and self.silent > STARTING_TICKS

    def silence(self) -> str:
        """Say how long a process that hung has not been heard of."""
        if self.slot.has_begun:
            return f"its event loop stood still for {SILENT_TICKS} seconds"
        return f"it did not begin to serve within {STARTING_TICKS} seconds"

    def defer(self) -> float:
        """Put the next start off, for longer after each failure; return the seconds."""
        self.failures += 1
        # An exponent without bound would overflow in a long night.
        pause = min(_FIRST_PAUSE * 2.0 ** min(self.failures - 1, 32), _LONGEST_PAUSE)
        self.due = time.monotonic() + pause
        return pause

    def replace(self, answered: int) -> float:
        """Have the next one started at once if this one was ready, unless too many have ended.

        Args:
            answered: what all workers have answered; those of a process that is no worker.
        """
        now = time.monotonic()
        if self.slot.answered if self.slot.index >= 0 else answered != self.answered:
            self.ends.clear()
        else:
            self.ends.append(now)
        few = len(self.ends) < _FEW_ENDS or now - self.ends[0] >= _FEW_SECONDS
        if not (self.slot.has_begun and few):
            return self.defer()
        self.failures, self.due = 0, now
        return 0.0


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended.

    Attributes:
        reason: name of the signal, or ``exit N``.
        hint: what it may mean; None if nothing is known.
    """

    reason: str
    hint: str | None


def describe_end(exit_code: int, *, out_of_memory: bool) -> End:
    """Describe how a process ended.

    Args:
        exit_code: as ``multiprocessing`` gives it: the negative number of a signal.
        out_of_memory: whether the kernel ended processes for lack of memory meanwhile.
    """
    if exit_code >= 0:
        return End(f"exit {exit_code}", None)
    try:
        received = signal.Signals(-exit_code)
    except ValueError:
        return End(f"signal {-exit_code}", None)
    if received == signal.SIGKILL and out_of_memory:
        return End(received.name, _MEMORY)
    return End(received.name, _HINTS.get(received))


def count_memory_kills(root: Path = _CGROUP, proc: Path = Path("/proc")) -> int:
    """Count the processes that the kernel has ended for lack of memory, as far as we can see.

    Args:
        root: where control groups are mounted.
        proc: the proc file system.
    """
    places = [proc / "vmstat", *(root / name for name in _COUNTERS)]
    with contextlib.suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            path = line.rpartition(":")[2].lstrip("/")
            places.append(root / path / _COUNTERS[0])
    return sum(_counter(path) for path in dict.fromkeys(places))


def _counter(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0
