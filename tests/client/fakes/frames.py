"""Building frames, as the service does."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from xxhash import xxh3_64_intdigest

from app.client.transport.frames import Frame, FrameReader, Kind, Memory, Octets

DATA, EPOCH, END, ERROR, HEARTBEAT = 1, 2, 3, 4, 5

Frames: TypeAlias = list[tuple[int, dict[str, Any], bytes]]
"""Kind, header and payload of each frame of an answer."""


def frame(
    kind: int, header: Mapping[str, Any] | bytes, payload: bytes, number: int, flags: int = 0
) -> bytes:
    """One frame; a header given as bytes is sent as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    head = struct.pack("<4sBBHIQ", b"TWG1", kind, flags, 0, len(text), len(payload))
    tail = struct.pack("<I", number)
    checksum = xxh3_64_intdigest(head + tail + text + payload)
    return head + struct.pack("<Q", checksum) + tail + text + payload


def octets(frames: Frames) -> bytes:
    """A whole answer."""
    return b"".join(frame(*each, number) for number, each in enumerate(frames))


def with_beats(frames: Frames) -> Frames:
    """The same frames with a HEARTBEAT before each of them."""
    return [one for each in frames for one in ((HEARTBEAT, {"token": None}, b""), each)]


def own_array(_kind: Kind, _header: dict[str, Any], size: int) -> Octets:
    """Memory of its own for each payload."""
    return np.empty(size, np.uint8)


class BytesReader(FrameReader):
    """Reads frames from bytes that are there already."""

    def __init__(self, memory: Memory = own_array) -> None:
        super().__init__(memory)

    def receive(self, data: bytes | memoryview) -> list[Frame]:
        """Feed bytes; the frames they complete."""
        frames = []
        view = memoryview(data)
        while view:
            target = self.buffer()
            count = min(len(target), len(view))
            target[:count] = view[:count]
            frame = self.advance(count)
            if frame is not None:
                frames.append(frame)
            view = view[count:]
        return frames
