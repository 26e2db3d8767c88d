"""The parts of a loss stream as values: header, event, place between two events, end."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices
from ..errors import IncompleteError
from .format import Kind


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """The first 8 bytes of an item stream, or the first 12 of a summary stream."""

    kind: Kind
    aggregation: int
    """1 item (or summary), 2 coverage (legacy gul streams)."""
    source: int
    """Source type byte: 1 gul, 2 loss, 3 summary."""
    len_sample: int
    summary_set: int | None
    """Set id of a summary stream, None for the others."""
    float_width: int
    """Bytes of a loss, given by the caller: the stream does not contain it."""

    def describe(self) -> str:
        """The header in one line of text."""
        text = f"{self.kind.value} stream, {self.len_sample} samples, f{self.float_width} losses"
        return text if self.summary_set is None else f"{text}, summary set {self.summary_set}"


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """All blocks of one event, in the order received.

    Block ``i`` has pairs ``starts[i]`` to ``starts[i + 1] - 1``.
    """

    event_id: int
    offset: int
    """Byte offset of the event's first block in the stream."""
    block_ids: npt.NDArray[np.int32]
    """Item, coverage or summary ids, shape (blocks,)."""
    exposures: Floats
    """Exposure of each summary, shape (blocks,); NaN in item streams."""
    starts: Indices
    """First pair of each block, and the number of pairs; shape (blocks + 1,)."""
    sidx: npt.NDArray[np.int32]
    """Sample ids, special ones included, shape (pairs,)."""
    losses: npt.NDArray[np.floating[Any]]
    """Losses in the width of the stream, shape (pairs,)."""

    def __len__(self) -> int:
        return len(self.block_ids)


class Signal(enum.Enum):
    """Why there is no next event."""

    NEED_DATA = "need data"
    END = "end of stream"


NEED_DATA: Final = Signal.NEED_DATA
"""More bytes are needed before the next event is known to be complete."""
END: Final = Signal.END
"""The stream was closed, and every event has been returned."""


class Completeness(enum.Enum):
    """What is known about the end of a stream."""

    DECLARED = "declared"
    """The stream ended where the caller had declared."""
    UNDECLARED = "undeclared"
    """It ended between two blocks. As there is no end marker, blocks may be missing."""
    UNTERMINATED = "unterminated"
    """Its last block lacked its end, which the policy accepted. Pairs may be missing too."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended, and what it contained."""

    completeness: Completeness
    bytes: int
    events: int
    blocks: int
    pairs: int
    ascending: bool
    """Whether every event id was above the one before."""
    reopened_check: str
    """The part of the stream that the check of reopened events covers: ``whole`` or
    ``since resume``."""
    events_without_occurrence: int | None = None
    """Events that the occurrences do not have, since a resume if there was one; None without
    occurrences. They have no rows in reports of periods."""
    blocks_without_exposure: int = 0
    """Blocks with losses and without exposure since a resume, which MELT and QELT lack; 0 if
    neither is asked for."""


def certify(
    end: StreamEnd, events: int | None, octets: int | None, source: str | None
) -> StreamEnd:
    """The end of a stream that has the declared numbers of events and bytes.

    Args:
        end: of the stream, which is not longer than declared.
        events: declared; None if they were not.
        octets: declared bytes; None if they were not.
        source: name of the stream, for messages.

    Raises:
        IncompleteError: it has fewer.
    """
    for noun, declared, counted in (("bytes", octets, end.bytes), ("events", events, end.events)):
        if declared is not None and counted < declared:
            raise IncompleteError(
                f"the stream has {counted} {noun}, but {declared} were declared",
                offset=end.bytes,
                hint="It ended between two blocks: its writer stopped early, or the declared number"
                " is wrong",
                source=source,
            )
    is_declared = events is not None or octets is not None
    if is_declared and end.completeness is Completeness.UNDECLARED:
        return replace(end, completeness=Completeness.DECLARED)
    return end


@dataclass(frozen=True, slots=True)
class Position:
    """Where the first event begins that is not known to be complete.

    It is much smaller than a state in the middle of an event: a pass that continues here
    reads the unfinished event again from its first byte.
    """

    header: StreamHeader | None = None
    """Header of the stream; None at the very beginning."""
    offset: int = 0
    """Byte offset of the first block of the next event."""
    last_event: int = 0
    """Id of the previous event, 0 if there is none."""
    ascending: bool = True
    """Whether event ids have ascended so far."""
    events: int = 0
    """Number of complete events before this place."""
