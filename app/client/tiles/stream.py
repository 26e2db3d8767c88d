"""Streams of tiles: what to do next, given what has happened. No input or output."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError, data_changed
from ..losses.rows import error_of
from ..transport.effects import Ask, Call, Drop, Effect, Finish, Receive, Sleep, Steps
from ..transport.frames import Frame, FrameReader, Kind
from ..transport.refusals import checked, refused
from ..transport.requests import Head, Reply, token_request
from ..transport.retry import Backoff
from .plan import Array, Box, Plan, Tile
from .requests import TileRequests

_STATUS_OK = 200
_TOKEN_LENGTH = 512
"""Characters; the contract has 100."""

Octets = npt.NDArray[np.uint8]


class Memory(Protocol):
    """Where the values of tiles go."""

    def prepare(self, box: Box) -> Array:
        """Contiguous memory for a tile that is about to come."""

    def settle(self, box: Box, values: Array) -> Array:
        """The tile has come and is right; what to hand out."""


class OwnMemory:
    """Each tile has an array of its own."""

    def __init__(self, plan: Plan) -> None:
        self._dtype = plan.dtype

    def prepare(self, box: Box) -> Array:
        """An array."""
        return np.empty(box.shape, self._dtype)

    def settle(self, box: Box, values: Array) -> Array:  # noqa: ARG002 - of Memory
        """The same array."""
        return values


class OneMemory:
    """All tiles use the same memory, one after the other."""

    def __init__(self, plan: Plan) -> None:
        self._octets = np.empty(plan.largest, np.uint8)
        self._dtype = plan.dtype

    def prepare(self, box: Box) -> Array:
        """The memory, as an array of the tile's shape."""
        return self._octets[: box.nbytes].view(self._dtype).reshape(box.shape)

    def settle(self, box: Box, values: Array) -> Array:  # noqa: ARG002 - of Memory
        """The same array."""
        return values


class InPlace:
    """Tiles go to their places in an array of the whole view.

    Args:
        plan: of the view.
        out: the array; what is read before a fault may be in it.

    Raises:
        ValueError: it is of another shape or type, or cannot be written.
    """

    def __init__(self, plan: Plan, out: Array) -> None:
        if out.shape != plan.shape or out.dtype != plan.dtype:
            raise ValueError(
                f"out is {out.dtype.str} {list(out.shape)}, "
                f"but the view is {plan.dtype.str} {list(plan.shape)}"
            )
        if not out.flags.writeable:
            raise ValueError("out cannot be written")
        self._out = out
        self._plan = plan
        self._one: OneMemory | None = None

    def prepare(self, box: Box) -> Array:
        """The place itself if it has no gaps."""
        place = self._out[box.slices]
        if place.flags.c_contiguous:
            return place
        if self._one is None:
            self._one = OneMemory(self._plan)
        return self._one.prepare(box)

    def settle(self, box: Box, values: Array) -> Array:
        """The place, filled."""
        place = self._out[box.slices]
        if not place.flags.c_contiguous:
            place[...] = values
        return place


@dataclass(frozen=True, slots=True)
class TilesEnd:
    """How an answer ended: ``complete``, ``count`` or ``drain``."""

    reason: str


class TileReader:
    """The tiles of one answer, each checked before there is memory for it.

    Args:
        plan: of the view.
        first: tile that must come first; None if only the token knows.
        memory: where values go.

    Attributes:
        end: how the answer ended, once it has.
    """

    def __init__(self, plan: Plan, first: int | None, memory: Memory) -> None:
        self._plan = plan
        self._next = first
        self._memory = memory
        self._coming: tuple[Box, Array] | None = None
        self.end: TilesEnd | None = None

    def place(self, kind: Kind, header: Mapping[str, Any], size: int) -> Octets:
        """Where a payload goes: what FrameReader asks for.

        Raises:
            ProtocolError: this frame may not come here.
        """
        if self.end is not None and kind is not Kind.HEARTBEAT:
            raise ProtocolError("frames came behind the end")
        if kind is not Kind.DATA:
            if size:
                raise ProtocolError(f"a frame {kind.name} has a payload")
            return np.empty(0, np.uint8)
        box = self._box(header)
        about = {"shape": list(box.shape), "dtype": self._plan.dtype.str}
        array = {**about, "name": "data", "offset": 0, "nbytes": box.nbytes}
        told = header.get("arrays")
        if (
            size != box.nbytes
            or not _says(header, {**about, "origin": list(box.origin)})
            or not isinstance(told, list)
            or len(told) != 1
            or not _says(told[0], array)
        ):
            raise ProtocolError(f"tile {box.index} came as {str(dict(header))[:400]}, not {array}")
        values = self._memory.prepare(box)
        self._coming = (box, values)
        return values.reshape(-1).view(np.uint8)

    def _box(self, header: Mapping[str, Any]) -> Box:
        index = header.get("tile")
        if not isinstance(index, int) or isinstance(index, bool):
            raise ProtocolError("a frame does not say which tile it has")
        if self._next is not None and index != self._next:
            raise ProtocolError(f"tile {index} came where {self._next} was due")
        if not 0 <= index < self._plan.tiles:
            raise ProtocolError(f"tile {index} came, but there are {self._plan.tiles}")
        return self._plan.box(index)

    def take(self, frame: Frame) -> Tile | None:
        """The tile of a frame that is whole, or None.

        Raises:
            ProblemError: it is an ERROR frame.
            ProtocolError: it does not say what it must, or may not come here.
        """
        if frame.kind is Kind.HEARTBEAT:
            return None
        if frame.kind is Kind.ERROR:
            raise error_of(frame.header)
        if frame.kind is Kind.END:
            self._finish(frame.header)
            return None
        if frame.kind is not Kind.DATA or self._coming is None:
            raise ProtocolError(f"{frame.kind.name} frames are not for tiles")
        token = frame.header.get("token")
        if not isinstance(token, str) or not 0 < len(token) <= _TOKEN_LENGTH:
            raise ProtocolError("a frame does not say where to go on from")
        (box, values), self._coming = self._coming, None
        self._next = box.index + 1
        return Tile(box.index, box.origin, box.shape, self._memory.settle(box, values), token)

    def _finish(self, header: Mapping[str, Any]) -> None:
        told = (header.get("tiles"), header.get("nbytes"))
        if told != (self._plan.tiles, self._plan.nbytes):
            raise ProtocolError(f"the end is that of another view: {told}")
        reason = header.get("reason")
        if reason == "complete" and self._next not in {None, self._plan.tiles}:
            raise ProtocolError(f"the answer is said to be complete before tile {self._next}")
        self.end = TilesEnd(str(reason))


