"""Gatan K2 in situ: eight sectors, one file each, in blocks of 12-bit pixels.

A frame of the detector has 1860 x 2048 pixels. Each of the eight files holds one sector of it,
1860 x 256 pixels; the sectors are the panels of the recording, side by side. The files start
independently of each other, so the sectors are aligned by the block counters in their headers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Array, Octets
from ...errors import ShapeError
from .._kernels.unpack import K2_BLOCK, unpack_k2_sector
from ..packing import Decoder, Shape
from ..recording import Extent, Hints, Recording
from .format import Format
from .layout import Found, check_shape
from .source import Source, extension

SECTORS = 8
BLOCK = 0x5758
BLOCKS = 32
"""Number of blocks in one frame of a sector."""

STRIDE = BLOCKS * BLOCK
SYNC = 0xFFFF0055
SIG_SHAPE = (1860, 256)
"""Shape of a sector in pixels."""
FRAME_SHAPE = (1860, 2048)
BLOCK_SHAPE = (930, 16)
HEADER = struct.Struct(">I4xBB6xIHHIHHHHI")
SEARCHED = 1 << 14
"""Maximum number of frames searched for the opening of the shutter."""


def _sector_bytes(sig_shape: Shape) -> int:
    if sig_shape != SIG_SHAPE:
        raise ShapeError(f"a sector has 1860 x 256 pixels, not {sig_shape}")
    return BLOCKS * K2_BLOCK


def _decode_sector(raw: Octets, stride: int, out: Array, _: Shape) -> None:
    unpack_k2_sector(raw, stride, out)


SECTOR = Decoder("k2is_sector", np.dtype("u2"), _sector_bytes, _decode_sector, SIG_SHAPE)


@dataclass(frozen=True, slots=True)
class _Block:
    shutter: bool
    count: int
    frame: int
    corner: tuple[int, int]
    """Row and column of the first pixel in the sector."""


def _block(source: Source, file: int, offset: int) -> _Block:
    octets = source.exactly(file, offset, HEADER.size, "a block header")
    sync, _, flags, count, width, height, frame, x, y, _, _, size = HEADER.unpack(octets)
    if sync != SYNC or (height, width) != SIG_SHAPE or size != BLOCK:
        raise source.fault(
            file,
            f"no block of {BLOCK} bytes of a sector of {SIG_SHAPE[0]} x {SIG_SHAPE[1]} pixels "
            "where one should begin",
            offset=offset,
            hint="Check that the file is a complete sector of a K2 in situ recording",
        )
    return _Block(bool(flags & 1), count, frame, (y, x))


def _corner(index: int) -> tuple[int, int]:
    """Return row and column of a block: from right to left, upper half first."""
    rows, columns = BLOCK_SHAPE
    return index // 16 * rows, SIG_SHAPE[1] - columns * (index % 16 + 1)


class K2is(Format):
    """Eight .bin files; an accompanying .gtg file is accepted but not read."""

    name = "k2is"
    magic = SYNC.to_bytes(4, "big")
    extensions = ("bin",)
    series = True
    decoders = (SECTOR,)

    def is_companion(self, name: str) -> bool:
        """Whether the file is a .gtg file, with metadata of the recording software."""
        return extension(name) == "gtg"

    def find(self, source: Source, hints: Hints) -> Found:
        """Find the first frame that is complete in all sectors and has the shutter open.

        Raises:
            FormatError: there are not eight sectors, or blocks are missing.
            ShapeError: sig_shape is not that of the detector, sync_offset is negative, or
                nav_shape has more positions than there are frames.
        """
        data, _ = self.split(source)
        if len(data) != SECTORS:
            raise source.fault(
                data[0] if data else 0,
                f"{len(data)} files, but a recording has {SECTORS} sectors",
                hint="Add all eight .bin files",
            )
        if hints.sig_shape not in {None, FRAME_SHAPE}:
            raise ShapeError(
                f"sig_shape {hints.sig_shape}, but a frame of eight sectors has {FRAME_SHAPE}",
                source=source.files[data[0]].name,
            )
        notes = []
        starts = _whole_frames(source, data)
        frames = min(
            (source.files[file].size - start) // STRIDE
            for file, start in zip(data, starts, strict=True)
        )
        if frames < 1:
            raise source.fault(data[0], "no frame is complete in all sectors", offset=starts[0])
        _check_ends(source, data, starts, frames)
        closed = _closed(source, data[0], starts[0], frames)
        if closed is None:
            looked = f"of the first {SEARCHED} frames none" if frames > SEARCHED else "no frame"
            notes.append(f"{looked} is marked as having the shutter open: all frames are used")
        skipped = (closed or 0) + _skip(hints)
        frames = max(frames - skipped, 0)
        if hints.nav_shape is not None:
            check_shape(hints.nav_shape, "nav_shape")
            if math.prod(hints.nav_shape) > frames:
                raise ShapeError(
                    f"nav_shape {hints.nav_shape} has more positions than the {frames} frames",
                    source=source.files[data[0]].name,
                    offset=source.files[data[0]].size,
                )
            frames = math.prod(hints.nav_shape)
        if skipped:
            notes.append(f"{skipped} frames before the scan are not used")
        return Found(
            format=self.name,
            extents=[
                Extent(file, frames, start + skipped * STRIDE, STRIDE)
                for file, start in zip(data, starts, strict=True)
            ],
            sig_shape=SIG_SHAPE,
            decoder="k2is_sector",
            dtype=np.dtype("u2"),
            frame_bytes=STRIDE,
            nav_shape=(SECTORS, frames),
            notes=notes,
        )

    def settle(self, source: Source, found: Found, hints: Hints) -> Recording:
        """Apply the hints to frames, which are found in sectors."""
        own = replace(hints, nav_shape=None, sig_shape=None, sync_offset=None)
        sectors = super().settle(source, found, own)
        scan = hints.nav_shape or sectors.nav_shape[1:]
        return replace(sectors, sig_shape=FRAME_SHAPE, nav_shape=scan, panels=SECTORS)


def _skip(hints: Hints) -> int:
    """Return the number of frames to skip in every sector, from the hints."""
    if hints.sync_offset is not None and hints.sync_offset < 0:
        raise ShapeError("sync_offset of a K2 in situ recording must not be negative")
    return hints.sync_offset or 0


def _whole_frames(source: Source, data: Sequence[int]) -> list[int]:
    """Return, per file, the byte of the first frame that is complete in all sectors."""
    firsts = [_block(source, file, 0) for file in data]
    latest = max(block.count for block in firsts)
    starts = [(latest - block.count) * BLOCK for block in firsts]
    ids = [_block(source, data[0], starts[0] + k * BLOCK).frame for k in range(BLOCKS)]
    part = next((k for k in range(BLOCKS) if ids[k] != ids[0]), 0)
    starts = [start + part * BLOCK for start in starts]
    frame = ids[part]
    for file, start in zip(data, starts, strict=True):
        for k in range(BLOCKS):
            block = _block(source, file, start + k * BLOCK)
            if (block.count, block.frame, block.corner) != (latest + part + k, frame, _corner(k)):
                raise source.fault(
                    file,
                    f"block {k} of frame {frame} should be here, with number "
                    f"{latest + part + k}; it is number {block.count} of frame {block.frame}",
                    offset=start + k * BLOCK,
                    hint="Blocks are missing; the sectors cannot be aligned",
                )
    return starts


def _check_ends(source: Source, data: Sequence[int], starts: Sequence[int], frames: int) -> None:
    """Refuse the recording if a sector lost blocks before its last frame."""
    expected = None
    for file, start in zip(data, starts, strict=True):
        offset = start + frames * STRIDE - BLOCK
        block = _block(source, file, offset)
        if expected is None:
            expected = block
        if block.count != expected.count or block.frame != expected.frame:
            raise source.fault(
                file,
                f"block number {block.count} of frame {block.frame} where "
                f"{source.files[data[0]].name} has number {expected.count} of {expected.frame}",
                offset=offset,
                hint="Blocks are missing; the sectors cannot be aligned",
            )


def _closed(source: Source, file: int, start: int, frames: int) -> int | None:
    """Count the frames before the shutter opens; None if it is closed as far as is searched."""
    for index in range(min(frames, SEARCHED)):
        if _block(source, file, start + index * STRIDE).shutter:
            return index
    return None
