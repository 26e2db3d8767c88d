"""The published reports of a run, in every format.

Sealing writes each report as packed records. Any other format is made of these when it is first
asked for, and published too: so a file is immutable, whoever asks, and can be read by range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from app.losses.pictures.drawing import PICTURES, PictureCollector
from app.losses.pictures.options import PictureOptions, Theme
from app.losses.tables import table_encoder
from app.state.base import StateStore
from app.state.blobs import BlobStore
from app.state.ownership import Namespaces
from core.arrays import Rows
from core.budget import current
from core.losses.reports import REPORTS

from ..records import REPORT
from .published import Published, PublishedFile

FORMATS = ("csv", "parquet", "arrow", "ndjson", "bin", "svg", "png")
"""Formats of a report; the first is the default."""
RECORDS = "bin"
_AT_ONCE = 1 << 16
"""Rows that are read and encoded together: batches of Arrow have so many."""


@dataclass(frozen=True, slots=True)
class ReportName:
    """Which table."""

    report: str
    set_id: int | None
    """Summary set, None for streams of summaries."""
    variant: str

    def file(self, form: str) -> str:
        """Name of its file in a format."""
        return f"{self.report}.{self.variant}.{self.set_id or 'x'}.{form}"


class Look(NamedTuple):
    """How a client wants a picture; see :class:`PictureOptions`."""

    theme: Theme = "light"
    tail_means: bool = False
    currency: str | None = None
    summary_ids: npt.NDArray[np.int32] | None = None

    @property
    def octets(self) -> bytes:
        """What identifies it; empty for that of the published picture."""
        ids = b"" if self.summary_ids is None else self.summary_ids.tobytes()
        plain = (self.theme, self.tail_means, self.currency, ids) == ("light", False, None, b"")
        return b"" if plain else repr((self.theme, self.tail_means, self.currency, ids)).encode()


class ReportFiles(Published):
    """The published reports of one run.

    Args:
        heads: of all reports.
        blobs: hold their content.
        owner: of the run.
        run: its id.
        float_width: bytes of a loss.
    """

    def __init__(
        self, heads: StateStore, blobs: BlobStore, owner: str, run: str, float_width: int
    ) -> None:
        super().__init__(Namespaces(heads, REPORT), blobs, REPORT, owner, run)
        self._float_width = float_width

    def dtype(self, report: str) -> np.dtype[np.void]:
        """Return the dtype of the rows of a report."""
        return REPORTS[report].dtype(self._float_width)

    def rows(
        self, name: ReportName, choose: Callable[[Rows], Rows] | None = None
    ) -> Iterator[Rows]:
        """Yield the rows of a report, which is published.

        Args:
            name: which report.
            choose: returns those of some rows that are wanted; None for all.

        Raises:
            WorkStoppedError: nobody waits for them any more.
        """
        file = self.find(name.file(RECORDS))
        assert file is not None  # noqa: S101 - the caller has looked
        dtype = self.dtype(name.report)
        step = _AT_ONCE * dtype.itemsize
        budget = current()
        for start in range(0, file.size, step):
            budget.check("report")
            octets = self.read(file, start, min(start + step, file.size))
            rows = np.frombuffer(octets, dtype)
            yield rows if choose is None else choose(rows)

    def encoded(
        self, name: ReportName, form: str, choose: Callable[[Rows], Rows] | None = None
    ) -> Iterator[bytes]:
        """Yield a report in the format of a table, piece by piece."""
        encoder = table_encoder(form, REPORTS[name.report], self._float_width)
        yield encoder.begin()
        for rows in self.rows(name, choose):
            yield bytes(encoder.encode(rows))
        yield encoder.end()

    def derive(self, name: ReportName, form: str, picture: PictureOptions | None) -> PublishedFile:
        """Publish a report in a format, unless it is; its records are published.

        Args:
            name: of the report.
            form: the format.
            picture: how it is drawn; None for a table.

        Raises:
            CoreError: the picture cannot be drawn.
            ServiceError: a store failed, or its owner has no room for more.
        """
        known = self.find(name.file(form))
        if known is not None:
            return known
        pieces = self.encoded(name, form)
        if picture is not None:
            pieces = iter((self.picture(name, picture),))

        def content(write: Callable[[bytes], None]) -> None:
            budget = current()
            for piece in pieces:
                write(piece)
                # However long the file is.
                budget.renew()

        return self.write(name.file(form), content)

    def picture(self, name: ReportName, options: PictureOptions) -> bytes:
        """Draw a report whose records are published.

        Raises:
            CoreError: the picture cannot be drawn.
            ServiceError: a store failed.
        """
        collector = PictureCollector(name.report, options)
        for source in PICTURES[name.report]:
            for rows in self.rows(ReportName(source, name.set_id, name.variant)):
                collector.take(source, rows)
        return collector.draw(name.set_id)
