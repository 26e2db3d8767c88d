"""Frames of a recording as flat arrays of values, without copying where possible.

The reader needs rows of many frames at once. How they get into memory depends on the files:

* If a file is mapped and nobody can change it, and its values are aligned, the mapping itself
  is the array. Nothing is copied; the frames are merely starting points in it.
* Otherwise the rows are read into a buffer, one frame after another.
* Packed frames are read whole and decoded into a second buffer, because rows cannot be located
  in packed bits.

One description, :class:`Loaded`, covers all three: a flat array, the item at which each frame
starts, and the pitch of a row::

    values   |.....[row 0      ][row 1      ].......[row 0      ][row 1      ]..|
                   ^            ^                   ^
               starts[0]    starts[0] + pitch   starts[1]

A frame is located by its extent, a run of equally spaced frames in one file:
``offset + (frame - first frame of the extent) * stride``.
"""

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
    """Reads ranges of a recording's files, which may change at any time."""

    def read_ranges(
        self, files: Indices, starts: Indices, stops: Indices, out: memoryview, offsets: Indices
    ) -> None:
        """Read bytes start to stop of each file to its offset in ``out``.

        Args:
            files: index of the file of each range, shape (k,); likewise the others.
            starts: first byte of each range.
            stops: byte after the last one of each range.
            out: the output.
            offsets: offset of each range in ``out``.

        Raises:
            Exception: a file has become shorter; the contents of ``out`` are undefined.
        """

    def mapped(self, file: int) -> Octets | None:
        """Return a whole file as mapped memory, or None if someone could change it.

        The same memory is always returned as the same array object.
        """


@dataclass(slots=True, eq=False)
class Loaded:
    """Rows of some frames: row y of frame i begins at ``starts[i] + y * pitch``."""

    values: Array
    """Values in the stored dtype: one axis, read-only, valid until the next call."""
    starts: Indices
    """Item at which the first requested row of each frame begins, shape (frames,)."""
    pitch: int
    """Items per row."""


class FrameSource(Protocol):
    """Loads frames: from the files of a recording, or from chunked arrays."""

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Load rows of frames.

        Args:
            frames: indices of the frames, in any order, shape (k,).
            rows: (start, stop) along the first axis of a frame.

        Returns:
            The values, valid until the next call.
        """


class FileFrames:
    """Frames stored in files at the positions a recording gives.

    For one thread at a time, because calls share a buffer.

    Args:
        recording: positions of the frames.
        ranges: reader of the files.
        decode: decoder of packed frames: ``decode(octets, out)`` fills values, shape
            (n, *panel_shape), from bytes, shape (n, frame_bytes). None for plain values.
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
        self._mapped: tuple[Octets, Array] | None = None
        self._buffer = np.zeros(0, np.uint8)
        self._decoded: Array = np.zeros(0, recording.dtype)
        self._row_items = math.prod(recording.sig_shape[1:])

    def load(self, frames: Indices, rows: tuple[int, int]) -> Loaded:
        """Load rows of frames, in place if the file is mapped and its values are aligned."""
        if self._recording.stored is None:
            return self._unpacked(frames, rows)
        begins, extent = self._locate(frames)
        stored = self._recording.stored
        row_bytes = self._row_items * stored.itemsize
        if rows[0]:
            begins += rows[0] * row_bytes
        size = (rows[1] - rows[0]) * row_bytes
        if len(frames):
            file = self._one_file if self._one_file is not None else self._common_file(extent)
            in_place = None if file is None else self._in_place(file, begins, stored)
            if in_place is not None:
                return in_place
        octets = self._read(self._file[extent], begins, size)
        values = octets.view(stored)
        values.flags.writeable = False
        starts = np.arange(len(frames), dtype=np.int64) * (size // stored.itemsize)
        return Loaded(values, starts, self._row_items)

    def _locate(self, frames: Indices) -> tuple[Indices, Indices]:
        """Return the byte at which each frame's values begin, and the index of its extent."""
        if len(self._ends) == 1:
            # The common case, where a search would cost as much as a small tile.
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
        """Use the mapped file itself, if its values are aligned."""
        if self._shift is None:
            return None
        mapped = self._ranges.mapped(file)
        if mapped is None:
            return None
        if self._mapped is None or self._mapped[0] is not mapped:
            count = (len(mapped) - self._shift) // stored.itemsize
            values = np.frombuffer(mapped, stored, count, self._shift)
            values.flags.writeable = False
            self._mapped = mapped, values
        values = self._mapped[1]
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
        """Decode whole frames: rows cannot be located in packed bits."""
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
        """Read and decode stored units: frames, or panels if a frame consists of them."""
        begins, extent = self._locate(stored)
        octets = self._read(self._file[extent], begins, self._recording.frame_bytes)
        assert self._decode is not None  # noqa: S101 - packed
        self._decode(octets.reshape(len(stored), self._recording.frame_bytes), out)


def _common_shift(recording: Recording) -> int | None:
    """Return the misalignment of values, in bytes; None if it differs between frames."""
    if recording.stored is None:
        return None
    size = recording.stored.itemsize
    shifts = {extent.offset % size for extent in recording.extents}
    aligned = all(extent.stride % size == 0 for extent in recording.extents)
    return shifts.pop() if aligned and len(shifts) == 1 else None
