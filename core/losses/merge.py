"""Several partitions of one analysis, as one: rows as ready, or by event id.

Every partition is parsed by its own :class:`Analysis`; what they share is the check
that no event comes in two of them. In event order rows wait until no partition can
still bring a lower event; how much may wait is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from .. import errors
from ..arrays import Rows
from .analysis import Analysis
from .events import StreamEnd
from .header import CommonHeader
from .outputs import Sink
from .seen import SeenEvents

Order = Literal["received", "event"]

READ_AHEAD = 256 << 20
"""Default bound on the bytes of rows that may wait for the slowest partition."""

_NO_EVENT = 2**31
"""Above every event id: where a closed partition stands."""


def _take_upto(event: int, parts: list[Rows]) -> list[Rows]:
    """Remove and return the rows of this and lower events from parts, which ascend by event."""
    result: list[Rows] = []
    while parts:
        rows = parts[0]
        if rows["EventId"][-1] <= event:
            result.append(parts.pop(0))
            continue
        cut = int(np.searchsorted(rows["EventId"], event, side="right"))
        if cut:
            result.append(rows[:cut])
            parts[0] = rows[cut:]
        break
    return result


class Partitions:
    """Partitions of one analysis, fed in any interleaving.

    Args:
        names: what errors call each partition.
        make: builds the analysis of one partition from its name, a sink for its rows
            and the shared check; for ``order="event"`` its policy must ask for
            ascending events.
        sink: receives the rows of all of them.
        order: ``received`` hands rows on as they arise, ``event`` by event id.
        read_ahead: bytes of rows that may wait in event order.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str, Sink, SeenEvents], Analysis],
        sink: Sink,
        *,
        order: Order = "received",
        read_ahead: int = READ_AHEAD,
    ) -> None:
        seen = SeenEvents()
        self._names = list(names)
        self._sink = sink
        self._order = order
        self._read_ahead = read_ahead
        self.waiting_bytes = 0
        """Bytes of rows that wait for the slowest partition."""
        self._pending: list[dict[str, list[Rows]]] = [{} for _ in names]
        """Rows that wait, of each partition and report."""
        self._ends: list[StreamEnd | None] = [None for _ in names]
        self._header = CommonHeader(self._names)
        self.analyses = [
            make(name, sink if order == "received" else partial(self._hold, i), seen)
            for i, name in enumerate(names)
        ]
        if order == "event":
            for analysis in self.analyses:
                analysis.leave_unexpanded()

    def receive(self, index: int, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Take the next bytes of a partition.

        Raises:
            MismatchError: it is of another kind, sample count or set than the others.
            StarvedError: too many rows wait for the slowest partition, which this is not.
            CoreError: as :meth:`Analysis.receive`.
        """
        analysis = self.analyses[index]
        slowest = self.slowest()
        try:
            analysis.receive(data)
        finally:
            # What streams of two runs have in common, such as an event, is not what is wrong.
            self._header.compare(index, analysis.header)
        self._release()
        if index != slowest and self.waiting_bytes > self._read_ahead:
            raise self._starved()

    def close(self, index: int) -> None:
        """A partition has ended.

        Raises:
            CoreError: as :meth:`Analysis.close`.
        """
        self._ends[index] = self.analyses[index].close(ends_run=False)
        self._release()
        if None not in self._ends:
            first, *others = self.analyses
            first.finish_run(self._sink, others)

    @property
    def ends(self) -> list[StreamEnd]:
        """How each partition ended, once all were closed."""
        return [end for end in self._ends if end is not None]

    def slowest(self) -> int | None:
        """The open partition that stands at the lowest event; None if all are closed."""
        stands = [(self._stand(i), i) for i in range(len(self._names)) if self._ends[i] is None]
        return min(stands)[1] if stands else None

    def _stand(self, index: int) -> int:
        """No rows of lower events can come from this partition any more."""
        return _NO_EVENT if self._ends[index] is not None else self.analyses[index].open_event

    def _hold(self, index: int, report: str, rows: Rows) -> None:
        self._pending[index].setdefault(report, []).append(rows.copy())
        self.waiting_bytes += rows.nbytes

    def _release(self) -> None:
        if not self.waiting_bytes:
            return
        # Rows of the event it stands at are the slowest partition's own: they can go,
        # as no two partitions have the same event.
        floor = min(self._stand(i) for i in range(len(self._names)))
        for report in self.analyses[0].reports:
            parts = [
                part
                for pending in self._pending
                for part in _take_upto(floor, pending.get(report.name, []))
            ]
            if parts:
                rows = np.concatenate(parts)
                rows = rows[np.argsort(rows["EventId"], kind="stable")]
                self.waiting_bytes -= rows.nbytes
                # The first can expand the rows of all: they are of the same reports and inputs.
                for piece in self.analyses[0].expand(report.name, rows):
                    self._sink(report.name, piece)

    def _starved(self) -> errors.StarvedError:
        index = self.slowest()
        assert index is not None  # noqa: S101 - rows wait only for open partitions
        event = self.analyses[index].open_event
        stands = f"at event {event}" if event else "before its first event"
        return errors.StarvedError(
            f"the merge waits for this stream, which stands {stands}, while"
            f" {self.waiting_bytes} bytes of rows of the others wait"
            f" (at most {self._read_ahead} may)",
            hint="Its writer is stuck or much slower; raise the read-ahead, write it to a"
            " file first, or take the order received",
            source=self._names[index],
        )
