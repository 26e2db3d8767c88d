"""The board: memory in which the processes of one service see how the others are.

Any worker may be asked whether the whole service is ready, and the supervisor must notice a
worker that hangs. Neither may wait for a process that does not answer. So every process
writes what it knows of itself into memory that all share, and the others read it:

    page 0   supervisor   starts of workers, by reason
    page 1   acceptor
    page 2   template
    page 3   its spare
    page 4   worker 0     ┌──────┬───────┬─────────┬──────────┬────────┬──────────┬────────┐
    page 5   worker 1     │ beat │ asked │ running │ answered │ length │ checksum │ report │
    …                     └──────┴───────┴─────────┴──────────┴────────┴──────────┴────────┘

The memory is an anonymous mapping made before the workers are forked: it has no name, needs
no cleaning up, and is gone with the last process. A reader takes no lock. A report that it
reads while another process replaces it has the wrong checksum, and is read again.
"""

from __future__ import annotations

import mmap
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from app.tally import Column, Table

_PAGE = 16384
_OTHERS = 4
"""Processes that are not workers."""
_STAMP = struct.Struct("=d")
_HEAD = struct.Struct("=II")
_COUNT = struct.Struct("=q")
_BEAT, _ASKED, _RUNNING, _ANSWERED, _REPORT = 0, 8, 16, 24, 32
_BODY = _REPORT + _HEAD.size
_ATTEMPTS = 5
MAX_REPORT = _PAGE - _BODY
"""Largest report in bytes."""


class WorkerSlot:
    """One process's page of the board.

    Args:
        memory: the page.
        index: number of the worker; negative for a process that is none.
        lane: lane of the worker; empty if it serves all requests.
        table: what the workers of the service hold together; None if this is none.

    Attributes:
        index: as above.
        lane: as above.
        column: where the service counts what this process holds; None if it is no worker.
        refusals: requests that this process's connections refused before its application
            saw them, by code. Of this process alone, not on the board.
        expected: connections that the acceptor gave it and whose request has not begun. Of this
            process alone, but part of ``running``.
        on_drain: called in the thread of the event loop when the process begins to drain, if its
            application has set it.
    """

    on_drain: Callable[[], None] | None = None

    def __init__(
        self, memory: memoryview, index: int, lane: str = "", table: Table | None = None
    ) -> None:
        self.index = index
        self.lane = lane
        self.column = None if table is None else Column(table, index)
        self.refusals: Counter[str] = Counter()
        self.expected = 0
        self._memory = memory

    def beat(self) -> None:
        """Note that the event loop of the process runs."""
        _STAMP.pack_into(self._memory, _BEAT, time.monotonic())

    @property
    def beaten(self) -> float:
        """``time.monotonic()`` of the last beat; 0 before the first and after the last."""
        return max(float(_STAMP.unpack_from(self._memory, _BEAT)[0]), 0.0)

    @property
    def has_begun(self) -> bool:
        """Whether the process has beaten, or rested."""
        return bool(_STAMP.unpack_from(self._memory, _BEAT)[0])

    @property
    def running(self) -> int:
        """Requests in progress, and those that are expected."""
        return int(_COUNT.unpack_from(self._memory, _RUNNING)[0])

    def note_running(self, count: int) -> None:
        """Note how many requests are in progress; one less means that one was answered."""
        if count < self.running - self.expected:
            _COUNT.pack_into(self._memory, _ANSWERED, self.answered + 1)
        _COUNT.pack_into(self._memory, _RUNNING, count + self.expected)

    def expect(self, change: int) -> None:
        """Note that so many more requests are expected."""
        running = self.running
        self.expected += change
        _COUNT.pack_into(self._memory, _RUNNING, running + change)

    @property
    def answered(self) -> int:
        """Requests that this process has answered."""
        return int(_COUNT.unpack_from(self._memory, _ANSWERED)[0])

    def publish(self, report: Any) -> None:  # noqa: ANN401 - JSON
        """Replace the report.

        Raises:
            ValueError: it is larger than ``MAX_REPORT`` bytes.
        """
        body = orjson.dumps(report)
        if len(body) > MAX_REPORT:
            raise ValueError(f"a report of {len(body)} bytes does not fit")
        self._memory[_BODY : _BODY + len(body)] = body
        _HEAD.pack_into(self._memory, _REPORT, len(body), zlib.crc32(body))

    def report(self) -> Any:  # noqa: ANN401 - JSON
        """Return the report; None if there is none, or it changes faster than it can be read."""
        for _ in range(_ATTEMPTS):
            length, checksum = _HEAD.unpack_from(self._memory, _REPORT)
            if not length:
                return None
            body = bytes(self._memory[_BODY : _BODY + min(length, MAX_REPORT)])
            if zlib.crc32(body) == checksum:
                return orjson.loads(body)
        return None

    def rest(self) -> None:
        """Note that no more beats are to be expected, though the process goes on."""
        _STAMP.pack_into(self._memory, _BEAT, -1.0)

    def clear(self) -> None:
        """Forget all but when it was asked of a process that has ended, and what it held."""
        _STAMP.pack_into(self._memory, _BEAT, 0.0)
        _COUNT.pack_into(self._memory, _RUNNING, 0)
        _COUNT.pack_into(self._memory, _ANSWERED, 0)
        _HEAD.pack_into(self._memory, _REPORT, 0, 0)
        if self.column is not None:
            self.column.clear()

    @property
    def asked(self) -> float:
        """``time.monotonic()`` at which this process was last asked for the readiness."""
        return float(_STAMP.unpack_from(self._memory, _ASKED)[0])

    def note_asked(self) -> None:
        """Note that this process is being asked for the readiness of the service."""
        _STAMP.pack_into(self._memory, _ASKED, time.monotonic())


class Board:
    """The slots of a supervisor and its workers.

    Args:
        lanes: lane of each worker; empty for one that serves all requests.
    """

    def __init__(self, lanes: Sequence[str] = ("",)) -> None:
        self.has_lanes = any(lanes)
        memory = memoryview(mmap.mmap(-1, (len(lanes) + _OTHERS) * _PAGE))
        table = Table(len(lanes))
        pages = [memory[at : at + _PAGE] for at in range(0, len(memory), _PAGE)]
        self.supervisor = WorkerSlot(pages[0], -1)
        self.acceptor = WorkerSlot(pages[1], -2)
        self.templates = WorkerSlot(pages[2], -3), WorkerSlot(pages[3], -4)
        self.workers = tuple(
            WorkerSlot(page, index, lane, table)
            for index, (page, lane) in enumerate(zip(pages[_OTHERS:], lanes, strict=True))
        )

    @property
    def compiling(self) -> str | None:
        """What the template does before it can fork all lanes, if that takes long."""
        return next((text for slot in self.templates if (text := slot.report())), None)

    def count_like(self, slot: WorkerSlot) -> int:
        """Return how many workers do the work of one."""
        return sum(other.lane == slot.lane for other in self.workers)

    @property
    def asked(self) -> float:
        """``time.monotonic()`` at which any worker was last asked for the readiness."""
        return max(slot.asked for slot in self.workers)
