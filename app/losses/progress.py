"""How far a job over loss streams has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.losses.sections import SectionEnd

from .sources import Source


@dataclass(slots=True)
class Progress:
    """Progress of a running job."""

    total: int | None
    """Bytes to read, None if unknown."""
    bytes: int = 0
    events: int = 0


Observer = Callable[[Progress], None]


def section_observer(
    sources: Sequence[Source], total: int | None, observer: Observer | None
) -> Callable[[SectionEnd], None]:
    """Return what a pass over sections of these files calls after each, to tell the observer."""
    progress = Progress(total)

    def observe(result: SectionEnd) -> None:
        if observer is not None:
            progress.bytes = sum(source.size or 0 for source in sources[: result.stream])
            progress.bytes += result.end.bytes
            progress.events += result.end.events
            observer(progress)

    return observe