def _says(told: Any, wanted: Mapping[str, Any]) -> bool:  # noqa: ANN401 - JSON
    return isinstance(told, dict) and all(told.get(k) == v for k, v in wanted.items())


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins.

    Attributes:
        token: to begin with; None for the first tile.
        tile: that comes first; None if only the token knows.
    """

    token: str | None = None
    tile: int | None = None


class TileStream:
    """Streams tiles until the last one wanted was handed out.

    Args:
        requests: builds what to send.
        plan: of the view.
        start: where to begin.
        most: tiles wanted; None for all.
        memory: where values go.
        backoff: decides on other tries.

    Attributes:
        token: what goes on behind the last tile that was handed out.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        requests: TileRequests,
        plan: Plan,
        start: Start,
        most: int | None,
        memory: Memory,
        backoff: Backoff,
    ) -> None:
        if most is not None and most < 0:
            raise ValueError("less than no tiles are wanted")
        self.plan = plan
        self.token = start.token
        self._next = 0 if start.token is None else start.tile
        self._left = most
        self._requests = requests
        self._memory = memory
        self._backoff = backoff
        self._renewed = False
        self._ended = False

    @property
    def done(self) -> bool:
        """Whether every tile wanted was handed out."""
        return self._ended or self._left == 0

    def run(self) -> Steps:
        """The effects.

        Raises:
            ProblemError: the service refused, or the data has changed.
            ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
        """
        while not self.done:
            before = self.token
            try:
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                yield Drop()
                if self.token != before:
                    self._backoff.progressed()
                    self._renewed = False
                if isinstance(error, ConnectionFailed) and self._has_all():
                    return
                yield from self._recover(error)

    def _has_all(self) -> bool:
        """Whether nothing but the end can be missing."""
        return self._left == 0 or self._next == self.plan.tiles

    def _attempt(self) -> Steps:
        head: Head = yield Ask(self._requests.stream(self.token, self._left))
        if head.status != _STATUS_OK:
            yield from refused(head)
        tiles = head.headers.get("thalweg-tiles")
        if tiles is not None and tiles != str(self.plan.tiles):
            raise data_changed(f"the view had {self.plan.tiles} tiles and has {tiles[:20]} now")
        before = self.token
        end = yield from self._take_frames()
        if end.reason == "complete":
            self._ended = True
        elif end.reason == "drain":
            self._check_drained()
        elif end.reason != "count" or self._left is None:
            raise ProtocolError(f"the answer ended with {end.reason}")
        elif self._left and self.token == before:
            raise ProtocolError("the answer holds no tile")
        else:
            self._backoff.progressed()

    def _check_drained(self) -> None:
        if self._left != 0:
            raise ConnectionFailed("the server is stopping")

    def _take_frames(self) -> Generator[Effect, Any, TilesEnd]:
        reader = TileReader(self.plan, self._next, self._memory)
        frames = FrameReader(reader.place)
        while reader.end is None:
            count: int = yield Receive(frames.buffer())
            if not count:
                raise ProtocolError("the answer was cut: it has no end")
            frame = frames.advance(count)
            tile = reader.take(frame) if frame else None
            if tile is not None:
                self._note(tile)
                yield tile
        yield Finish()
        return reader.end

    def _note(self, tile: Tile) -> None:
        if self._left is not None:
            if not self._left:
                raise ProtocolError("more tiles came than were asked for")
            self._left -= 1
        self._next = tile.index + 1
        self.token = tile.token

    def _recover(self, error: ThalwegError) -> Steps:
        """Make ready for another try, or raise the fault."""
        code = error.code if isinstance(error, ProblemError) else ""
        if code == "token-retired" and self.token is not None and not self._renewed:
            self._renewed = True
            reply: Reply = yield Call(token_request("refresh", self.token))
            self.token = checked(reply).text("token")
            return
        yield Sleep(self._backoff.delay(error))
