"""Frames: how rows, tiles and batches travel. Bytes in, frames out, no input or output.

A frame is a prefix of 32 bytes, a JSON header and a payload. Numbers are little endian::

    byte  0    4     5      6         8          12         20         28
          │TWG1│kind │flags │reserved │ header   │ payload  │ checksum │ sequence │
          │    │ u8  │ u8   │  u16    │ size u32 │ size u64 │   u64    │   u32    │
          ├────┴─────┴──────┴─────────┴──────────┴──────────┴──────────┴──────────┤
          │ header: JSON, UTF-8: token, arrays (name, dtype, shape, offset, nbytes)│
          ├───────────────────────────────────────────────────────────────────────┤
          │ payload: the arrays, as they lie in memory                            │
          └───────────────────────────────────────────────────────────────────────┘

The checksum (xxh3-64) covers the prefix without itself, the header and the payload, and
frames of an answer are numbered from 0: damage, loss and reordering are all noticed.

``FrameReader`` is driven the unusual way round. It is not given bytes; it *names the memory*
the next bytes belong in (``buffer``) and is told how many arrived (``advance``). So a payload
goes from the socket straight into the array it becomes: an array of its own, or its place in
the array of a whole view. With ``feed(bytes)`` every tile would be copied twice.

That memory has to be allocated before the checksum can be verified. A ``memory`` callback
therefore sees the kind, the header and the size first and refuses what it did not expect.
What it decides on is untrusted until the frame is returned.
"""

from __future__ import annotations

import enum
import itertools
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64

from ..errors import ProblemError, ProtocolError

T = TypeVar("T")
E = TypeVar("E")
Array: TypeAlias = npt.NDArray[Any]
Octets: TypeAlias = npt.NDArray[np.uint8]
Rows: TypeAlias = npt.NDArray[np.void]

_PREFIX = struct.Struct("<4sBBHIQQI")
_MAGIC = b"TWG1"
_MORE = 1
_CHECKSUM = slice(20, 28)

_MAX_HEADER = 1 << 20
"""Bytes; real headers have a few hundred. A damaged prefix must not ask for gigabytes."""
_MAX_PAYLOAD = 1 << 31
"""Bytes; servers flush rows after a few megabytes."""


class Kind(enum.IntEnum):
    """What a frame is for."""

    DATA = 1
    EPOCH = 2
    END = 3
    ERROR = 4
    HEARTBEAT = 5


Memory: TypeAlias = Callable[[Kind, dict[str, Any], int], Octets]
"""Where the payload of a frame goes, given its kind, header and size in bytes. It may raise
ProtocolError; the checksum has not been verified yet."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, its checksum verified.

    Attributes:
        kind: of the frame.
        more: whether the next frame belongs to the same group.
        header: the JSON header.
        payload: its bytes, shape (n,).
    """

    kind: Kind
    more: bool
    header: dict[str, Any]
    payload: Octets

    def array(self, name: str) -> Array:
        """An array of the payload, by name; a view, not a copy.

        Raises:
            ProtocolError: there is no such array, or its description is wrong.
        """
        try:
            (entry,) = (a for a in self.header["arrays"] if a["name"] == name)
            start, size = int(entry["offset"]), int(entry["nbytes"])
            octets = self.payload[start : start + size]
            if start < 0 or len(octets) != size:
                raise ProtocolError("an array lies outside its frame")
            return octets.view(parse_dtype(entry["dtype"])).reshape(entry["shape"])
        except (KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"a frame does not describe its {name}: {e}") from e


