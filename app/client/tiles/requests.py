"""Views as Python describes them; requests about datasets, views, tiles and reductions."""

from __future__ import annotations

import base64
import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from ..transport.requests import Request, json_request, path_of, query_of

Range: TypeAlias = slice | Sequence[int]
"""A slice, or (start, stop) or (start, stop, step)."""
Index: TypeAlias = int | Range
"""One position of an axis, or a range of them."""


class ViewOptions(TypedDict, total=False):
    """Options of a view; at most one of the first five, which select frames."""

    select: Mapping[str, Any]
    """A selection as in the contract, such as ``{"all": True}``."""
    frames: Iterable[int]
    """Flat indices, in this order."""
    mask: npt.ArrayLike
    """Bool, one value per position of the scan."""
    nav: int | slice | Sequence[Index]
    """An index or a slice for each axis of the scan, as in NumPy, but none goes beyond the axis,
    and an index keeps it, with a length of 1; missing ones are taken whole."""
    shuffle: int
    """Seed of a random order of all frames."""
    sig: slice | Sequence[Range]
    """A slice for each axis of a frame; missing ones are taken whole."""
    bin: Mapping[Literal["nav", "sig"], int]
    """Edge of the blocks to sum, such as ``{"nav": 2, "sig": 4}``."""
    tile_shape: Sequence[int]
    """One length per axis, or frames first and then one per axis of a frame."""
    target_bytes: int
    """Approximate size of a tile, instead of a shape."""
    dtype: npt.DTypeLike
    casting: Literal["safe", "wrap", "clip"]
    corrections: bool
    sync_offset: int
    missing: Literal["skip", "zero", "nan"]


_LONGEST_TARGET = 60_000
"""Characters of an address; services take a request line and headers of 64 KiB."""
_SELECTIONS = ("select", "frames", "mask", "nav", "shuffle")
_VERBATIM = ("bin", "target_bytes", "casting", "corrections", "sync_offset", "missing")


