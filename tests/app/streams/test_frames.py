"""Frames, read back by the few lines the README gives readers."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import xxhash

from app.losses.encoding import rows_header
from app.streams.frames import FrameKind, FrameWriter

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


@pytest.mark.parametrize("at", [0, 4, 5, 8, 12, 28, 33, 60, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    rows = np.array([(1, 2.5)], DTYPE)
    frame = FrameWriter().frame(FrameKind.DATA, rows_header("melt", rows), rows.view("u1").data)
    octets = bytearray(b"".join(frame))
    (check,) = struct.unpack_from("<Q", octets, 20)
    octets[at] ^= 1
    assert xxhash.xxh3_64_intdigest(bytes(octets[:20] + octets[28:])) != check
