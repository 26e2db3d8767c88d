"""Requests about datasets and views, and what is said of them in Python as JSON values."""

from __future__ import annotations

import base64
import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from ..transport.requests import Request

JSON = {"Content-Type": "application/json"}

Range: TypeAlias = slice | Sequence[int]
"""A slice, or (start, stop) or (start, stop, step)."""


class ViewOptions(TypedDict, total=False):
    """What is wanted of a dataset; at most one of the first five, which say which frames."""

    select: Mapping[str, Any]
    """As the contract has it, such as ``{"all": True}``."""
    frames: Iterable[int]
    """Flat indices, in this order."""
    mask: npt.ArrayLike
    """True where a position of the scan is wanted."""
    nav: Range | Sequence[Range]
    """A slice for each axis of the scan; those left out are taken whole."""
    shuffle: int
    """Seed of an order of all frames."""
    sig: Range | Sequence[Range]
    """A slice for each axis of a frame; those left out are taken whole."""
    bin: Mapping[Literal["nav", "sig"], int]
    """Blocks to sum over, such as ``{"nav": 2, "sig": 4}``."""
    tile_shape: Sequence[int]
    """One length for each axis, or frames and then one for each axis of a frame."""
    target_bytes: int
    """About so many bytes in a tile, instead of a shape."""
    dtype: npt.DTypeLike
    casting: Literal["safe", "wrap", "clip"]
    corrections: bool
    sync_offset: int
    missing: Literal["skip", "zero", "nan"]


_SELECTIONS = ("select", "frames", "mask", "nav", "shuffle")
_AS_THEY_ARE = ("bin", "target_bytes", "casting", "corrections", "sync_offset", "missing")


class ViewSpec:
    """A view, as JSON values once the shape of the dataset is known.

    Raises:
        TypeError: there is no such option.
        ValueError: options exclude each other, or one cannot be.
    """

    def __init__(self, options: ViewOptions) -> None:
        unknown = set(options) - ViewOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"there is no option {min(unknown)}")
        given = {name: value for name, value in options.items() if value is not None}
        forms = [name for name in _SELECTIONS if name in given]
        if len(forms) > 1:
            raise ValueError(f"{' and '.join(forms)} exclude each other")
        self._ranges: dict[str, list[Range]] = {}
        self._json: dict[str, Any] = {
            name: _plain(given[name]) for name in _AS_THEY_ARE if name in given
        }
        if "tile_shape" in given:
            self._json["tile_shape"] = _integers(given["tile_shape"], "tile_shape")
        if "dtype" in given:
            self._json["dtype"] = np.dtype(given["dtype"]).str  # type: ignore[call-overload]
        if "sig" in given:
            self._ranges["sig"] = _ranges(given["sig"])
        if forms:
            self._select(forms[0], given[forms[0]])

    def _select(self, form: str, value: Any) -> None:  # noqa: ANN401 - any of them
        if form == "nav":
            self._ranges["nav"] = _ranges(value)
        elif form == "select":
            self._json["select"] = _plain(value)
        else:
            self._json["select"] = {form: _SELECT[form](value)}

    @property
    def needs_shape(self) -> bool:
        """Whether the shape of the dataset must be known."""
        return bool(self._ranges)

    def json(self, nav_shape: tuple[int, ...], sig_shape: tuple[int, ...]) -> dict[str, Any]:
        """The view as JSON values.

        Args:
            nav_shape: of the dataset, if needed.
            sig_shape: of the dataset, if needed.

        Raises:
            ValueError: slices do not fit the shape.
        """
        made = dict(self._json)
        if "nav" in self._ranges:
            found = _resolved(self._ranges["nav"], nav_shape, "nav")
            made["select"] = {"nav": [list(each) for each in found]}
        if "sig" in self._ranges:
            found = _resolved(self._ranges["sig"], sig_shape, "sig")
            if any(step != 1 for _, _, step in found):
                raise ValueError("sig has no steps: bin sums neighbouring pixels")
            made["sig"] = [[start, stop] for start, stop, _ in found]
        return made


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON, or nearly
    """What numpy and pathlib have, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value


def _integers(value: Any, name: str) -> list[int]:  # noqa: ANN401 - anything iterable
    array = np.asarray(value if isinstance(value, np.ndarray) else list(value))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} is a list of whole numbers (a mask is given as mask)")
    return [int(item) for item in array.tolist()]


def _mask(value: Any) -> str:  # noqa: ANN401 - an array
    mask = np.asarray(value)
    if mask.dtype != np.bool_:
        raise ValueError(f"a mask is of bool, not of {mask.dtype} (a list is given as frames)")
    return base64.b64encode(np.packbits(mask.reshape(-1)).tobytes()).decode()


_SELECT: Mapping[str, Callable[[Any], Any]] = {
    "frames": lambda value: _integers(value, "frames"),
    "mask": _mask,
    "shuffle": lambda value: {"seed": operator.index(value)},
}


def _ranges(value: Any) -> list[Range]:  # noqa: ANN401 - one or several
    if isinstance(value, slice) or (
        isinstance(value, Sequence) and value and isinstance(value[0], int)
    ):
        return [value]
    return list(value)


def _resolved(ranges: list[Range], shape: tuple[int, ...], name: str) -> list[tuple[int, int, int]]:
    if len(ranges) > len(shape):
        raise ValueError(f"{name} has {len(ranges)} slices for {len(shape)} axes")
    found = []
    whole: list[Range] = [slice(None)] * (len(shape) - len(ranges))
    for each, length in zip([*ranges, *whole], shape, strict=True):
        if isinstance(each, slice):
            start, stop, step = each.indices(length)
        else:
            if len(each) not in {2, 3}:
                raise ValueError(f"{name} has (start, stop) or (start, stop, step) per axis")
            start, stop, step = (*map(int, each), 1)[:3]
        if step < 1:
            raise ValueError(f"{name} goes forward only")
        found.append((start, stop, step))
    return found


def dataset_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a dataset to be registered, as JSON values."""
    made: dict[str, Any] = _plain({name: v for name, v in spec.items() if v is not None})
    if "dtype" in made:
        made["dtype"] = np.dtype(made["dtype"]).str
    return made


