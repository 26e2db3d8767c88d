"""Codecs of zarr chunks, undone within bounds that are known beforehand.

A chunk of a known shape and type decodes to a known number of bytes. Decompressors are asked for
that many and one more, so that a chunk that would give more is found out at once, whatever its
header says: 33 kB of gzip can hold gigabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from backports.zstd import ZstdDecompressor, ZstdError, get_frame_info, get_frame_size
from isal import isal_zlib
from numcodecs import blosc, zstd

from ..wire import RefusedError

Array = npt.NDArray[Any]
Octets = bytes | bytearray | memoryview
Undo = Callable[[Octets, int], Octets]
"""Undoes a codec: takes bytes, and how many it may give at most."""

_GZIP = 31
"""The wbits of zlib that mean gzip."""
_CRC_BYTES = 4
_BLOSC_HEAD = 16
_MAX_MEMBERS = 10_000
"""Gzip members or zstd frames per chunk."""


def max_encoded(nbytes: int) -> int:
    """Return the maximum size of anything that encodes ``nbytes``."""
    return 2 * nbytes + (1 << 16)


def preload() -> None:
    """Decode a chunk with each library."""
    octets = bytes(range(100)) * 10
    blosc.set_nthreads(1)
    for name in ("lz4", "zstd", "zlib", "blosclz", "lz4hc"):
        _blosc(blosc.compress(octets, name.encode(), 1, 1), len(octets))
    _gzip(isal_zlib.compress(octets, 1, _GZIP), len(octets))
    _fill_zstd(zstd.compress(octets, 1), memoryview(bytearray(len(octets))))
    google_crc32c.value(octets)


@dataclass(frozen=True, slots=True)
class Chain:
    """The codecs of an array or of a shard, in the order in which they encode."""

    transposes: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]
    """Type of the values as stored, with their byte order."""
    compressors: tuple[Undo, ...]
    fixed: int | None
    """Bytes that the compressors add to the values; None if that depends on the values."""

    def decode(self, octets: Octets, shape: Sequence[int], room: Array | None = None) -> Array:
        """Decode one chunk.

        Args:
            octets: the chunk as stored.
            shape: shape of the chunk.
            room: C-contiguous array of this shape, in native byte order, to decode into where
                that is possible; its contents are undefined otherwise.

        Returns:
            The values: ``room`` if they are in it.

        Raises:
            RefusedError: the bytes are not a chunk of this shape.
        """
        stored = list(shape)
        for order in self.transposes:
            stored = [stored[axis] for axis in order]
        nbytes = math.prod(stored) * self.dtype.itemsize
        for undo in self.compressors[:0:-1]:
            octets = undo(octets, max_encoded(nbytes))
        if self.compressors:
            # The first compressor gives the values, and so exactly their size.
            undo = self.compressors[0]
            if undo is _zstd:  # straight to where the values belong, without a copy
                plain = not self.transposes and self.dtype.isnative
                if room is None or not plain:
                    room = np.empty(stored, self.dtype)
                if _fill_zstd(octets, room.reshape(-1).view(np.uint8).data):
                    return room if plain else self._transposed(room)
            octets = undo(octets, nbytes)
        if len(octets) != nbytes:
            raise RefusedError(f"it has {len(octets)} bytes instead of {nbytes}")
        return self._transposed(np.frombuffer(octets, self.dtype).reshape(stored))

    def _transposed(self, values: Array) -> Array:
        for order in self.transposes[::-1]:
            values = values.transpose(np.argsort(order).tolist())
        return values


def parse_chain(codecs: Any, dtype: np.dtype[Any], dimensions: int) -> Chain:  # noqa: ANN401 - JSON
    """Build a chain from the metadata of an array.

    Raises:
        RefusedError: a codec is unknown, misplaced or misconfigured.
    """
    transposes: list[tuple[int, ...]] = []
    compressors: list[Undo] = []
    stored: np.dtype[Any] | None = None
    fixed: int | None = 0
    for codec in codecs if isinstance(codecs, list) else [None]:
        name = codec.get("name") if isinstance(codec, Mapping) else codec
        configuration = codec.get("configuration") if isinstance(codec, Mapping) else None
        options: Mapping[str, Any] = configuration if isinstance(configuration, Mapping) else {}
        if name == "transpose" and stored is None:
            transposes.append(_order(options.get("order"), dimensions))
        elif name == "bytes" and stored is None:
            stored = _stored(dtype, options.get("endian"))
        elif name in _COMPRESSORS and stored is not None:
            compressors.append(_COMPRESSORS[name])
            fixed = None if fixed is None or name != "crc32c" else fixed + _CRC_BYTES
        else:
            raise RefusedError(f"the codec {str(name)[:60]!r} is unknown, or not in its place")
    if stored is None:
        raise RefusedError("the codecs lack one named bytes")
    return Chain(tuple(transposes), stored, tuple(compressors), fixed)


def _order(value: Any, dimensions: int) -> tuple[int, ...]:  # noqa: ANN401 - JSON
    if not isinstance(value, list) or sorted(map(str, value)) != sorted(
        map(str, range(dimensions))
    ):
        raise RefusedError(
            f"the order {str(value)[:60]} of a transpose is not a permutation of the axes"
        )
    return tuple(int(axis) for axis in value)


def _stored(dtype: np.dtype[Any], endian: Any) -> np.dtype[Any]:  # noqa: ANN401 - JSON
    if endian not in {"little", "big"} and (endian is not None or dtype.itemsize > 1):
        raise RefusedError(f"the byte order is {str(endian)[:60]!r} instead of little or big")
    return dtype.newbyteorder(">" if endian == "big" else "<")


def _gzip(octets: Octets, bound: int) -> Octets:
    """Decompress all members of a gzip file; zeros may follow each."""
    return _members(octets, bound, ("gzip", b"\0"), partial(isal_zlib.decompressobj, wbits=_GZIP))


def _zstd(octets: Octets, bound: int) -> Octets:
    """Decompress all frames."""
    return _members(bytes(octets), bound, ("zstd", b""), ZstdDecompressor)


def _members(
    octets: Octets, bound: int, form: tuple[str, bytes], begin: Callable[[], Any]
) -> Octets:
    """Decompress members that follow each other.

    Args:
        octets: the members.
        bound: maximum number of bytes that they decompress to.
        form: name of the format, and the padding that may follow a member.
        begin: makes the decompressor of a member.
    """
    name, padding = form
    pieces: list[bytes] = []
    left = bound + 1
    for _ in range(_MAX_MEMBERS):
        member = begin()
        try:
            pieces.append(member.decompress(octets, left))
        except (isal_zlib.error, ZstdError) as e:  # type: ignore[misc]  # a stub is wrong
            raise RefusedError(f"{name}: {e}") from e
        left -= len(pieces[-1])
        if left <= 0:
            raise RefusedError(f"it decompresses to more than {bound} bytes")
        if not member.eof:
            raise RefusedError(f"{name}: it is cut")
        octets = member.unused_data.lstrip(padding)
        if not octets:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _fill_zstd(octets: Octets, room: memoryview) -> bool:
    """Decompress a single frame that says it has the size of the room; False if it is none."""
    try:
        if get_frame_size(octets) != len(octets):
            return False
        if get_frame_info(octets).decompressed_size != len(room):
            return False
        zstd.decompress(octets, room)
    except (ZstdError, RuntimeError, ValueError):
        return False  # decompressed by the other way, it tells the fault
    return True


def _blosc(octets: Octets, bound: int) -> Octets:
    head = bytes(octets[:_BLOSC_HEAD])
    nbytes = int.from_bytes(head[4:8], "little")
    encoded = int.from_bytes(head[12:16], "little")
    if len(head) < _BLOSC_HEAD or encoded > len(octets):
        raise RefusedError("blosc: it is cut")
    if nbytes > bound:
        raise RefusedError(f"it decompresses to more than {bound} bytes")
    try:
        return memoryview(blosc.decompress(bytes(octets)))
    except (RuntimeError, ValueError) as e:
        raise RefusedError(f"blosc: {e}") from e


def _crc32c(octets: Octets, _bound: int) -> Octets:
    data, checksum = bytes(octets[:-_CRC_BYTES]), bytes(octets[-_CRC_BYTES:])
    if len(checksum) < _CRC_BYTES or google_crc32c.value(data) != int.from_bytes(
        checksum, "little"
    ):
        raise RefusedError("its checksum is wrong")
    return data


_COMPRESSORS: dict[str, Undo] = {"gzip": _gzip, "zstd": _zstd, "blosc": _blosc, "crc32c": _crc32c}
