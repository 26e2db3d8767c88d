"""Frames taken apart from their description alone: nothing here is the service's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

DATA, END, ERROR, HEARTBEAT = 1, 3, 4, 5


class Frame(NamedTuple):
    kind: int
    more: bool
    header: dict[str, Any]
    payload: bytes


class FrameReader:
    """Bytes of one answer in, its frames out."""

    def __init__(self) -> None:
        self._data = b""
        self._sequence = 0
        self.over = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._data += data
        while len(self._data) >= 32:
            magic, kind, flags, zero, text, size, check, number = struct.unpack_from(
                "<4sBBHIQQI", self._data
            )
            body = self._data[32 : 32 + text + size]
            if len(body) < text + size:
                return
            assert (magic, zero, number) == (b"TWG1", 0, self._sequence)
            assert flags in {0, 1}
            assert not self.over, "a frame behind the end"
            covered = self._data[:20] + self._data[28:32] + body
            assert check == xxhash.xxh3_64_intdigest(covered), "the checksum is wrong"
            self._data = self._data[32 + text + size :]
            self._sequence += 1
            self.over = kind in {END, ERROR}
            yield Frame(kind, bool(flags), json.loads(body[:text]), body[text:])

    def close(self) -> None:
        assert self.over, "the answer has no end"
        assert not self._data, "bytes behind the end"


class Received:
    """The rows of whole groups, and where to go on behind them; over several answers."""

    def __init__(self) -> None:
        self.tables: dict[str, bytes] = {}
        self.dtypes: dict[str, np.dtype[np.void]] = {}
        self.token: str | None = None
        self.offset = 0
        self.end: dict[str, Any] | None = None
        self.problem: dict[str, Any] | None = None
        self._group: list[Frame] = []

    def take(self, frame: Frame) -> None:
        header = frame.header
        if frame.kind == DATA:
            (array,) = header["arrays"]
            dtype = np.dtype([tuple(field) for field in header["dtype"]])
            assert (array["name"], array["offset"]) == ("rows", 0)
            assert array["nbytes"] == len(frame.payload) == dtype.itemsize * array["shape"][0]
            self.dtypes[header["report"]] = dtype
            self._group.append(frame)
            if frame.more:
                # The place is the one before the group, perhaps behind events without rows.
                assert header["offset"] >= self.offset
                return
        elif frame.kind == END:
            self.end = header
            if header["reason"] != "complete":
                self._group.clear()
        elif frame.kind == ERROR:
            self._group.clear()
            self.problem = header["problem"]
        self._settle(header)

    def _settle(self, header: dict[str, Any]) -> None:
        for frame in self._group:
            report = frame.header["report"]
            self.tables[report] = self.tables.get(report, b"") + frame.payload
        self._group.clear()
        self.token, self.offset = header["token"], header["offset"]

    def drop_group(self) -> None:
        """The answer was cut: what is not whole comes again."""
        self._group.clear()

    def rows(self, report: str) -> npt.NDArray[np.void]:
        return np.frombuffer(self.tables[report], self.dtypes[report])


def read_frames(body: bytes) -> Received:
    """A whole answer."""
    reader, received = FrameReader(), Received()
    for frame in reader.feed(body):
        received.take(frame)
    reader.close()
    return received
