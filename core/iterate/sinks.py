"""Sinks: write blocks to files that the caller has opened, in common formats.

A file is complete after :meth:`Writer.commit`. If the format allows it, a file without a commit
cannot be mistaken for a complete one. Arrow is in :mod:`.arrow_sink`.
"""

from __future__ import annotations

import io
import math
import threading
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..errors import OptionError, ShapeError
from .base import Block, Column, Field, Ragged
from .columns import block_length, values_of

_NPY_HEADER = 128
"""Bytes of an npy header with room for any length."""
_LARGEST = 2**62


class BinaryFile(Protocol):
    """A file open for writing, which its opener closes."""

    def write(self, data: bytes, /) -> Any:  # noqa: ANN401 - bytes written, or nothing
        """Append bytes."""


def write_all(file: BinaryFile, data: bytes) -> None:
    """Append bytes, all of them: a file without a buffer may take a part at a time.

    Raises:
        OSError: it takes none.
    """
    left = memoryview(data)
    while left.nbytes:
        count = file.write(left)  # type: ignore[arg-type]  # as every file takes it
        if count is None:
            return
        if not count:
            raise OSError("the file takes no bytes")
        left = left[count:]


class SeekableFile(BinaryFile, Protocol):
    """A file that can also be written at earlier offsets."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to an offset."""

    def tell(self) -> int:
        """The current offset."""


class Writer(Protocol):
    """Writes blocks; threads may share one."""

    def write(self, block: Block) -> None:
        """Write the items of a block."""

    def commit(self) -> None:
        """End the data and complete the file; further calls do nothing."""


class Sink(ABC):
    """Base of the writers: writes one block at a time, and none after the commit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items = 0
        """Number of items written."""
        self._committed = False
        self._failed = False

    def write(self, block: Block) -> None:
        """Write the items of a block.

        Raises:
            OptionError: the sink is committed, or the block lacks a field or has items of
                another dtype or shape; or an earlier write failed in the middle.
        """
        with self._lock:
            self._check()
            if self._committed:
                raise OptionError("the sink is committed: nothing can be written past the end")
            try:
                self._put(block)
            except OptionError:  # of the block, before anything was written
                raise
            except BaseException:
                self._failed = True
                raise
            self.items += block_length(block)

    def commit(self) -> None:
        """End the data and complete the file, which stays open.

        Raises:
            OptionError: a write failed, so that the file lacks items.
        """
        with self._lock:
            self._check()
            if not self._committed:
                self._finish()
                self._committed = True

    def _check(self) -> None:
        if self._failed:
            raise OptionError(
                f"a write failed after {self.items} items: the file is not complete",
                hint="Write it anew.",
            )

    @abstractmethod
    def _put(self, block: Block) -> None:
        """Write a block; an OptionError says that nothing was written."""

    def _finish(self) -> None:  # noqa: B027 - most formats need nothing more
        """Complete the file."""


class _Plain(Sink):
    """Writes one field whose items have one shape."""

    def __init__(self, file: BinaryFile, field: Field) -> None:
        super().__init__()
        if field.ragged or min(field.shape, default=0) < 0:
            raise ShapeError(
                f"the items of {field.name!r} have different shapes", hint="Pad them to a length."
            )
        if field.dtype.hasobject:
            raise OptionError(f"{field.name!r} is of dtype {field.dtype}")
        self._file = file
        self._field = field
        self._dtype = field.dtype.newbyteorder("<")

    def _put(self, block: Block) -> None:
        values = column_of(block, self._field)
        if isinstance(values, Ragged):
            raise OptionError(f"the items of {self._field.name!r} are ragged")
        write_all(self._file, np.ascontiguousarray(values, self._dtype).tobytes())


class NpyWriter(_Plain):
    """Writes one field as an npy file, shape (items, ...), little endian.

    Until the commit the header is zeros, which no reader accepts.

    Args:
        file: open for writing, seekable, at the offset where the array begins.
        field: the field, with its dtype and shape.

    Raises:
        ShapeError: its items have different shapes.
    """

    def __init__(self, file: SeekableFile, field: Field) -> None:
        super().__init__(file, field)
        self._seekable = file
        self._start = file.tell()
        size = len(self._header(_LARGEST))
        self._size = max(_NPY_HEADER, -(-size // 64) * 64)
        write_all(file, bytes(self._size))

    def _header(self, items: int) -> bytes:
        return npy_header(self._dtype, (items, *self._field.shape))

    def _finish(self) -> None:
        result = self._header(self.items)
        # The text ends with a line break; blanks before it fill the reserved room.
        head = result[:8] + (self._size - 10).to_bytes(2, "little") + result[10:-1]
        self._seekable.seek(self._start)
        write_all(self._seekable, head.ljust(self._size - 1) + b"\n")
        self._seekable.seek(0, io.SEEK_END)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What an npy file of such an array begins with, in C order."""
    file = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


