"""Frames of a recording, visited as flat arrays of values without copying where possible.

What is done to values, converting, correcting, summing, is done by a function that *visits*
them: it is called for some frames at a time, with an array they lie in. Where that array is
depends on the files:

* It may be the file itself, mapped, while nobody can change it: nothing is copied, and frames
  are merely starting points in it. This needs values that are aligned.
* Otherwise rows are read into a buffer that fits the processor's second-level cache, a few
  frames at a time, so that they are still there when they are visited.
* Packed frames are read whole, a few at a time, and decoded into a second buffer, because rows
  cannot be located in packed bits.

One description, :class:`Loaded`, covers all three: a flat array, the item at which each frame
starts, and the pitch of a row::

    values   |.....[row 0      ][row 1      ].......[row 0      ][row 1      ]..|
                   ^            ^                   ^
               starts[0]    starts[0] + pitch   starts[1]

Rows that are wanted exactly as they are stored need no visit: ``copy`` reads them into place.

A frame is located by its extent, a run of equally spaced frames in one file:
``offset + (frame - first frame of the extent) * stride``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..arrays import Array, Indices, Octets
from .recording import Recording

Decode = Callable[[Octets, Array], None]
UseOctets = Callable[[int, Octets, Indices], None]
"""``use(first, octets, positions)``: range ``first + k`` begins at ``octets[positions[k]]``."""

_PIECE = 1 << 20
"""Bytes read at a time of what is decoded or cannot be visited in place."""
_KEPT = 1 << 20
"""Bytes of a room up to which its values are known at the next visit, too."""


class RangeSource(Protocol):
    """Reads ranges of a recording's files, which may change at any time."""

    def copy(self, files: Indices, starts: Indices, size: int, out: Octets) -> None:
        """Read ranges of one length to ``out``, one after the other.

        Args:
            files: index of the file of each range, shape (k,), or (1,) if it is one file.
            starts: first byte of each range, shape (k,).
            size: bytes of each range.
            out: the output, shape (k * size,).

        Raises:
            Exception: a file has changed; the contents of ``out`` are undefined.
        """

    def visit(self, files: Indices, starts: Indices, size: int, use: UseOctets) -> None:
        """Call ``use`` for successive ranges of one length, in their order, some at a time.

        Args:
            files: index of the file of each range, shape (k,), or (1,) if it is one file.
            starts: first byte of each range, shape (k,).
            size: bytes of each range.
            use: called with the index of the first of some ranges, bytes that contain them,
                valid during the call, and where each begins.

        Raises:
            Exception: a file has changed; what was visited is not to be trusted.
        """

    def hint(self, files: Indices, starts: Indices, size: int) -> None:
        """Prepare for ranges of one length that are needed next; returns at once."""


@dataclass(slots=True, eq=False)
class Loaded:
    """Rows of some frames: row y of frame i begins at ``starts[i] + y * pitch``."""

    values: Array
    """Values in the stored dtype: one axis, read-only."""
    starts: Indices
    """Item at which the first requested row of each frame begins, shape (frames,)."""
    pitch: int
    """Items per row."""


Use = Callable[[int, Loaded], None]
"""``use(first, loaded)``: frames ``first`` and following, valid during the call."""


