"""Gatan K2 in situ: eight sectors, one file each, in blocks of 12-bit pixels.

A frame of the detector has 1860 x 2048 pixels. Each of the eight files holds one sector of it,
1860 x 256 pixels; the sectors are the panels of the recording, side by side. The files start
independently of each other, so the sectors are aligned by the block counters in their headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...arrays import Array, Octets
from ...errors import ShapeError
from .._kernels.unpack import K2_BLOCK, unpack_k2_sector
from ..packing import Decoder, Shape
from ..recording import Extent, Hints, Recording
from .files import Check, File, Files, Values, extension
from .format import Format, Found, check_shape

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
HEADER = np.dtype(
    {
        "names": ["sync", "flags", "count", "width", "height", "frame", "x", "y", "size"],
        "formats": [">u4", "u1", ">u4", ">u2", ">u2", ">u4", ">u2", ">u2", ">u4"],
        "offsets": [0, 9, 16, 20, 22, 24, 28, 30, 36],
        "itemsize": 40,
    }
)
CHECKS = (
    Check(
        "sync",
        lambda v: (v["sync"], v["height"], v["width"], v["size"]) == (SYNC, *SIG_SHAPE, BLOCK),
        f"no block of {BLOCK} bytes of a sector of {SIG_SHAPE[0]} x {SIG_SHAPE[1]} pixels "
        "where one should begin",
        "Check that the file is a complete sector of a K2 in situ recording",
    ),
)
SEARCHED = 1 << 14
"""Maximum number of frames searched for the opening of the shutter."""


def _sector_bytes(sig_shape: Shape) -> int:
    if sig_shape != SIG_SHAPE:
        raise ShapeError(f"a sector has 1860 x 256 pixels, not {sig_shape}")
    return BLOCKS * K2_BLOCK


def _decode_sector(raw: Octets, stride: int, out: Array, _: Shape) -> None:
    unpack_k2_sector(raw, stride, out)


SECTOR = Decoder("k2is_sector", np.dtype("u2"), _sector_bytes, _decode_sector, SIG_SHAPE)


def _block(file: File, offset: int) -> Values:
    return file.record(HEADER, offset, "a block header", CHECKS)


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
    numbered = True
    decoders = (SECTOR,)

    def is_companion(self, name: str) -> bool:
        """Whether the file is a .gtg file, with metadata of the recording software."""
        return extension(name) == "gtg"

    def find(self, files: Files, hints: Hints) -> Found:
        """Find the first frame that is complete in all sectors and has the shutter open.

        Raises:
            FormatError: there are not eight sectors, or blocks are missing.
            ShapeError: sig_shape is not that of the detector.
        """
        sectors, first = files.frames, files.first
        if len(sectors) != SECTORS:
            raise first.fault(
                f"{len(sectors)} files, but a recording has {SECTORS} sectors",
                hint="Add all eight .bin files",
            )
        if hints.sig_shape not in {None, FRAME_SHAPE}:
            raise ShapeError(
                f"sig_shape {hints.sig_shape}, but a frame of eight sectors has {FRAME_SHAPE}",
                source=first.name,
            )
        starts = _whole_frames(sectors)
        frames = min(
            (file.size - start) // STRIDE for file, start in zip(sectors, starts, strict=True)
        )
        if frames < 1:
            raise first.fault("no frame is complete in all sectors", starts[0])
        _check_ends(sectors, [start + frames * STRIDE - BLOCK for start in starts])
        closed = _closed(first, starts[0], frames)
        if closed is None:
            looked = f"of the first {SEARCHED} frames none" if frames > SEARCHED else "no frame"
            files.notes.append(
                f"{looked} is marked as having the shutter open: all frames are used"
            )
        skipped = closed or 0
        frames -= skipped
        if skipped:
            files.notes.append(f"{skipped} frames before the shutter opens are not used")
        return Found(
            extents=[
                Extent(file.index, frames, start + skipped * STRIDE, STRIDE)
                for file, start in zip(sectors, starts, strict=True)
            ],
            sig_shape=SIG_SHAPE,
            stored=SECTOR.dtype,
            decoder=SECTOR,
            nav_shape=(SECTORS, frames),
        )

    def settle(self, files: Files, found: Found, hints: Hints) -> Recording:
        """Apply the hints to frames, which are found in sectors."""
        own = replace(hints, nav_shape=None, sig_shape=None)
        sectors = super().settle(files, found, own)
        if hints.nav_shape is not None:
            check_shape(hints.nav_shape, "nav_shape")
        scan = hints.nav_shape or sectors.nav_shape[1:]
        return replace(sectors, sig_shape=FRAME_SHAPE, nav_shape=scan, panels=SECTORS)


def _whole_frames(sectors: Sequence[File]) -> list[int]:
    """Return, per file, the byte of the first frame that is complete in all sectors."""
    counts = [_block(file, 0)["count"] for file in sectors]
    latest = max(counts)
    starts = [(latest - count) * BLOCK for count in counts]
    ids = [_block(sectors[0], starts[0] + k * BLOCK)["frame"] for k in range(BLOCKS)]
    part = next((k for k in range(BLOCKS) if ids[k] != ids[0]), 0)
    starts = [start + part * BLOCK for start in starts]
    frame = ids[part]
    for file, start in zip(sectors, starts, strict=True):
        for k in range(BLOCKS):
            block = _block(file, start + k * BLOCK)
            found = block["count"], block["frame"], (block["y"], block["x"])
            if found != (latest + part + k, frame, _corner(k)):
                raise file.fault(
                    f"block {k} of frame {frame} should be here, with number "
                    f"{latest + part + k}; it is number {block['count']} of frame "
                    f"{block['frame']}",
                    start + k * BLOCK,
                    "Blocks are missing; the sectors cannot be aligned",
                )
    return starts


def _check_ends(sectors: Sequence[File], offsets: Sequence[int]) -> None:
    """Refuse the recording if a sector lost blocks before its last one, at these bytes."""
    expected = _block(sectors[0], offsets[0])
    for file, offset in zip(sectors, offsets, strict=True):
        block = _block(file, offset)
        if (block["count"], block["frame"]) != (expected["count"], expected["frame"]):
            raise file.fault(
                f"block number {block['count']} of frame {block['frame']} where "
                f"{sectors[0].name} has number {expected['count']} of {expected['frame']}",
                offset,
                "Blocks are missing; the sectors cannot be aligned",
            )


def _closed(file: File, start: int, frames: int) -> int | None:
    """Count the frames before the shutter opens; None if it is closed as far as is searched."""
    for index in range(min(frames, SEARCHED)):
        if _block(file, start + index * STRIDE)["flags"] & 1:
            return index
    return None