class RawWriter(_Plain):
    """Writes one field as a raw dataset: frames without a header, little endian.

    Args:
        file: open for writing.
        field: the field, with its dtype and shape.

    Raises:
        ShapeError: its items have different shapes.
    """

    def describe(self) -> dict[str, Any]:
        """The spec that registers the file as a dataset, as JSON values."""
        return {
            "format": "raw",
            "dtype": self._dtype.str,
            "nav_shape": [self.items],
            "sig_shape": list(self._field.shape),
        }

    @property
    def nbytes(self) -> int:
        """Bytes written."""
        return self.items * self._dtype.itemsize * math.prod(self._field.shape)


class LossEncoder(Protocol):
    """Encodes a loss stream, as :class:`core.losses.writer.LossWriter` does."""

    def begin(self) -> bytes:
        """Header of the stream."""

    def block(
        self,
        event: int,
        ident: int,
        sidx: npt.ArrayLike,
        losses: npt.ArrayLike,
        exposure: float | None = None,
    ) -> bytes:
        """One block, including its end marker."""


class LossSink(Sink):
    """Writes items that are blocks of losses as a loss stream.

    Items have the fields ``event`` and ``ident``, the ragged fields ``sidx`` and ``loss``,
    and ``exposure`` in summary streams. A loss stream has no end marker: only its length
    can show that it is complete.

    Args:
        file: open for writing.
        encoder: of the stream.
        ident: name of the field of item, coverage or summary ids.
    """

    def __init__(self, file: BinaryFile, encoder: LossEncoder, *, ident: str = "item") -> None:
        super().__init__()
        self._file = file
        self._encoder = encoder
        self._ident = ident
        write_all(file, encoder.begin())

    def _put(self, block: Block) -> None:
        events, idents = _numbers(block, "event"), _numbers(block, self._ident)
        sidx, losses = _ragged(block, "sidx"), _ragged(block, "loss")
        exposures = _numbers(block, "exposure") if "exposure" in block else None
        parts = [
            self._encoder.block(
                int(events[k]),
                int(idents[k]),
                sidx[k],
                losses[k],
                None if exposures is None else float(exposures[k]),
            )
            for k in range(len(events))
        ]
        write_all(self._file, b"".join(parts))


def column_of(block: Block, field: Field) -> Column:
    """The column of a field.

    Raises:
        OptionError: it is missing, or its dtype or shape is not that of the field.
    """
    column = block.get(field.name)
    if column is None:
        raise OptionError(f"a block lacks the field {field.name!r}")
    values = values_of(column)
    if values.dtype != field.dtype or values.shape[1:] != field.shape:
        raise OptionError(
            f"items of {field.name!r} are {values.dtype} of shape {values.shape[1:]}, "
            f"not {field.dtype} of shape {field.shape}"
        )
    return column


def _numbers(block: Block, name: str) -> Array:
    column = block.get(name)
    if column is None or isinstance(column, Ragged) or column.ndim != 1:
        raise OptionError(f"a loss stream needs a field {name!r} of one number per item")
    return column


def _ragged(block: Block, name: str) -> Ragged:
    column = block.get(name)
    if not isinstance(column, Ragged):
        raise OptionError(f"a loss stream needs a ragged field {name!r}")
    return column