class FrameSource(Protocol):
    """Supplies frames: from the files of a recording, or from chunked arrays."""

    def visit(self, frames: Indices, rows: tuple[int, int], use: Use) -> None:
        """Call ``use`` for successive frames, in their order, some at a time.

        Args:
            frames: indices of the frames, in any order, shape (k,).
            rows: (start, stop) along the first axis of a frame.
            use: called with the index in ``frames`` of the first of some, and their rows.

        Raises:
            Exception: a file has changed; what was visited is not to be trusted.
        """

    def copy(self, frames: Indices, rows: tuple[int, int], out: Octets) -> bool:
        """Fill ``out`` with rows of frames as they are stored; False if nothing was done.

        Args:
            frames: indices of the frames, in any order, shape (k,).
            rows: (start, stop) along the first axis of a frame.
            out: one axis, contiguous, exactly as long as the rows.

        Raises:
            Exception: a file has changed; the contents of ``out`` are undefined.
        """

    def hint(self, frames: Indices, rows: tuple[int, int]) -> None:
        """Prepare for rows of frames that are needed next; returns at once."""

    def locate(self, frames: Indices, rows: tuple[int, int]) -> tuple[Indices, Indices, int] | None:
        """Locate rows of frames in the files.

        Args:
            frames: indices of the frames, in any order, shape (k,).
            rows: (start, stop) along the first axis of a frame.

        Returns:
            Index of the file of each frame, shape (k,), or (1,) if it is one file; first byte of
            its rows, shape (k,); and their length in bytes. None if they are not stored as values.
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
        shift = _common_shift(recording)
        stored = recording.stored
        self._aligned = stored is not None and shift is not None and not shift % stored.alignment
        self._typed: tuple[Octets, int, Array] | None = None
        self._buffer = np.zeros(0, np.uint8)
        self._decoded: Array = np.zeros(0, recording.dtype)
        self._row_items = math.prod(recording.sig_shape[1:])

    def visit(self, frames: Indices, rows: tuple[int, int], use: Use) -> None:
        """See FrameSource."""
        if not len(frames):
            return
        if self._recording.stored is None:
            self._visit_packed(frames, rows, use)
            return
        files, begins, size = self._ranges_of(frames, rows, self._recording.stored)
        if self._aligned:
            self._ranges.visit(files, begins, size, partial(self._use, use))
        else:
            self._visit_copies(files, begins, size, partial(self._use, use))

    def copy(self, frames: Indices, rows: tuple[int, int], out: Octets) -> bool:
        """See FrameSource."""
        if self._recording.stored is None:
            return False
        if len(frames):
            files, begins, size = self._ranges_of(frames, rows, self._recording.stored)
            self._ranges.copy(files, begins, size, out)
        return True

    def hint(self, frames: Indices, rows: tuple[int, int]) -> None:
        """See FrameSource."""
        if len(frames) and self._recording.panels == 1:
            stored = self._recording.stored
            if stored is None:
                self._ranges.hint(*self._locate(frames), self._recording.frame_bytes)
            else:
                self._ranges.hint(*self._ranges_of(frames, rows, stored))

    def locate(self, frames: Indices, rows: tuple[int, int]) -> tuple[Indices, Indices, int] | None:
        """See FrameSource."""
        stored = self._recording.stored
        return None if stored is None else self._ranges_of(frames, rows, stored)

    def _ranges_of(
        self, frames: Indices, rows: tuple[int, int], stored: np.dtype[Any]
    ) -> tuple[Indices, Indices, int]:
        """Return the file and the first byte of each frame's rows, and their length in bytes."""
        files, begins = self._locate(frames)
        row_bytes = self._row_items * stored.itemsize
        if rows[0]:
            begins += rows[0] * row_bytes
        return files, begins, (rows[1] - rows[0]) * row_bytes

    def _space(self, size: int) -> Octets:
        if size > len(self._buffer):
            self._buffer = np.empty(size, np.uint8)
        return self._buffer[:size]

    def _locate(self, frames: Indices) -> tuple[Indices, Indices]:
        """Return the file of each frame, or the only one, and where its values begin there."""
        if len(self._ends) == 1:
            # The common case, where a search would cost as much as a small tile.
            return self._file, frames * self._stride[0] + self._offset[0]
        extent = np.searchsorted(self._ends, frames, side="right")
        first = self._firsts[extent]
        begins = self._offset[extent] + (frames - first) * self._stride[extent]
        files = self._file[extent] if self._one_file is None else self._file[:1]
        return files, begins.astype(np.int64)

    def _use(self, use: Use, first: int, octets: Octets, positions: Indices) -> None:
        """Pass on the values that begin at some bytes: in a room at multiples of their size."""
        stored = self._recording.stored
        assert stored is not None  # noqa: S101 - not packed
        shift = int(positions[0]) % stored.itemsize
        typed = self._typed
        if typed is None or typed[0] is not octets or typed[1] != shift:
            count = (len(octets) - shift) // stored.itemsize
            values = np.frombuffer(octets, stored, count, shift)
            values.flags.writeable = False
            typed = octets, shift, values
            # Memory that is made for one visit is not kept alive by the next.
            self._typed = typed if len(octets) <= _KEPT else None
        starts = positions - shift if shift else positions
        if stored.itemsize > 1:
            # Sizes are powers of two, and a division takes longer than all the rest here.
            starts = starts >> (stored.itemsize.bit_length() - 1)
        use(first, Loaded(typed[2], starts, self._row_items))

    def _visit_copies(self, files: Indices, begins: Indices, size: int, use: UseOctets) -> None:
        """Visit ranges that are always read, because they cannot be used where they are."""
        count = min(max(_PIECE // size, 1), len(begins))
        room = self._space(count * size)
        positions = np.arange(count, dtype=np.int64) * size
        for first in range(0, len(begins), count):
            part = slice(first, first + count)
            starts = begins[part]
            here = files if len(files) == 1 else files[part]
            self._ranges.copy(here, starts, size, room[: len(starts) * size])
            use(first, room, positions[: len(starts)])

    def _visit_packed(self, frames: Indices, rows: tuple[int, int], use: Use) -> None:
        """Decode whole frames, a few at a time: rows cannot be located in packed bits."""
        recording = self._recording
        pixels = math.prod(recording.sig_shape)
        step = max(_PIECE // (pixels * recording.dtype.itemsize), 1)
        for first in range(0, len(frames), step):
            flat = self._unpacked(frames[first : first + step])
            starts = np.arange(len(flat) // pixels, dtype=np.int64) * pixels
            use(first, Loaded(flat, starts + rows[0] * self._row_items, self._row_items))

    def _unpacked(self, frames: Indices) -> Array:
        """Decode frames; return their values, one axis, read-only, until the next call."""
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
        return flat

    def _decode_into(self, stored: Indices, out: Array) -> None:
        """Read and decode stored units: frames, or panels if a frame consists of them."""
        files, begins = self._locate(stored)
        size = self._recording.frame_bytes
        octets = self._space(len(stored) * size)
        self._ranges.copy(files, begins, size, octets)
        assert self._decode is not None  # noqa: S101 - packed
        self._decode(octets.reshape(len(stored), size), out)


def _common_shift(recording: Recording) -> int | None:
    """Return the misalignment of values, in bytes; None if it differs between frames."""
    if recording.stored is None:
        return None
    size = recording.stored.itemsize
    shifts = {extent.offset % size for extent in recording.extents}
    aligned = all(extent.stride % size == 0 for extent in recording.extents)
    return shifts.pop() if aligned and len(shifts) == 1 else None
