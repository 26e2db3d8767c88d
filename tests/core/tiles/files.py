"""Files in memory, read the way the formats read them, and their frames by plain slicing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from core.arrays import Indices
from core.tiles.corrections import Corrections
from core.tiles.formats import DECODERS, parse
from core.tiles.frames import FileFrames, UseOctets
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import FileInfo, Hints, Recording
from core.tiles.view import parse_view

Files = Mapping[str, bytes]
LARGEST_READ = 1 << 24


class Memory:
    """A reader of files in memory that refuses to be asked for much at once."""

    def __init__(self, contents: list[bytes], sizes: list[int]) -> None:
        self._contents = contents
        self._sizes = sizes
        self.requests = 0

    def read(self, file: int, start: int, stop: int) -> bytes:
        """Bytes of a file; what a size promises and the content lacks is zero."""
        assert 0 <= start <= stop
        self.requests += 1
        stop = min(stop, self._sizes[file])
        assert stop - start <= LARGEST_READ
        return self._contents[file][start:stop].ljust(max(stop - start, 0), b"\0")


def opened(files: Files, sizes: Mapping[str, int] | None = None) -> tuple[list[FileInfo], Memory]:
    """What a caller passes for these files; ``sizes`` makes some look longer."""
    real = [(sizes or {}).get(name, len(content)) for name, content in files.items()]
    infos = [FileInfo(name, size) for name, size in zip(files, real, strict=True)]
    return infos, Memory(list(files.values()), real)


def read(files: Files, hints: Hints | None = None, name: str | None = None) -> Recording:
    """Understand files in memory."""
    infos, memory = opened(files)
    return parse(infos, memory, hints, name=name)


def frames_of(files: Files, recording: Recording) -> npt.NDArray[Any]:
    """All frames, (frames, *sig_shape), sliced out of the bytes one by one."""
    contents = list(files.values())
    pieces = [
        contents[extent.file][at : at + recording.frame_bytes]
        for extent in recording.extents
        for at in range(extent.offset, extent.offset + extent.frames * extent.stride, extent.stride)
    ]
    assert all(len(piece) == recording.frame_bytes for piece in pieces)
    shape = (len(pieces), *recording.panel_shape)
    if recording.stored is not None:
        assert recording.decoder is None
        assert recording.stored.newbyteorder("=") == recording.dtype
        return np.frombuffer(b"".join(pieces), recording.stored).reshape(shape)
    assert recording.decoder is not None
    decoder = DECODERS[recording.decoder]
    assert decoder.dtype == recording.dtype
    assert decoder.frame_bytes(recording.panel_shape) == recording.frame_bytes
    out = np.empty((len(pieces), math.prod(recording.panel_shape)), recording.dtype)
    raw = np.frombuffer(bytearray(b"".join(pieces)), np.uint8)
    decoder.decode(raw, recording.frame_bytes, out, recording.panel_shape)
    panels = out.reshape(recording.panels, -1, *shape[1:])
    return np.concatenate(list(panels), axis=-1)


class Ranges:
    """The contents of files as a source of ranges, in memory.

    Ranges are visited in place, or in pieces of a few bytes that the last ones overwrite.
    """

    def __init__(self, contents: Sequence[bytes], *, in_place: bool = True, piece: int = 1) -> None:
        self._arrays = [np.frombuffer(content, np.uint8) for content in contents]
        self._in_place = in_place
        self._piece = piece

    def copy(self, files: Indices, starts: Indices, size: int, out: npt.NDArray[np.uint8]) -> None:
        assert len(out) == len(starts) * size
        for k, (file, start) in enumerate(zip(self._all(files, starts), starts, strict=True)):
            piece = self._arrays[file][start : start + size]
            assert len(piece) == size, "a range lies outside of its file"
            out[k * size : (k + 1) * size] = piece

    def visit(self, files: Indices, starts: Indices, size: int, use: UseOctets) -> None:
        files = self._all(files, starts)
        step = max(self._piece // size, 1)
        room = np.empty(step * size, np.uint8)
        first = 0
        while first < len(files):
            same = np.flatnonzero(files[first:] != files[first])
            last = first + int(same[0]) if len(same) else len(files)
            octets = self._arrays[files[first]]
            assert starts[first:last].max() + size <= len(octets)
            if self._in_place:
                use(first, octets, starts[first:last])
            else:
                last = min(last, first + step)
                begins = starts[first:last]
                self.copy(files[first:last], begins, size, room[: len(begins) * size])
                use(first, room, np.arange(len(begins), dtype=np.int64) * size)
            first = last

    def hint(self, files: Indices, starts: Indices, size: int) -> None:
        assert starts.max() + size <= min(len(self._arrays[file]) for file in files)

    @staticmethod
    def _all(files: Indices, starts: Indices) -> Indices:
        assert len(files) in {1, len(starts)}
        return np.broadcast_to(files, len(starts))


def tiles_of(
    files: Files, recording: Recording, spec: dict[str, Any] | None = None
) -> npt.NDArray[Any]:
    """A view, read tile by tile."""
    plan = make_plan(recording, parse_view(spec or {}))

    def decode(octets: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
        decoder, size = DECODERS[str(recording.decoder)], recording.frame_bytes
        decoder.decode(octets.reshape(-1), size, out.reshape(len(out), -1), recording.panel_shape)

    frames = FileFrames(recording, Ranges(list(files.values())), decode)
    reader = TileReader(plan, recording, frames, Corrections(recording.sig_shape))
    made = np.zeros(plan.shape, plan.dtype)
    for k in range(plan.tiles):
        tile = plan.tile(k)
        made[tuple(slice(a, b) for a, b in tile.box)] = reader.read(tile)
    return made
