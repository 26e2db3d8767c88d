"""Frames of a recording as flat values: in place where they may be, else read and decoded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..arrays import Array, Indices, Octets
from .recording import Recording

Decode = Callable[[Octets, Array], None]


class RangeSource(Protocol):
    """Reads ranges of a recording's files; the files may change under us."""

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """Put bytes start to stop of each file at its offset of ``out``.

        Raises:
            Exception: fewer bytes are there than were; nothing of ``out`` is to be used.
        """

    def mapped(self, file: int) -> Octets | None:
        """A whole file in memory, if nobody can change it; else None.

        The same array as long as it is the same memory.
        """


@dataclass(slots=True, eq=False)
class Loaded:
    """Rows of some frames: row y of frame i begins at ``starts[i] + y * pitch``."""

    values: Array
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
            (n, *panel_shape).
    """

    def __init__(
        self, recording: Recording, ranges: RangeSource, decode: Decode | None = None
    ) -> None:
        self._decode = decode
        self._recording = recording
        self._ranges = ranges
        extents = recording.extents
        self._ends = np.cumsum(np.array([e.frames for e in extents], np.int64))
        self._firsts = np.concatenate([np.zeros(1, np.int64), self._ends[:-1]])
        self._file = np.array([e.file for e in extents], np.int64)
        self._offset = np.array([e.offset for e in extents], np.int64)
        self._stride = np.array([e.stride for e in extents], np.int64)
        self._one_file = extents[0].file if len({e.file for e in extents}) == 1 else None
        self._shift = _common_shift(recording)
        self._seen: tuple[Octets, Array] | None = None
        self._buffer = np.zeros(0, np.uint8)
        self._decoded: Array = np.zeros(0, recording.dtype)
        self._row_items = math.prod(recording.sig_shape[1:])

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Rows start to stop, along the first axis of a frame, of these frames."""
        if self._recording.stored is None:
            return self._unpacked(frames, rows)
        begins, extent = self._places(frames)
        stored = self._recording.stored
        row_bytes = self._row_items * stored.itemsize
        if rows[0]:
            begins += rows[0] * row_bytes
        size = (rows[1] - rows[0]) * row_bytes
        if len(frames):
            one = self._one_file if self._one_file is not None else self._common_file(extent)
            in_place = None if one is None else self._in_place(one, begins, stored)
            if in_place is not None:
                return in_place
        octets = self._read(self._file[extent], begins, size)
        values = octets.view(stored)
        values.flags.writeable = False
        starts = np.arange(len(frames), dtype=np.int64) * (size // stored.itemsize)
        return Loaded(values, starts, self._row_items)

    def _places(self, frames: Indices) -> tuple[Indices, Indices]:
        """(byte of each frame's values in its file, index of its extent)."""
        if len(self._ends) == 1:
            # Most recordings, and the search costs as much as a small tile.
            extent = np.zeros(len(frames), np.int64)
            return frames * self._stride[0] + self._offset[0], extent
        extent = np.searchsorted(self._ends, frames, side="right")
        first = self._firsts[extent]
        begins = self._offset[extent] + (frames - first) * self._stride[extent]
        return begins.astype(np.int64), extent

    def _common_file(self, extent: Indices) -> int | None:
        files = self._file[extent]
        return int(files[0]) if (files == files[0]).all() else None

    def _in_place(self, file: int, begins: Indices, stored: np.dtype[Any]) -> Loaded | None:
        """The mapped file itself, if its values are aligned."""
        if self._shift is None:
            return None
        whole = self._ranges.mapped(file)
        if whole is None:
            return None
        if self._seen is None or self._seen[0] is not whole:
            count = (len(whole) - self._shift) // stored.itemsize
            values = np.frombuffer(whole, stored, count, self._shift)
            values.flags.writeable = False
            self._seen = whole, values
        values = self._seen[1]
        if not values.flags.aligned:
            return None
        starts = begins - self._shift if self._shift else begins
        if stored.itemsize > 1:
            starts = starts // stored.itemsize
        return Loaded(values, starts, self._row_items)

    def _read(self, files: Indices, begins: Indices, size: int) -> Octets:
        total = len(files) * size
        if total > len(self._buffer):
            self._buffer = np.empty(total, np.uint8)
        octets = self._buffer[:total]
        offsets = np.arange(len(files), dtype=np.int64) * size
        self._ranges.read_ranges(files, begins, begins + size, octets.data, offsets)
        return octets

    def _unpacked(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Packed frames are decoded whole: their bits know no rows."""
        recording = self._recording
        pixels = math.prod(recording.sig_shape)
        if len(self._decoded) < len(frames) * pixels:
            self._decoded = np.empty(len(frames) * pixels, recording.dtype)
        values = self._decoded[: len(frames) * pixels]
        out = values.reshape(len(frames), *recording.sig_shape)
        if recording.panels == 1:
            self._decode_into(frames, out)
        else:
            panel = np.empty((len(frames), *recording.panel_shape), recording.dtype)
            width = recording.panel_shape[-1]
            for k in range(recording.panels):
                self._decode_into(frames + k * recording.frames, panel)
                out[..., k * width : (k + 1) * width] = panel
        flat = values.view()
        flat.flags.writeable = False
        starts = np.arange(len(frames), dtype=np.int64) * pixels + rows[0] * self._row_items
        return Loaded(flat, starts, self._row_items)

    def _decode_into(self, stored: Indices, out: Array) -> None:
        """Read and decode what lies in the files as frames: frames, or panels of them."""
        begins, extent = self._places(stored)
        octets = self._read(self._file[extent], begins, self._recording.frame_bytes)
        assert self._decode is not None  # noqa: S101 - packed
        self._decode(octets.reshape(len(stored), self._recording.frame_bytes), out)


def _common_shift(recording: Recording) -> int | None:
    """Bytes by which values are past multiples of their size; None if it differs."""
    if recording.stored is None:
        return None
    size = recording.stored.itemsize
    shifts = {extent.offset % size for extent in recording.extents}
    even = all(extent.stride % size == 0 for extent in recording.extents)
    return shifts.pop() if even and len(shifts) == 1 else None
