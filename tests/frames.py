"""The one reader of frames in these tests, written from their description alone.

Nothing here is the service's or its client's, so that neither can hide a change of the
format. :class:`FrameReader` takes the bytes of one answer as they arrive,
:class:`Received` puts together the rows of a loss stream over several answers.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import xxhash

Kind = Literal["DATA", "EPOCH", "END", "ERROR", "HEARTBEAT"]

_PREFIX = struct.Struct("<4sBBHIQQI")
_KINDS: dict[int, Kind] = dict(enumerate(get_args(Kind), 1))


class Frame(NamedTuple):
    """A unit of an answer.

    Attributes:
        kind: the name of its kind.
        more: whether the next DATA frame belongs to the same group.
        header: its JSON object.
        payload: the bytes of its arrays.
    """

    kind: Kind
    more: bool
    header: dict[str, Any]
    payload: bytes

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """The one array of a frame of rows, as the header describes it."""
        (array,) = self.header["arrays"]
        assert array["name"] == "rows"
        assert (array["offset"], array["nbytes"]) == (0, len(self.payload))
        assert array["dtype"] == self.header["dtype"]
        rows = np.frombuffer(self.payload, np.dtype([tuple(field) for field in array["dtype"]]))
        assert list(rows.shape) == array["shape"] == self.header["shape"]
        return rows


class FrameReader:
    """Bytes of one answer in, its frames out, each checked.

    Attributes:
        over: whether the answer has ended, with END or ERROR.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._sequence = 0
        self.over = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with these bytes."""
        self._data += data
        frames: list[Frame] = []
        at = 0
        while (end := self._end(at)) <= len(self._data):
            frames.append(self._frame(bytes(self._data[at:end])))
            at = end
        del self._data[:at]
        return frames

    def _end(self, at: int) -> int:
        """Where the frame that begins here ends, at the earliest."""
        middle = at + _PREFIX.size
        if middle > len(self._data):
            return middle
        *_, header, payload, _, _ = _PREFIX.unpack_from(self._data, at)
        return int(middle + header + payload)

    def _frame(self, data: bytes) -> Frame:
        magic, kind, flags, zero, header, _, check, sequence = _PREFIX.unpack_from(data)
        assert (magic, zero, sequence) == (b"TWG1", 0, self._sequence)
        assert flags in {0, 1}
        assert not self.over, "a frame after the end"
        covered = data[:20] + data[28:]
        assert check == xxhash.xxh3_64_intdigest(covered), "the checksum is wrong"
        self._sequence += 1
        name = _KINDS[kind]
        self.over = name in {"END", "ERROR"}
        middle = _PREFIX.size + header
        return Frame(name, bool(flags), json.loads(data[_PREFIX.size : middle]), data[middle:])

    def close(self) -> None:
        """Check that the answer was whole."""
        assert self.over, "the answer has no end"
        assert not self._data, "bytes after the end"


def read_frames(data: bytes) -> list[Frame]:
    """The frames of an answer that may be cut: its last bytes may be no frame."""
    return FrameReader().feed(data)


class Received:
    """Rows of complete groups, and the position after them; over several answers.

    Attributes:
        tables: rows by report.
        dtypes: of the rows.
        token: where to go on.
        offset: the byte of the stream it stands for.
        end: header of the last END.
        problem: of the last ERROR.
    """

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
        if frame.kind == "DATA":
            self.dtypes[header["report"]] = frame.rows.dtype
            self._group.append(frame)
            if frame.more:
                # The position is the one before the group, perhaps after events without rows.
                assert header["offset"] >= self.offset
                return
        elif frame.kind == "END":
            self.end = header
            if header["reason"] != "complete":
                self._group.clear()
        elif frame.kind == "ERROR":
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
        """Forget the rows of a group that was cut: they come again."""
        self._group.clear()

    def rows(self, report: str) -> npt.NDArray[np.void]:
        return np.frombuffer(self.tables[report], self.dtypes[report])


def receive(body: bytes) -> Received:
    """A whole answer with the rows of a loss stream."""
    reader, received = FrameReader(), Received()
    for frame in reader.feed(body):
        received.take(frame)
    reader.close()
    return received


def rows_of_frames(frames: list[Frame]) -> dict[str, bytes]:
    """Rows of complete groups by report, of an answer that may be cut."""
    received = Received()
    for frame in frames:
        received.take(frame)
    return received.tables