class ViewSpec:
    """A view, as JSON values once the shape of the dataset is known.

    Raises:
        TypeError: there is no such option.
        ValueError: options exclude each other, or one is wrong.
    """

    def __init__(self, options: ViewOptions) -> None:
        unknown = set(options) - ViewOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"there is no option {min(unknown)}")
        values = {name: value for name, value in options.items() if value is not None}
        forms = [name for name in _SELECTIONS if name in values]
        if len(forms) > 1:
            raise ValueError(f"{' and '.join(forms)} exclude each other")
        self._json: dict[str, Any] = {
            name: plain(values[name]) for name in _VERBATIM if name in values
        }
        if "tile_shape" in values:
            self._json["tile_shape"] = _integers(values["tile_shape"], "tile_shape")
        if "dtype" in values:
            self._json["dtype"] = dtype_text(values["dtype"])
        self._mask_shape = np.asarray(values["mask"]).shape if "mask" in values else None
        self._ranges = {name: _ranges(values[name]) for name in ("nav", "sig") if name in values}
        if any(isinstance(axis, int) for axis in self._ranges.get("sig", ())):
            raise ValueError("sig takes a slice per axis, as (slice(32, 96), slice(0, 64))")
        for form in forms:
            if form in _SELECT:
                self._json["select"] = _SELECT[form](values[form])

    @property
    def needs_shape(self) -> bool:
        """Whether the shape of the dataset must be known."""
        return bool(self._ranges) or self._mask_shape is not None

    def json(self, nav_shape: tuple[int, ...], sig_shape: tuple[int, ...]) -> dict[str, Any]:
        """The view as JSON values.

        Args:
            nav_shape: of the dataset, if needed.
            sig_shape: of the dataset, if needed.

        Raises:
            IndexError: an index or a slice goes beyond an axis.
            ValueError: there are more than there are axes, or a mask has another shape.
        """
        spec = dict(self._json)
        if self._mask_shape not in {None, nav_shape}:
            raise ValueError(
                f"the mask has the shape {self._mask_shape}, and the scan {tuple(nav_shape)}"
            )
        if "nav" in self._ranges:
            nav = _resolved(self._ranges["nav"], nav_shape, "nav")
            spec["select"] = {"nav": [list(axis) for axis in nav]}
        if "sig" in self._ranges:
            sig = _resolved(self._ranges["sig"], sig_shape, "sig")
            if any(step != 1 for _, _, step in sig):
                raise ValueError("sig has no steps: bin sums neighbouring pixels")
            spec["sig"] = [[start, stop] for start, stop, _ in sig]
        return spec


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON, or nearly
    """Replace values of numpy and pathlib by JSON values."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value


def dtype_text(dtype: Any) -> str:  # noqa: ANN401 - as numpy takes it
    """A numpy type string.

    Raises:
        TypeError: there is no such type.
    """
    try:
        return str(np.dtype(dtype).str)
    except (TypeError, ValueError, SyntaxError) as e:
        raise TypeError(f"dtype is {dtype!r}, which is no type: try '<f4' or 'uint16'") from e


def _integers(value: Any, name: str) -> list[int]:  # noqa: ANN401 - anything iterable
    lists = isinstance(value, Iterable) and not isinstance(value, np.ndarray)
    array = np.asarray(list(value) if lists else value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a list of integers (pass a mask as mask)")
    return [int(item) for item in array.tolist()]


def _integer(value: Any, name: str) -> int:  # noqa: ANN401 - anything
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r:.80}, not an integer")
    return operator.index(value)


def _mask(value: Any) -> str:  # noqa: ANN401 - an array
    mask = np.asarray(value)
    if mask.dtype != np.bool_:
        raise ValueError(
            f"a mask must be bool, not {mask.dtype}: pass image > 0, or a list as frames"
        )
    return base64.b64encode(np.packbits(mask.reshape(-1)).tobytes()).decode()


_SELECT: Mapping[str, Callable[[Any], Any]] = {
    "select": plain,
    "frames": lambda value: {"frames": _integers(value, "frames")},
    "mask": lambda value: {"mask": _mask(value)},
    "shuffle": lambda value: {"shuffle": {"seed": _integer(value, "shuffle")}},
}
"""Selections of frames as JSON values, but ``nav``, which needs the shape of the dataset."""


def _ranges(value: Any) -> list[Index]:  # noqa: ANN401 - one or several
    axes = [value] if isinstance(value, slice) or not isinstance(value, Iterable) else list(value)
    # As NumPy would read them, not as JSON, whose ranges are lists in a list.
    if isinstance(value, tuple) and any(isinstance(axis, list | np.ndarray) for axis in axes):
        raise TypeError("nav and sig take an index or a slice per axis; dataset[[0, 5], 7] a list")
    return [
        axis if isinstance(axis, slice | Sequence) else _integer(axis, "an index") for axis in axes
    ]


def _resolved(ranges: list[Index], shape: tuple[int, ...], name: str) -> list[tuple[int, int, int]]:
    if len(ranges) > len(shape):
        hint = "; a range is slice(5, 7)" if any(isinstance(axis, int) for axis in ranges) else ""
        kind = "the scan: those of a frame are sig" if name == "nav" else "a frame"
        raise ValueError(f"{name} has {len(ranges)} indices for {len(shape)} axes of {kind}{hint}")
    resolved = []
    missing: list[Index] = [slice(None)] * (len(shape) - len(ranges))
    for number, (index, length) in enumerate(zip([*ranges, *missing], shape, strict=True)):
        axis = _slice(index, length, name)
        for bound in (axis.start, axis.stop):
            if bound is not None and not -length <= bound <= length:
                raise IndexError(
                    f"{name} goes to {bound} along axis {number}, which has a length of {length}"
                )
        resolved.append(axis.indices(length))
    return resolved


def _slice(index: Index, length: int, name: str) -> slice:
    """A position or range of an axis as a slice that goes forward."""
    if isinstance(index, int):
        if not -length <= index < length:
            raise IndexError(f"{name} has the index {index}, but positions are 0 to {length - 1}")
        return slice(index % length, index % length + 1)
    if not isinstance(index, slice):
        if len(index) not in {2, 3}:
            raise ValueError(f"{name} takes (start, stop) or (start, stop, step) per axis")
        index = slice(*map(int, index))
    if (1 if index.step is None else index.step) < 1:
        raise ValueError(f"{name} only goes forward: steps must be positive")
    return index


@dataclass(frozen=True, slots=True)
class TileRequests:
    """Builds the requests for one view.

    Attributes:
        dataset: its id.
        view: as JSON values.
    """

    dataset: str
    view: Mapping[str, Any]

    def _post(self, route: str, **query: object) -> Request:
        path = path_of("datasets", self.dataset, route)
        return json_request(path + query_of(**query), self.view)

    def plan(self, after: str | None = None) -> Request:
        """Ask for the shapes of the view and its tiles; of the data that a token is of."""
        return self._post("plan", count=0, after=after)

    def keep(self) -> Request:
        """Have the service keep the view under an id."""
        return self._post("views")

    def stream(self, after: str | None, limit: int | None) -> Request:
        """Ask for the tiles after a token, or for some of them."""
        return self._post("tiles", after=after, max_tiles=limit)

    def tile_head(self, view: str, index: int) -> Request:
        """Ask for the headers of a tile, such as its token, without its values."""
        # Every tag matches: the answer is 304 and has no body.
        target = path_of("datasets", self.dataset, "views", view, "tiles", str(index))
        return Request("GET", target, {"If-None-Match": "*"})

    def raw(self, view: str) -> Request:
        """Ask for the values of all tiles."""
        return Request("GET", path_of("datasets", self.dataset, "views", view, "raw"))

    def reduce(self, reduction: str | Mapping[str, Any]) -> Request:
        """Ask for the results of a reduction of the view."""
        content = {"view": self.view, "reduction": reduction}
        return json_request(path_of("datasets", self.dataset, "reduce"), content)


def dataset_spec(spec: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in the contract
    """The description of a dataset as JSON values.

    Raises:
        TypeError: it is none, or holds an image instead of the path of its file.
    """
    if not isinstance(spec, Mapping | None):
        raise TypeError(f"{spec!r:.80} describes no dataset: give register(files=[…]) paths")
    spec = {**(spec or {}), **more}
    for name in ("dark", "gain"):
        if isinstance((spec.get("corrections") or {}).get(name), np.ndarray | list | tuple):
            raise TypeError(
                f"corrections takes the path of {name}, below the dataset roots of the service, not"
                " an array: save it there with numpy.save"
            )
    content: dict[str, Any] = plain({name: v for name, v in spec.items() if v is not None})
    if "dtype" in content:
        content["dtype"] = dtype_text(content["dtype"])
    return content


def image(ident: str, options: Mapping[str, Any]) -> Request:
    """Ask for a picture; options that are objects become JSON.

    Raises:
        ValueError: they are too long for an address.
    """
    query = {
        name: json.dumps(plain(value)) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }
    target = path_of("datasets", ident, "image.png") + query_of(**query)
    if len(target) > _LONGEST_TARGET:
        raise ValueError(
            "weights, or listed positions, are too long for the address of a picture: reduce them,"
            " and draw the array"
        )
    return Request("GET", target)
