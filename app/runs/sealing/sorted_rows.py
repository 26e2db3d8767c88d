"""Rows of events that come in any order, put in order on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from app.state.durable import temporary_error
from core.arrays import Rows

_AT_ONCE = 1 << 16
"""Rows that are handed on together."""


class SortedRows:
    """Keeps rows in a temporary file, and hands them on by event.

    Rows of an event keep their order. In memory there are only ids and their order, 12 bytes a
    row.

    Args:
        directory: where the file is made; it has no name, so that no crash leaves it.
        dtype: of the rows, with a field ``EventId``.

    Raises:
        StorageFullError: the directory takes no file.
    """

    def __init__(self, directory: Path, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._events = [np.zeros(0, np.int32)]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close()
        except OSError as e:
            raise temporary_error(e, "rows of the run") from e

    def add(self, rows: Rows) -> None:
        """Keep the next rows.

        Raises:
            StorageFullError: the disk is full.
        """
        self._events.append(rows["EventId"].astype(np.int32))
        try:
            self._file.write(rows.tobytes())
        except OSError as e:
            raise temporary_error(e, "rows of the run") from e

    def sorted(self) -> Iterator[Rows]:
        """Yield all rows by event.

        Raises:
            StorageFullError: the disk is full.
        """
        try:
            self._file.flush()
        except OSError as e:
            raise temporary_error(e, "rows of the run") from e
        events = np.concatenate(self._events)
        if not len(events):
            return
        order = np.argsort(events, kind="stable")
        del events
        rows = np.memmap(self._file, self._dtype, "r", shape=(len(order),))
        for begin in range(0, len(order), _AT_ONCE):
            yield np.asarray(rows[order[begin : begin + _AT_ONCE]])

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()
