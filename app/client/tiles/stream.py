"""The tiles of an answer, and which of them to ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ProtocolError
from ..transport.answers import FrameAnswer
from ..transport.frames import Array, Frame, Octets
from .memory import Memory
from .plan import Box, Plan, Tile

_TOKEN_LENGTH = 512
"""Characters; the contract allows 100."""


class TileReader(FrameAnswer[Tile, str]):
    """The tiles of one answer, each checked against the plan before it gets memory.

    Args:
        plan: of the view.
        first: index of the tile that must come first; None if only the token knows.
        memory: for the values.

    Attributes:
        end: reason why the answer ended: ``complete``, ``count`` or ``drain``.
    """

    def __init__(self, plan: Plan, first: int | None, memory: Memory) -> None:
        self._plan = plan
        self._next = first
        self._memory_of_tiles = memory
        self._arriving: tuple[Box, Array] | None = None

    def _memory(self, header: dict[str, Any], size: int) -> Octets:
        box = self._box(header)
        described = {"shape": list(box.shape), "dtype": self._plan.dtype.str}
        array = {**described, "name": "data", "offset": 0, "nbytes": box.nbytes}
        arrays = header.get("arrays")
        if (
            size != box.nbytes
            or not _has(header, {**described, "origin": list(box.origin)})
            or not isinstance(arrays, list)
            or len(arrays) != 1
            or not _has(arrays[0], array)
        ):
            raise ProtocolError(f"tile {box.index} came as {str(header)[:400]}, not {array}")
        values = self._memory_of_tiles.prepare(box)
        self._arriving = (box, values)
        return values.reshape(-1).view("u1")

    def _box(self, header: Mapping[str, Any]) -> Box:
        index = header.get("tile")
        if not isinstance(index, int) or isinstance(index, bool):
            raise ProtocolError("a frame does not say which tile it holds")
        if self._next is not None and index != self._next:
            raise ProtocolError(f"tile {index} came where {self._next} was due")
        if not 0 <= index < self._plan.tiles:
            raise ProtocolError(f"tile {index} came, but there are {self._plan.tiles}")
        return self._plan.box(index)

    def _data(self, frame: Frame) -> Tile:
        assert self._arriving is not None  # noqa: S101 - its payload has been placed
        token = frame.header.get("token")
        if not isinstance(token, str) or not 0 < len(token) <= _TOKEN_LENGTH:
            raise ProtocolError("a frame does not say where to resume")
        (box, values), self._arriving = self._arriving, None
        self._next = box.index + 1
        data = self._memory_of_tiles.settle(box, values)
        return Tile(box.index, box.origin, box.shape, data, token)

    def _finish(self, header: Mapping[str, Any]) -> None:
        totals = (header.get("tiles"), header.get("nbytes"))
        if totals != (self._plan.tiles, self._plan.nbytes):
            raise ProtocolError(f"the end is that of another view: {totals}")
        reason = header.get("reason")
        if reason == "complete" and self._next not in {None, self._plan.tiles}:
            raise ProtocolError(f"the answer claims to be complete before tile {self._next}")
        self.end = str(reason)


def _has(entry: Any, members: Mapping[str, Any]) -> bool:  # noqa: ANN401 - JSON
    return isinstance(entry, dict) and all(entry.get(k) == v for k, v in members.items())


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream of tiles begins.

    Attributes:
        token: to begin with; None for the first tile.
        tile: index of the tile that comes first; None if only the token knows.
    """

    token: str | None = None
    tile: int | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tiles of a view, one after the other.

    Attributes:
        plan: of the view.
        start: where to begin.
        limit: number of tiles; None for all.
        memory: for the values.

    Raises:
        ValueError: the limit is negative.
    """

    plan: Plan
    start: Start
    limit: int | None
    memory: Memory

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError("the number of tiles cannot be negative")
