"""What the stores of records in SQL share: the columns of their tables, and all that only reads.

Changes are statements of each database's own: one is asked within a transaction of this process,
the other from far away, as rarely as possible.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString

from app.errors import StorageFullError

from .base import (
    DamagedRecord,
    Record,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    Usage,
    damaged,
)

KIND, IDENT = "probe", "readiness"
"""The record that is written to see whether any can be."""
COLUMNS = "kind, id, value, generation, nonce, used, checksum, size"
_LAST = "\x7f"
"""Sorts after every character of an id."""


class SqlStateStore(StateStore):
    """A StateStore in tables ``record`` and ``usage``.

    Attributes:
        tables: what comes before their names.
        path: of their file, for errors; None if they are in a server.
    """

    tables: LiteralString = ""
    path: Path | None = None

    @abstractmethod
    def rows(self, query: LiteralString, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        """Return what a query finds, in which a question mark stands for each value.

        Raises:
            StoreError: it cannot be read.
        """

    def find(self, kind: str, record_id: str) -> Record | None:
        """See StateStore."""
        record = next(iter(self._records("kind = ? AND id = ?", (kind, record_id))), None)
        if isinstance(record, DamagedRecord):
            raise damaged(record.kind, record.id, self.path)
        return record

    def scan(self, kind: str, prefix: str, after: str, limit: int) -> Sequence[Record]:
        """See StateStore."""
        where: LiteralString = "kind = ? AND id >= ? AND id < ? AND id > ? ORDER BY id LIMIT ?"
        return self._records(where, (kind, prefix, prefix + _LAST, after, limit))

    def _records(self, where: LiteralString, values: Sequence[object]) -> Sequence[Record]:
        # The text is ours alone: values of callers are bound.
        query: LiteralString = f"SELECT {COLUMNS} FROM {self.tables}head WHERE {where}"  # noqa: S608
        return [self._record(row) for row in self.rows(query, values)]

    def _record(self, row: tuple[Any, ...]) -> Record:
        kind, record_id, value, generation, nonce, used, checksum, size = row
        record = Record(kind, record_id, value, generation, nonce, used, size)
        return record if record.checksum() == checksum else DamagedRecord(record, self.path)

    def largest_usage(self, kind: str, space: str = "") -> Usage:
        """Return the most records, and the most bytes, that one owner has of a kind.

        Args:
            kind: the kind.
            space: beginning of the ids of the only owner to look at; default: all are.

        Raises:
            StoreError: they cannot be read.
        """
        largest: LiteralString = "coalesce(max(count), 0), coalesce(max(nbytes), 0)"
        query: LiteralString = (
            f"SELECT {largest} FROM {self.tables}usage WHERE kind = ? AND ? IN ('', space)"  # noqa: S608
        )
        return Usage(*self.rows(query, (kind, space))[0])

    def check(self) -> None:
        """Check that a record can be written.

        Raises:
            StoreError: it cannot.
        """
        try:
            self.touch(KIND, IDENT)
        except RecordMissingError:
            # Below the reserve of the disk nothing new is stored; that is another check's.
            with contextlib.suppress(StorageFullError, RecordExistsError):
                self.create(KIND, IDENT, b"")
