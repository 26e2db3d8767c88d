"""Frames, read back by the few lines the README gives readers."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import xxhash

from app.losses.encoding import rows_header
from app.streams.frames import FrameKind, FrameWriter, describe_array

DTYPE = np.dtype([("EventId", "<i4"), ("Loss", "<f4")])


def test_a_frame_reads_back() -> None:
    rows = np.array([(1, 2.5), (2, 3.5)], DTYPE)
    writer = FrameWriter()
    writer.frame(FrameKind.HEARTBEAT, {})
    header = rows_header("melt", rows) | {"token": "t"}
    octets = b"".join(writer.frame(FrameKind.DATA, header, rows.view("u1").data, more=True))
    magic, kind, flags, zero, length, size, check, number = struct.unpack_from("<4sBBHIQQI", octets)
    assert (magic, kind, flags, zero, number) == (b"TWG1", 1, 1, 0, 1)
    assert xxhash.xxh3_64_intdigest(octets[:20] + octets[28:]) == check
    head = json.loads(octets[32 : 32 + length])
    payload = octets[32 + length :]
    assert len(payload) == size == head["arrays"][0]["nbytes"]
    assert head["shape"] == [2]
    dtype = np.dtype([tuple(field) for field in head["dtype"]])
    assert np.array_equal(np.frombuffer(payload, dtype), rows)


def test_frames_are_frozen() -> None:
    kinds = {"DATA": 1, "EPOCH": 2, "END": 3, "ERROR": 4, "HEARTBEAT": 5}
    assert {kind.name: kind.value for kind in FrameKind} == kinds
    writer = FrameWriter()
    octets = b"".join(writer.frame(FrameKind.END, {"reason": "complete"}))
    prefix = "5457473103000000150000000000000000000000963035f6eec7da5900000000"
    assert octets == bytes.fromhex(prefix) + b'{"reason":"complete"}'
    octets = b"".join(writer.frame(FrameKind.DATA, {}, b"rows", more=True))
    assert (
        octets
        == bytes.fromhex("54574731010100000200000004000000000000005d2861c6ce72d7cd01000000")
        + b"{}rows"
    )


def test_an_array_is_described_with_its_place() -> None:
    about = {"name": "x", "dtype": "<f8", "shape": [2, 3], "offset": 5, "nbytes": 48}
    assert describe_array("x", np.zeros((2, 3)), 5) == about
    assert describe_array("x", np.zeros((2, 3))) == about | {"offset": 0}


@pytest.mark.parametrize("at", [0, 4, 5, 8, 12, 28, 33, 60, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    rows = np.array([(1, 2.5)], DTYPE)
    frame = FrameWriter().frame(FrameKind.DATA, rows_header("melt", rows), rows.view("u1").data)
    octets = bytearray(b"".join(frame))
    (check,) = struct.unpack_from("<Q", octets, 20)
    octets[at] ^= 1
    assert xxhash.xxh3_64_intdigest(bytes(octets[:20] + octets[28:])) != check
