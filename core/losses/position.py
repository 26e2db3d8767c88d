"""A place in a stream between two events, from which a fresh pass can go on."""

from __future__ import annotations

from dataclasses import dataclass

from .events import StreamHeader


@dataclass(frozen=True, slots=True)
class Position:
    """Where the first event that is not known to be complete begins.

    Much smaller than a state in the middle of an event: a pass that goes on from
    here reads the unfinished event again from its first byte.
    """

    header: StreamHeader | None = None
    """The stream's header, None at its very beginning."""
    offset: int = 0
    """Byte offset of the next event's first block."""
    last_event: int = 0
    """The event before, 0 if there is none."""
    ascending: bool = True
    """Whether every event id so far was above the one before."""
    events: int = 0
    """Complete events before this place."""
