"""Frames of a recording as flat values: in place where they may be, else read and decoded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .positions import Indices
from .recording import Recording

Decode = Callable[[npt.NDArray[np.uint8], npt.NDArray[Any]], None]


class RangeSource(Protocol):
    """Reads ranges of a recording's files; what stands behind it may change under us."""

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """Put bytes start to stop of each file at its offset of ``out``.

        Raises:
            Exception: fewer bytes are there than were; nothing of ``out`` is to be used.
        """

    def mapped(self, file: int) -> memoryview | None:
        """A whole file in memory, if nobody can change it; else None."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Rows of some frames: row y of frame i begins at ``starts[i] + y * pitch``."""

    values: npt.NDArray[Any]
    """Flat, in the stored type; read-only; valid until the next call."""
    starts: Indices
    """Item at which each frame's first wanted row begins, shape (frames,)."""
    pitch: int
    """Items of a row."""


class FrameSource(Protocol):
    """Where frames come from."""

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Rows start to stop, along the first axis of a frame, of these frames."""


class FileFrames:
    """Frames that lie in files as a recording says.

    Not for two threads at once: the buffer it reads into is its own.

    Args:
        recording: where the frames lie.
        ranges: reads them.
        decode: for packed frames: from octets, shape (n, frame_bytes), to values, shape
            (n, *sig_shape).
    """

    def __init__(
        self, recording: Recording, ranges: RangeSource, decode: Decode | None = None
    ) -> None:
        self._decode = decode
        self._recording = recording
        self._ranges = ranges
        counts = [extent.frames for extent in recording.extents]
        self._ends = np.cumsum(np.array(counts, np.int64))
        self._file = np.array([e.file for e in recording.extents], np.int64)
        self._offset = np.array([e.offset for e in recording.extents], np.int64)
        self._stride = np.array([e.stride for e in recording.extents], np.int64)
        self._buffer = np.zeros(0, np.uint8)
        self._decoded: npt.NDArray[Any] = np.zeros(0, recording.dtype)
        self._row_items = math.prod(recording.sig_shape[1:])

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Rows start to stop, along the first axis of a frame, of these frames."""
        extent = np.searchsorted(self._ends, frames, side="right")
        first = self._ends[extent] - self._counts(extent)
        begins = (self._offset[extent] + (frames - first) * self._stride[extent]).astype(np.int64)
        if self._recording.stored is None:
            return self._unpacked(self._file[extent], begins, rows)
        stored = self._recording.stored
        row_bytes = self._row_items * stored.itemsize
        begins = begins + rows[0] * row_bytes
        size = (rows[1] - rows[0]) * row_bytes
        in_place = self._in_place(self._file[extent], begins, stored)
        if in_place is not None:
            return in_place
        octets = self._read(self._file[extent], begins, size)
        values = octets.view(stored)
        values.flags.writeable = False
        starts = np.arange(len(frames), dtype=np.int64) * (size // stored.itemsize)
        return Loaded(values, starts, self._row_items)

    def _counts(self, extent: Indices) -> Indices:
        counts: Indices = np.diff(self._ends, prepend=0)[extent]
        return counts

    def _in_place(self, files: Indices, begins: Indices, stored: np.dtype[Any]) -> Loaded | None:
        """The mapped file itself, if it is one file and its values are aligned."""
        if not len(files) or (files != files[0]).any():
            return None
        shift = int(begins[0]) % stored.itemsize
        if (begins % stored.itemsize != shift).any():
            return None
        whole = self._ranges.mapped(int(files[0]))
        if whole is None:
            return None
        count = (len(whole) - shift) // stored.itemsize
        values = np.frombuffer(whole, stored, count, shift)
        if not values.flags.aligned:
            return None
        values.flags.writeable = False
        return Loaded(values, (begins - shift) // stored.itemsize, self._row_items)

    def _read(self, files: Indices, begins: Indices, size: int) -> npt.NDArray[np.uint8]:
        total = len(files) * size
        if total > len(self._buffer):
            self._buffer = np.empty(total, np.uint8)
        octets = self._buffer[:total]
        offsets = np.arange(len(files), dtype=np.int64) * size
        self._ranges.read_ranges(files, begins, begins + size, octets.data, offsets)
        return octets

    def _unpacked(self, files: Indices, begins: Indices, rows: tuple[int, int]) -> Loaded:
        """Packed frames are decoded whole: their bits know no rows."""
        recording = self._recording
        pixels = math.prod(recording.sig_shape)
        octets = self._read(files, begins, recording.frame_bytes)
        if len(self._decoded) < len(files) * pixels:
            self._decoded = np.empty(len(files) * pixels, recording.dtype)
        values = self._decoded[: len(files) * pixels]
        assert self._decode is not None  # noqa: S101 - packed
        self._decode(
            octets.reshape(len(files), recording.frame_bytes),
            values.reshape(len(files), *recording.sig_shape),
        )
        flat = values.view()
        flat.flags.writeable = False
        starts = np.arange(len(files), dtype=np.int64) * pixels + rows[0] * self._row_items
        return Loaded(flat, starts, self._row_items)
