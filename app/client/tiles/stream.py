"""What answers about views hold: tiles, and results of reductions."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..errors import ProtocolError
from ..transport.frames import Array, Frame, FrameAnswer, Octets
from .plan import Box, Plan, Tile
from .requests import plain

_TOKEN_LENGTH = 512
"""Characters; the contract allows 100."""
Watch: TypeAlias = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


class Memory:
    """Provides arrays for tiles: here, each has one of its own.

    Args:
        plan: of the view.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def prepare(self, box: Box) -> Array:
        """Contiguous memory for a tile that is about to arrive."""
        return np.empty(box.shape, self._plan.dtype)

    def settle(self, box: Box, values: Array) -> Array:  # noqa: ARG002 - for others
        """The array to hand out for a tile that arrived undamaged."""
        return values


class OneMemory(Memory):
    """All tiles share one buffer, each overwriting the one before."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._octets = np.empty(plan.largest, np.uint8)

    def prepare(self, box: Box) -> Array:
        """The buffer, as an array of the tile's shape."""
        return self._octets[: box.nbytes].view(self._plan.dtype).reshape(box.shape)


class InPlace(Memory):
    """Each tile goes to its place in an array of the whole view.

    Args:
        plan: of the view.
        out: the array; after a failure it may hold a damaged tile.

    Raises:
        ValueError: it has another shape or dtype, or is read-only.
    """

    def __init__(self, plan: Plan, out: Array) -> None:
        super().__init__(plan)
        if out.shape != plan.shape or out.dtype != plan.dtype:
            raise ValueError(
                f"out is {out.dtype.str} {list(out.shape)}, "
                f"but the view is {plan.dtype.str} {list(plan.shape)}"
            )
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        self._out = out
        self._one = OneMemory(plan)

    def prepare(self, box: Box) -> Array:
        """The place itself if it is contiguous, else a buffer."""
        place = self._out[box.slices]
        return place if place.flags.c_contiguous else self._one.prepare(box)

    def settle(self, box: Box, values: Array) -> Array:
        """The place, filled."""
        place = self._out[box.slices]
        if not place.flags.c_contiguous:
            place[...] = values
        return place


def memory_for(plan: Plan, out: Array | None) -> Memory:
    """Memory in an array of the whole view, or an array per tile.

    Raises:
        ValueError: the array does not fit.
    """
    return Memory(plan) if out is None else InPlace(plan, out)


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


def reduction_json(reduction: str | Mapping[str, Any]) -> str | dict[str, Any]:
    """A reduction as JSON values, given as such or in short, as the service reads it.

    ``com`` is the centre of mass, ``disk:32,30,10`` a disk about the pixel (32, 30) with a radius
    of 10, ``annulus:32,30,10,20`` an annulus from a radius of 10 to 20, ``rectangle:10,40,20,50``
    rows 10 to 39 and columns 20 to 49; ``com:disk:32,30,10`` is the centre of mass of the pixels of
    a disk. The weights of a detector may be an array.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(reduction, str):
        return reduction
    if not isinstance(reduction, Mapping):
        raise TypeError(
            f"a reduction is a name such as 'com' or a dict, not a {type(reduction).__name__}:"
            " frames are chosen by a view, pixels weighed by a detector's weights"
        )
    reduction = dict(reduction)
    if isinstance(detectors := reduction.get("detectors"), list | tuple):
        reduction["detectors"] = [_with_weights(detector) for detector in detectors]
    if "detector" in reduction:
        reduction["detector"] = _with_weights(reduction["detector"])
    content: dict[str, Any] = plain(reduction)
    return content


def _with_weights(detector: Any) -> Any:  # noqa: ANN401 - as in the contract, or nearly
    weights = detector.get("weights") if isinstance(detector, Mapping) else None
    if weights is None or isinstance(weights, Mapping):
        return detector
    if isinstance(weights, np.ma.MaskedArray | str | os.PathLike):
        raise TypeError(
            f"weights are a plain array, not {type(weights).__name__}: np.load(path), filled(0)"
        )
    weights = np.asarray(weights)
    image = {"dtype": weights.dtype.str, "shape": list(weights.shape)}
    data = base64.b64encode(weights.tobytes()).decode()
    return {**detector, "weights": {**image, "data": data}}


class Results(dict[str, Array]):
    """Arrays by name; a name that is none is told the others."""

    def __missing__(self, name: str) -> Array:
        raise KeyError(f"there is no result {name!r}: there are {', '.join(self)}")


class ReductionReader(FrameAnswer[None, str]):
    """The results of one answer.

    Args:
        watch: called whenever the service reports how far it is.

    Attributes:
        results: arrays by name.
    """

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self.results: dict[str, Array] = Results()

    def _data(self, frame: Frame) -> None:
        name = frame.header.get("name")
        if not isinstance(name, str) or name in self.results:
            raise ProtocolError(f"a result has the name {name}")
        try:
            array = str(frame.header["arrays"][0]["name"])
        except (IndexError, KeyError, TypeError) as e:
            raise ProtocolError("a frame does not describe its array") from e
        self.results[name] = frame.array(array)

    def _finish(self, header: Mapping[str, Any]) -> None:
        self.end = str(header.get("reason"))

    def _beat(self, header: Mapping[str, Any]) -> None:
        done, total = header.get("done"), header.get("of")
        if self._watch is not None and isinstance(done, int) and isinstance(total, int):
            self._watch(done, total)
