"""A place between two events of a stream, from which another pass can continue."""

from __future__ import annotations

from dataclasses import dataclass

from .events import StreamHeader


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
