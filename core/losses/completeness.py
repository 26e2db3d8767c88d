"""Whether a stream is as long as it was declared to be."""

from __future__ import annotations

from dataclasses import replace

from ..errors import IncompleteError
from .events import Completeness, StreamEnd


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