def parse_dtype(description: Any) -> np.dtype[Any]:  # noqa: ANN401 - JSON
    """A dtype as frames describe it: numpy's short text, or a list of the fields of a record.

    Raises:
        ProtocolError: it is not a dtype, or its values are not plain bytes.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(_described(description))
    except (TypeError, ValueError, SyntaxError, RecursionError) as e:
        raise ProtocolError(f"this is not a dtype: {str(description)[:80]}") from e
    if dtype.hasobject or not dtype.itemsize or dtype.subdtype is not None:
        raise ProtocolError(f"values cannot have the dtype {str(description)[:80]}")
    return dtype


def _described(description: Any) -> Any:  # noqa: ANN401 - JSON
    """Replace the lists of JSON by the tuples that numpy expects.

    Raises:
        TypeError: it is not a description.
    """
    if isinstance(description, str):
        return description
    if not isinstance(description, list) or not description:
        raise TypeError("neither text nor a list")
    return [(str(n), _described(kind), *map(tuple, shape)) for n, kind, *shape in description]


class FrameReader:
    """Splits the bytes of an answer into frames.

    Args:
        memory: allocates payloads.
    """

    def __init__(self, memory: Memory) -> None:
        self._prefix = np.empty(_PREFIX.size, np.uint8)
        self._steps = _read_frames(self._prefix, memory)
        self._target = self._prefix.data

    def buffer(self) -> memoryview:
        """The memory the next bytes belong in; never empty, never beyond the current frame."""
        return self._target

    def advance(self, count: int) -> Frame | None:
        """Account for bytes that were written into the buffer.

        Args:
            count: of bytes.

        Returns:
            The frame they complete, or None.

        Raises:
            ProtocolError: magic, kind, sequence, sizes or checksum are wrong.
        """
        self._target = self._target[count:]
        while not len(self._target):
            step = next(self._steps)
            if isinstance(step, Frame):
                self._target = self._prefix.data
                return step
            self._target = step
        return None


def _read_frames(prefix: Octets, memory: Memory) -> Iterator[memoryview | Frame]:
    """Yield the memory to fill next, once the last one is full; and each frame then complete.

    Between two frames it is the prefix that has to be filled.
    """
    for number in itertools.count():
        kind, header_size, size = _sizes(prefix, number)
        header = np.empty(header_size, np.uint8)
        yield header.data
        parsed = _parsed(header, number)
        payload = memory(kind, parsed, size)
        yield payload.data
        text = prefix.tobytes()
        _, _, flags, _, _, _, checksum, _ = _PREFIX.unpack(text)
        digest = xxh3_64(text[: _CHECKSUM.start] + text[_CHECKSUM.stop :])
        digest.update(header.data)
        digest.update(payload.data)
        if digest.intdigest() != checksum:
            raise ProtocolError(f"frame {number} is damaged: its checksum is wrong")
        yield Frame(kind, bool(flags & _MORE), parsed, payload)


def _sizes(prefix: Octets, number: int) -> tuple[Kind, int, int]:
    """Kind of a frame, and bytes of its header and payload."""
    magic, kind, _, _, header, payload, _, sequence = _PREFIX.unpack(prefix.data)
    if magic != _MAGIC or kind not in Kind._value2member_map_:
        raise ProtocolError("the answer is not made of frames")
    if sequence != number:
        raise ProtocolError(f"frame {sequence} came where {number} was due")
    if header > _MAX_HEADER or payload > _MAX_PAYLOAD:
        raise ProtocolError(f"frame {sequence} claims to have {header} + {payload} bytes")
    return Kind(kind), header, payload


def _parsed(header: Octets, number: int) -> dict[str, Any]:
    try:
        parsed = json.loads(header.tobytes() or b"{}")
    except ValueError as e:
        raise ProtocolError(f"the header of frame {number} is not JSON") from e
    if not isinstance(parsed, dict):
        raise ProtocolError(f"the header of frame {number} is not an object")
    return parsed


def error_of(header: Mapping[str, Any]) -> ProblemError:
    """The error that an ERROR frame reports.

    Raises:
        ProtocolError: its header does not describe one.
    """
    problem = header.get("problem")
    if not isinstance(problem, dict):
        raise ProtocolError("an ERROR frame does not say what is wrong")
    status = problem.get("status", 500)
    if not isinstance(status, int):
        raise ProtocolError("an ERROR frame has no status")
    position = {"token": header.get("token"), "resume_offset": header.get("offset")}
    return ProblemError(status, position | problem)


class FrameAnswer(ABC, Generic[T, E]):
    """Checks and interprets the frames of one answer.

    HEARTBEAT frames may come between any two others and mean nothing more than that the
    service is at work. An END frame is the last; without one the answer was cut.

    Attributes:
        end: how the answer ended, once it has.
    """

    end: E | None = None

    def allocate(self, kind: Kind, header: dict[str, Any], size: int) -> Octets:
        """Memory for a payload: what FrameReader asks for before it reads one.

        Raises:
            ProtocolError: this frame must not come here.
        """
        if self.end is not None and kind is not Kind.HEARTBEAT:
            raise ProtocolError("frames came after the end")
        if kind is Kind.DATA:
            return self._memory(header, size)
        if size:
            raise ProtocolError(f"a frame {kind.name} has a payload")
        return np.empty(0, np.uint8)

    def take(self, frame: Frame) -> T | None:
        """The item that a frame holds or completes, if any.

        Raises:
            ProblemError: it is an ERROR frame.
            ProtocolError: it is malformed, or must not come here.
        """
        if frame.kind is Kind.HEARTBEAT:
            self._beat(frame.header)
            return None
        if self.end is not None:
            raise ProtocolError("frames came after the end")
        if frame.kind is Kind.ERROR:
            raise error_of(frame.header)
        if frame.kind is Kind.END:
            return self._finish(frame.header)
        if frame.kind is Kind.EPOCH:
            return self._epoch()
        return self._data(frame)

    def _memory(self, header: dict[str, Any], size: int) -> Octets:  # noqa: ARG002 - for others
        """Memory for the payload of a DATA frame, whose checksum is not verified yet."""
        return np.empty(size, np.uint8)

    @abstractmethod
    def _data(self, frame: Frame) -> T | None:
        """Take a DATA frame."""

    @abstractmethod
    def _finish(self, header: Mapping[str, Any]) -> T | None:
        """Take the END frame: set ``end``."""

    def _epoch(self) -> T | None:
        raise ProtocolError("an EPOCH frame came where there are no epochs")

    def _beat(self, header: Mapping[str, Any]) -> None:
        """Take a HEARTBEAT frame."""