def listing(after: str) -> Request:
    """A request for the ids behind one."""
    query = {"limit": "1000"} | ({"after": after} if after else {})
    return Request("GET", f"/v1/datasets?{urlencode(query)}")


def registration(spec: Mapping[str, Any]) -> Request:
    """A request that makes a dataset of files."""
    return Request("POST", "/v1/datasets", JSON, _body(dataset_spec(spec)))


def _body(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def spec_file(path: Path) -> dict[str, Any]:
    """What a file says of a dataset.

    Raises:
        ValueError: it is not a JSON object.
    """
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object")  # noqa: TRY004 - of the file
    return value


def dataset_path(ident: str) -> str:
    """Where a dataset is."""
    return f"/v1/datasets/{quote(ident, safe='')}"


@dataclass(frozen=True, slots=True)
class TileRequests:
    """Builds the requests about one view.

    Attributes:
        dataset: its id.
        body: the view, as JSON.
    """

    dataset: str
    body: bytes

    @classmethod
    def of(cls, dataset: str, view: Mapping[str, Any]) -> TileRequests:
        """Those of a view."""
        return cls(dataset, _body(view))

    def _post(self, route: str, query: Mapping[str, str] | None = None) -> Request:
        text = f"?{urlencode(query)}" if query else ""
        return Request("POST", f"{dataset_path(self.dataset)}/{route}{text}", JSON, self.body)

    def plan(self) -> Request:
        """Its shapes."""
        return self._post("plan", {"count": "0"})

    def register(self) -> Request:
        """Keep it under an id."""
        return self._post("views")

    def stream(self, after: str | None, most: int | None) -> Request:
        """Its tiles behind a token."""
        query = {} if after is None else {"after": after}
        return self._post("tiles", query if most is None else query | {"max_tiles": str(most)})

    def tile_head(self, view: str, index: int) -> Request:
        """What is known of a tile without its values: its token above all."""
        # Whatever the tag is, the answer says that nothing has changed since.
        target = f"{dataset_path(self.dataset)}/views/{quote(view, safe='')}/tiles/{index}"
        return Request("GET", target, {"If-None-Match": "*"})

    def raw(self, view: str, start: int, etag: str | None) -> Request:
        """Its values from a byte on."""
        target = f"{dataset_path(self.dataset)}/views/{quote(view, safe='')}/raw"
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and etag is not None:
            headers["If-Range"] = etag
        return Request("GET", target, headers)


def reduction_json(reduction: str | Mapping[str, Any]) -> dict[str, Any]:
    """A reduction as JSON values; one that needs nothing else may be named only."""
    if isinstance(reduction, str):
        return {"op": reduction}
    made: dict[str, Any] = _plain(reduction)
    return made


def reduction_request(
    dataset: str, view: Mapping[str, Any], reduction: Mapping[str, Any]
) -> Request:
    """A request for the results of a reduction."""
    body = _body({"view": view, "reduction": reduction})
    return Request("POST", f"{dataset_path(dataset)}/reduce", JSON, body)


def image_request(dataset: str, options: Mapping[str, Any]) -> Request:
    """A request for a picture; objects become JSON."""
    query = {
        name: json.dumps(_plain(value)) if isinstance(value, Mapping) else str(value)
        for name, value in options.items()
        if value is not None
    }
    text = f"?{urlencode(query)}" if query else ""
    return Request("GET", f"{dataset_path(dataset)}/image.png{text}")
