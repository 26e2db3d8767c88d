"""The published reports of a run, in every format.

Sealing writes each report as packed records. Any other format is made of these when it is first
asked for, and published too: so a file is immutable, whoever asks, and can be read by range.

Files of results are written piece by piece, then published at once, and immutable from then on::

    record   segment  <run>.<name>                {"blob": ..., "size": ..., "digest": ...}
    blob   segment  <run>.<name>.<attempt>      the bytes

The name says what the content is computed from, so two workers that compute the same file write
equal bytes. Each writes to a blob of its own attempt, and whoever creates the record first wins;
the other deletes its blob. A crash leaves a blob without a record, which nobody reads and the
sweeper removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import structlog

from app.errors import NotFoundError
from app.losses.pictures.drawing import PICTURES, PictureCollector
from app.losses.pictures.options import PictureOptions, Theme
from app.losses.tables import table_encoder
from app.state.base import (
    MAX_PAGE,
    RecordConflictError,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreDamagedError,
    damaged,
)
from app.state.blobs import BlobMissingError, BlobStore, Octets
from app.state.ownership import Namespaces
from core.arrays import Rows
from core.budget import current
from core.losses.reports import REPORTS

from ..records import REPORT

PIECE = 8 << 20
"""Bytes that are written and read at a time; every write is synced."""
_DIGEST = 16
DAMAGED = (StoreDamagedError, BlobMissingError)
"""Errors of files that have to be computed again."""

Write = Callable[[bytes], None]
"""Takes the next bytes of a file."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file that is complete."""

    kind: str
    name: str
    """Within its run and kind."""
    blob: str
    size: int
    digest: str
    """BLAKE2b of the content, 32 hexadecimal digits."""

    @property
    def etag(self) -> str:
        """Strong entity tag."""
        return f'"{self.digest}"'

    def etag_of(self, form: str, choice: bytes) -> str:
        """Return the strong entity tag of what is made of it for one client, by its choice."""
        text = f"{self.digest} {form}".encode() + choice
        return f'"{hashlib.blake2b(text, digest_size=_DIGEST).hexdigest()}"'


class PublishedWriter:
    """Writes the content of one file; see :class:`Published`."""

    def __init__(self, blobs: BlobStore, kind: str, name: str, blob: str) -> None:
        self.name = name
        self._blobs = blobs
        self._kind = kind
        self._blob = blob
        self._waiting: list[bytes] = []
        self._waits = 0
        self._size = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST)

    def write(self, data: Octets) -> None:
        """Write the next bytes, of which the caller may use the memory again.

        Raises:
            ServiceError: there is no room, or the store failed.
        """
        octets = bytes(data)
        self._digest.update(octets)
        self._waiting.append(octets)
        self._waits += len(octets)
        if self._waits >= PIECE:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waits = 0
        self._size = self._blobs.append(self._kind, self._blob, self._size, data)

    def finish(self) -> PublishedFile:
        """Write what waits; return the file, which is not published yet."""
        if self._waits or not self._size:
            self._flush()
        digest = self._digest.hexdigest()
        return PublishedFile(self._kind, self.name, self._blob, self._size, digest)

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(NotFoundError):
            self._blobs.delete(self._kind, self._blob)


