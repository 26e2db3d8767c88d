"""Frames: the units of an answer on the wire, each checked and each a point to resume.

An HTTP answer that breaks off may still look whole, and bytes alone tell neither where a
record ends nor how to continue. A frame does: it states its lengths and a checksum, and its
header carries the token that continues *after* it. All numbers are little endian:

     0        4     5      6       8              12                      20
    +--------+-----+------+-------+--------------+-----------------------+
    | "TWG1" | kind| flags|   0   | header bytes | payload bytes         |
    +--------+-----+------+-------+--------------+-----------------------+
     20                            28             32
    +-----------------------------+--------------+
    | checksum                    | sequence     |
    +-----------------------------+--------------+
     32
    +----------------+-------------------------------------------------- -
    | header (JSON)  | payload
    +----------------+-------------------------------------------------- -

Kind and flags are one byte each, the zero and the lengths 2, 4 and 8 bytes, the sequence 4.
The checksum is the xxh3-64 of everything else: bytes 0 to 20, 28 to 32, header and payload.
The sequence counts the frames of one answer from 0, so that a lost or repeated frame shows
even where all checksums are right.

A stream is any number of DATA frames, with EPOCH and HEARTBEAT frames between them, and
then one END, with a reason, or one ERROR, with a problem document; without either it is
truncated. The flag MORE ties a frame to the next one, for rows of the same events: a client
may use them only together.

The prefix has a fixed size and the payload comes last and uncopied, so that a writer needs
one small buffer per frame, and a reader can receive arrays straight into place. JSON keeps
the header open to new members; it is read once per frame, not once per row.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

import orjson
import xxhash

from core.arrays import Array

Buffers = list[bytes | memoryview]
"""Bytes to be written, one buffer after the other."""

MAGIC = b"TWG1"
MORE = 1
"""Flag: this frame is valid only together with the next."""

_HEAD = struct.Struct("<4sBBHIQ")


class FrameKind(IntEnum):
    """The kind of a frame."""

    DATA = 1
    EPOCH = 2
    END = 3
    ERROR = 4
    HEARTBEAT = 5


class FrameWriter:
    """Encodes the frames of one answer."""

    def __init__(self) -> None:
        self._sequence = 0

    def frame(
        self,
        kind: FrameKind,
        header: dict[str, Any],
        *payload: bytes | memoryview,
        more: bool = False,
    ) -> Buffers:
        """Encode the next frame; its last buffers are those of the payload themselves.

        Args:
            kind: kind of the frame.
            header: JSON members.
            payload: bytes after the header, in pieces.
            more: whether the frame is valid only together with the next.
        """
        text = orjson.dumps(header)
        size = sum(map(len, payload))
        head = _HEAD.pack(MAGIC, kind, MORE if more else 0, 0, len(text), size)
        number = struct.pack("<I", self._sequence)
        check = xxhash.xxh3_64(head + number)
        check.update(text)
        for piece in payload:
            check.update(piece)
        self._sequence += 1
        return [head + struct.pack("<Q", check.intdigest()) + number + text, *payload]


def describe_array(name: str, array: Array, offset: int = 0) -> dict[str, Any]:
    """Describe an array in a frame's header; ``offset`` is in bytes of the payload."""
    dtype: Any = array.dtype.str if array.dtype.names is None else array.dtype.descr
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(array.shape),
        "offset": offset,
        "nbytes": array.nbytes,
    }
