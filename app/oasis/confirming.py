"""The end of a run: did all processes end well, and do all perspectives have as many events?

A stream of losses has no end marker. When a process of a pipeline ends early between two blocks,
what it feeds looks complete::

    gulmc --> tee --> fmpy -a2 --x--> fmpy -a3 -p RI_1 --> ...
               |                                            |
              gul: 120 events                              ri: 71 events

The script of the run knows the exit status of every process, and writes ``complete`` into a fifo
for each reader when all are 0. That leaves a process that loses its input or output and does not
say so, and no reader of one stream can see it. But every tool passes every event on, with losses of
0 if need be, so that all perspectives of a run have the same events. So each reader leaves its
number of events beside its fifo, and compares it with those of the others. It is that of all
partitions: where load is balanced, those of one perspective are not those of the next.
"""

from __future__ import annotations

import json
import os
import select
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.errors import TruncatedError

from .files import failing_as, write_whole

COMPLETE = b"complete\n"
_SECONDS = 1.0
_SUFFIX = ".events"


def check_events(found: Mapping[str, int], source: str) -> None:
    """Check that all kinds of losses have as many events.

    Raises:
        TruncatedError: they have not.
    """
    if len({*found.values()}) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in found.items())
        raise TruncatedError(
            f"the perspectives have different numbers of events: {counts}",
            hint="A process between them has ended early, so no output is written. "
            "--differing-events accepts it",
            source=source,
        )


class Confirmation:
    """Waits for ``complete`` in a fifo, and for the readers of other perspectives.

    The end of the fifo without it means that the run has failed, or its script has been killed.

    Args:
        path: of the fifo; it is opened at once, so that its writer does not wait. Fifos in the same
            folder whose names differ in the part between the first and the last ``_`` alone
            (``thalweg_gul_P0``, ``thalweg_il_P0``) are those of the other perspectives.
        same_events: whether all perspectives must have as many events.

    Raises:
        InputError: it cannot be opened.
    """

    def __init__(self, path: Path, *, same_events: bool = True) -> None:
        self._path = path
        self._same_events = same_events
        self._parent = os.getppid()
        self._left = path.with_name(path.name + _SUFFIX)
        with failing_as("cannot be opened", path):
            self._left.unlink(missing_ok=True)  # of an earlier run
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, events: Mapping[str, int]) -> None:
        """Wait for the word, and compare the perspectives' events.

        Args:
            events: number of each kind of losses that was read.

        Raises:
            TruncatedError: a process of the run has failed, the run itself has gone, or
                perspectives have different numbers of events.
            InputError: the folder of the fifo cannot be written.
        """
        try:
            # Where the other readers look for them.
            write_whole(self._left, json.dumps(events))
            received = b""
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            while COMPLETE not in received:
                ready = poll.poll(1000 * _SECONDS)
                piece = os.read(self._fd, 64) if ready else b""
                received += piece
                if (ready and not piece) or os.getppid() != self._parent:
                    raise self._failed()
        finally:
            os.close(self._fd)
        found = dict(events)
        for fifo in self._others():
            found |= self._take(fifo)
        if self._same_events:
            check_events(found, str(self._path))

    def _failed(self) -> TruncatedError:
        return TruncatedError(
            "the run ended before all of its processes had ended well",
            hint="The losses may be incomplete, so no output is written",
            source=str(self._path),
        )

    def _others(self) -> Iterator[Path]:
        first, _, rest = self._path.name.partition("_")
        _, separator, last = rest.rpartition("_")
        if separator:
            for path in sorted(self._path.parent.glob(f"{first}_*_{last}")):
                if path != self._path and stat.S_ISFIFO(path.stat().st_mode):
                    yield path

    def _take(self, fifo: Path) -> dict[str, int]:
        """What another reader has left; its streams have ended, but it may not be done yet."""
        path = fifo.with_name(fifo.name + _SUFFIX)
        while not path.exists():
            if os.getppid() != self._parent:
                raise self._failed()
            time.sleep(0.05)
        counts: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
        return counts