class Published:
    """The files of one kind that are computed from a run.

    Args:
        records: those of the kind.
        blobs: holds their content.
        kind: of both.
        owner: of the run.
        run: its id.
    """

    def __init__(
        self, records: Namespaces, blobs: BlobStore, kind: str, owner: str, run: str
    ) -> None:
        self._records = records
        self._blobs = blobs
        self._kind = kind
        self._owner = owner
        self._run = run

    def find(self, name: str) -> PublishedFile | None:
        """Return a file, or None if it is not published."""
        try:
            value = self._records.get(self._owner, self._ident(name)).value
        except RecordMissingError:
            return None
        return PublishedFile(self._kind, name, value["blob"], value["size"], value["digest"])

    def _ident(self, name: str) -> str:
        return f"{self._run}.{name}"

    def writer(self, name: str) -> PublishedWriter:
        """Begin to write a file."""
        blob = f"{self._ident(name)}.{secrets.token_hex(8)}"
        return PublishedWriter(self._blobs, self._kind, name, blob)

    def publish(self, writer: PublishedWriter) -> PublishedFile:
        """Publish what was written; return the file that is published, which may be another's.

        Raises:
            ServiceError: its owner has no room for more files, or a store failed.
        """
        try:
            file = writer.finish()
            value = {"blob": file.blob, "size": file.size, "digest": file.digest}
            self._records.create(self._owner, self._ident(file.name), value, file.size)
        except RecordExistsError:
            writer.discard()
            known = self.find(writer.name)
            if known is None:
                # It was deleted in the meantime, and so is its run.
                raise
            return known
        except BaseException:
            writer.discard()
            raise
        return file

    def write(self, name: str, content: Callable[[Write], object]) -> PublishedFile:
        """Publish what a function writes.

        Args:
            name: of the file.
            content: called with a function that takes the next bytes.
        """
        writer = self.writer(name)
        try:
            content(writer.write)
        except BaseException:
            writer.discard()
            raise
        return self.publish(writer)

    def read(self, file: PublishedFile, start: int, stop: int) -> bytes:
        """Return some bytes.

        Raises:
            NotFoundError: the file was deleted.
            StoreDamagedError: the bytes are not those that were written.
        """
        data = self._blobs.range(self._kind, file.blob, start, stop)
        if len(data) != min(stop, file.size) - start:
            raise damaged(self._kind, file.name)
        return data

    def pieces(self, file: PublishedFile) -> Iterator[bytes]:
        """Yield the content, some megabytes at a time.

        Raises:
            NotFoundError, StoreDamagedError: see :meth:`read`.
        """
        for begin in range(0, file.size, PIECE):
            yield self.read(file, begin, min(begin + PIECE, file.size))

    def names(self, after: str = "") -> Iterator[str]:
        """Yield the names of all files, in order."""
        prefix = f"{self._run}."
        start = prefix + after if after else ""
        while page := self._records.ids(self._owner, start, MAX_PAGE, prefix=prefix):
            yield from (ident.removeprefix(prefix) for ident in page)
            start = page[-1]

    def delete(self, name: str) -> None:
        """Delete a file, if it exists: first its record, so that nobody finds half of it."""
        try:
            file = self.find(name)
        except StoreDamagedError:
            # Its bytes are the sweeper's.
            with contextlib.suppress(RecordMissingError):
                self._records.delete(self._owner, self._ident(name))
            return
        if file is not None:
            self.discard(file)

    def discard(self, file: PublishedFile) -> None:
        """Delete a file, unless it was published anew since."""
        with contextlib.suppress(RecordMissingError, RecordConflictError):
            record = self._records.get(self._owner, self._ident(file.name))
            if record.value["blob"] == file.blob:
                self._records.delete(self._owner, record.ident, record)
                with contextlib.suppress(NotFoundError):
                    self._blobs.delete(self._kind, file.blob)

    def discard_unless_whole(self, file: PublishedFile) -> bool:
        """Delete a file if it is missing or damaged; return whether it is whole."""
        try:
            for _ in self.pieces(file):
                pass
        except DAMAGED as e:
            structlog.get_logger().warning("a file of a run is damaged", reason=str(e))
            self.discard(file)
            return False
        return True

    def delete_all(self) -> None:
        """Delete all files, and what crashed writers left."""
        for name in list(self.names()):
            self.delete(name)
        after: str | None = ""
        while after is not None:
            page = self._blobs.list(self._kind, f"{self._run}.", after, MAX_PAGE)
            for blob in page.blobs:
                with contextlib.suppress(NotFoundError):
                    self._blobs.delete(self._kind, blob.id)
            after = page.after


FORMATS = ("csv", "parquet", "arrow", "ndjson", "bin", "svg", "png")
"""Formats of a report; the first is the default."""
RECORDS = "bin"
_REMARKS = "told"
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
        records: of all reports.
        blobs: hold their content.
        owner: of the run.
        run: its id.
        float_width: bytes of a loss.
    """

    def __init__(
        self, records: StateStore, blobs: BlobStore, owner: str, run: str, float_width: int
    ) -> None:
        super().__init__(Namespaces(records, REPORT), blobs, REPORT, owner, run)
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
            BlobMissingError: they were deleted since the caller has looked.
            WorkStoppedError: nobody waits for them any more.
        """
        file = self.find(name.file(RECORDS))
        if file is None:
            raise BlobMissingError(f"the rows of {name.report} are deleted")
        dtype = self.dtype(name.report)
        step = _AT_ONCE * dtype.itemsize
        budget = current()
        for start in range(0, file.size, step):
            budget.check("report")
            octets = self.read(file, start, min(start + step, file.size))
            rows = np.frombuffer(octets, dtype)
            yield rows if choose is None else choose(rows)

    def remarks(self, name: ReportName) -> dict[str, int | str]:
        """Return what is to be said of a report besides its rows, as ``tell`` stored it."""
        file, remarks = self.find(name.file(_REMARKS)), {}
        if file is not None:
            # What is damaged is made again with its records.
            with contextlib.suppress(*DAMAGED):
                remarks = json.loads(b"".join(self.pieces(file)))
        return remarks

    def tell(self, name: ReportName, remarks: Mapping[str, int | str]) -> None:
        """Store what is to be said of a report, before its records are published."""
        if remarks:
            text = json.dumps(remarks).encode()
            self.write(name.file(_REMARKS), lambda write: write(text))

    def count(self, name: ReportName, choose: Callable[[Rows], Rows]) -> int:
        """Return how many rows of a report, which is published, are wanted."""
        count, budget = 0, current()
        for rows in self.rows(name, choose):
            count += len(rows)
            # However long the file is.
            budget.renew()
        return count

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
