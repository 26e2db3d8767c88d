"""Frames: the units of an answer that can be checked, and resumed after."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

import numpy.typing as npt
import orjson
import xxhash

Buffers = list[bytes | memoryview]
"""Bytes to be written one buffer after the other."""

MAGIC = b"TWG1"
MORE = 1
"""Flag: the frames up to the next one without it belong together."""

_HEAD = struct.Struct("<4sBBHIQ")


class FrameKind(IntEnum):
    """What a frame is."""

    DATA = 1
    EPOCH = 2
    END = 3
    ERROR = 4
    HEARTBEAT = 5


class FrameWriter:
    """Numbers the frames of one answer."""

    def __init__(self) -> None:
        self._sequence = 0

    def frame(
        self,
        kind: FrameKind,
        header: dict[str, Any],
        payload: bytes | memoryview = b"",
        *,
        more: bool = False,
    ) -> list[bytes | memoryview]:
        """A frame as buffers to be written one after the other; the payload uncopied."""
        text = orjson.dumps(header)
        head = _HEAD.pack(MAGIC, kind, MORE if more else 0, 0, len(text), len(payload))
        number = struct.pack("<I", self._sequence)
        check = xxhash.xxh3_64(head + number)
        check.update(text)
        check.update(payload)
        self._sequence += 1
        return [head + struct.pack("<Q", check.intdigest()) + number + text, payload]


def describe_array(name: str, array: npt.NDArray[Any], offset: int = 0) -> dict[str, Any]:
    """An array as a frame's header names it; ``offset`` in the payload."""
    dtype: Any = array.dtype.str if array.dtype.names is None else array.dtype.descr
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(array.shape),
        "offset": offset,
        "nbytes": array.nbytes,
    }
