"""The picture of a posted stream, as its answer.

It is drawn before the answer begins, so that a picture that cannot be drawn is a problem document.
"""

from __future__ import annotations

from app.errors import Problem
from app.streams.frames import Buffers

from ..posting import Ending
from ..request import LossRequest
from ..spool import Item, Mark, Spool, Table
from .drawing import PictureCollector
from .options import PictureOptions


def draw_posted(
    spool: Spool, request: LossRequest, options: PictureOptions, summary_set: int | None
) -> bytes:
    """Draw the rows that wait; takes them all.

    Args:
        spool: holds the rows of a whole run.
        request: the analysis they are of; its first report is drawn.
        options: of the picture.
        summary_set: of the stream.

    Raises:
        ReportError: the picture cannot be drawn.
        StorageFullError: the disk failed.
    """
    collector = PictureCollector(request.reports[0], options)
    while (item := spool.take()) is not None:
        if isinstance(item, Table):
            collector.take(item.report, item.rows)
    return collector.draw(summary_set)


class PictureAnswer:
    """An answer that is one picture.

    Args:
        picture: its bytes.
    """

    tells_end = False
    shows_marks = False

    def __init__(self, picture: bytes) -> None:
        self._picture = picture

    def begin(self) -> Buffers:
        """The picture."""
        return [self._picture]

    def add(self, _item: Item) -> Buffers:
        """Nothing: all rows have been drawn."""
        return []

    def heartbeat(self) -> Buffers:
        """Nothing."""
        return []

    def end(self, _ending: Ending) -> Buffers:
        """Nothing."""
        return []

    def fail(self, _problem: Problem, _last: Mark | None) -> Buffers | None:
        """None: a picture cannot express a failure."""
        return None
