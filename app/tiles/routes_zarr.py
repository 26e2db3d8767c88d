"""The route of the read-only zarr v3 facade."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import DataChangedError, NotFoundError, ServiceError, problem_of
from app.http.dependencies import IdentityDep, Routes
from app.http.identity import Identity
from app.http.negotiation import not_modified
from app.http.openapi import NOT_MODIFIED, content_response, problem_responses
from app.server.lanes.table import QUICK
from app.server.responses import Exchange, ExchangeResponse
from core.arrays import Floats
from core.budget import current
from core.errors import CoreError
from core.tiles.positions import Lattice
from core.tiles.recording import Axis

from .encoding import octets_of
from .service import TileService
from .views import OpenView, padded

router = Routes(TileService, "/zarr", tags=["zarr"])

_OCTETS = "application/octet-stream"
_CHUNK = re.compile(r"data/c((?:/(?:0|[1-9]\d{0,11})){0,16})", re.ASCII)
_COORDINATE = re.compile(r"([A-Za-z0-9_]{1,64})/(zarr\.json|c/0)", re.ASCII)
_NAME = re.compile(r"(?!data$)[A-Za-z0-9_]{1,64}", re.ASCII)
"""An axis that can have coordinates: its name is part of an address."""
_Entry = tuple[bytes | memoryview, str]
"""Content and media type."""
_FILL_VALUES: dict[str, object] = {"b": False, "c": [0.0, 0.0], "f": 0.0}
"""By kind of dtype; 0 for integers."""
_PIECE = 1 << 20
"""Positions to list at once."""
_COPIES = 4
"""Memory of coordinates, in arrays of them, while they are computed."""


@router.get("/{view}", QUICK, include_in_schema=False)
async def zarr_group(_tiles: TileService, view: str) -> Response:
    """Lead to the list of what the store of a view has."""
    return RedirectResponse(f"{quote(view)}/")


@router.get(
    "/{view}/{key:path}",
    QUICK,
    responses=content_response(200, "application/json", _OCTETS, "text/html")
    | NOT_MODIFIED
    | problem_responses(400, 401, 403, 404, 412, 422, 503),
)
async def zarr(
    tiles: TileService, view: str, key: str, request: Request, caller: IdentityDep
) -> ExchangeResponse:
    """Read a key of the zarr store of a view."""

    async def handle(exchange: Exchange) -> None:
        opened = await tiles.threads.start(_open, tiles, caller, view, key)
        with closing(opened):
            store = ZarrFacade(opened)
            compute = store.find(key)
            if compute is None:
                raise NotFoundError(f"the store has no key {key[:80]!r}")
            etag = opened.etag(f"zarr-{key}")
            if not_modified(request.headers, etag):
                await exchange.start(304, {"ETag": etag})
                return
            size = store.size(key) if request.method == "HEAD" else None
            if size is not None:
                headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Type": _OCTETS}
                await exchange.start(200, headers, content_length=size)
                return
            content, media_type = await tiles.threads.start(compute)
            headers = {"Content-Type": media_type, "ETag": etag, "Cache-Control": "no-cache"}
            await exchange.start(200, headers, content_length=len(content))
            await exchange.end(content)

    return ExchangeResponse(handle)


def _open(tiles: TileService, caller: Identity, view: str, key: str) -> OpenView:
    """Open the view of a store: its id, or ``id.fingerprint``, which pins the version of the data.

    Raises:
        DataChangedError: the data is of another version; or a chunk is asked for whose files,
            dataset or view are gone. zarr takes a 404 for a chunk of fill values.
        CoreError, ServiceError: the view cannot be opened.
    """
    ident, pinned, version = view.partition(".")
    try:
        opened = tiles.views.registered(caller, ident)
    except (CoreError, ServiceError) as e:
        if problem_of(e).status == HTTPStatus.NOT_FOUND and key.startswith("data/c/"):
            raise DataChangedError(f"the data is gone: {e}", hint="Open the store anew") from e
        raise
    found = opened.tokens.fingerprint.hex()
    if pinned and version != found:
        opened.close()
        raise DataChangedError(
            f"the data had the fingerprint {version[:40]} and has {found} now",
            hint="Open the store anew",
        )
    return opened


def _array(
    shape: list[int], chunks: list[int], dtype: np.dtype[Any], names: list[str], attributes: object
) -> dict[str, Any]:
    codec: dict[str, Any] = {"name": "bytes"}
    if dtype.itemsize > 1:
        codec["configuration"] = {"endian": "little"}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": _FILL_VALUES.get(dtype.kind, 0),
        "codecs": [codec],
        "dimension_names": names,
        "attributes": attributes,
    }


class ZarrFacade:
    """The zarr store of one view."""

    def __init__(self, view: OpenView) -> None:
        self._view = view
        self._plan = view.plan
        axes, nav = view.dataset.axes, len(view.dataset.nav_shape)
        # Frames that are listed have an axis of their own, which the dataset does not describe.
        listed = len(self._plan.nav_shape) != nav
        self._axes = [*([Axis("frame", 0)] if listed else axes[:nav]), *axes[nav:]]
        self._names = [axis.name for axis in self._axes]
        if len(set(self._names)) < len(self._names):
            self._names = [f"axis_{k}" for k in range(len(self._plan.shape))]

    def find(self, key: str) -> Callable[[], _Entry] | None:
        """Return what computes the content of a key; None if there is no such key."""
        if not key:
            return lambda: (self._listing().encode(), "text/html; charset=utf-8")
        if key == "zarr.json":
            return lambda: (orjson.dumps(self._group()), "application/json")
        if key == "data/zarr.json":
            return lambda: (orjson.dumps(self._data()), "application/json")
        if match := _CHUNK.fullmatch(key):
            return self._chunk(match[1])
        if match := _COORDINATE.fullmatch(key):
            return self._coordinate(match[1], match[2])
        return None

    def size(self, key: str) -> int | None:
        """Return the length of the values of a key that exists; None if it has metadata."""
        if _CHUNK.fullmatch(key):
            return math.prod(self._plan.tile_shape) * self._plan.dtype.itemsize
        name, _, part = key.partition("/")
        return 8 * self._plan.shape[self._names.index(name)] if part == "c/0" else None

    def _listing(self) -> str:
        """Return links to all nodes, by which readers without consolidated metadata find them."""
        names = ("zarr.json", *self._nodes())
        links = "".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
        return f"<!doctype html><title>zarr</title><p>A zarr v3 group.<ul>{links}</ul>"

    def _nodes(self) -> dict[str, Any]:
        entries = {"data": self._data()}
        for axis, name in enumerate(self._names):
            if _NAME.fullmatch(name):
                entries[name] = self._coordinate_array(axis)
        return entries

    def _group(self) -> dict[str, Any]:
        consolidated = {"kind": "inline", "must_understand": False, "metadata": self._nodes()}
        return {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {},
            "consolidated_metadata": consolidated,
        }

    def _data(self) -> Any:  # noqa: ANN401 - JSON
        plan = self._plan
        dataset = self._view.dataset
        attributes = {"dataset": dataset.spec.id, "fingerprint": dataset.fingerprint.hex()}
        return _array(list(plan.shape), list(plan.tile_shape), plan.dtype, self._names, attributes)

    def _chunk(self, text: str) -> Callable[[], _Entry] | None:
        indices = [int(part) for part in text.split("/") if part]
        plan = self._plan
        if len(indices) != len(plan.grid):
            return None
        if any(i >= n for i, n in zip(indices, plan.grid, strict=True)):
            return None

        def read() -> _Entry:
            tile = plan.tile(int(np.ravel_multi_index(indices, plan.grid)))
            values = self._view.read(tile)
            current().check("tile")
            values = padded(values, plan.tile_shape)
            current().check("tile")
            return octets_of(values), _OCTETS

        return read

    def _coordinate(self, name: str, part: str) -> Callable[[], _Entry] | None:
        if name not in self._names or not _NAME.fullmatch(name):
            return None
        axis = self._names.index(name)
        if part == "zarr.json":
            return lambda: (orjson.dumps(self._coordinate_array(axis)), "application/json")

        def compute() -> _Entry:
            current().hold(
                "coordinates", _COPIES * 8 * self._plan.shape[axis] * self._plan.view.bin_nav
            )
            return self._coordinates(axis).astype("<f8").tobytes(), _OCTETS

        return compute

    def _coordinate_array(self, axis: int) -> Any:  # noqa: ANN401 - JSON
        length, known = self._plan.shape[axis], self._axes[axis]
        attributes = {"units": known.unit} if known.unit else {}
        return _array([length], [length], np.dtype("f8"), [self._names[axis]], attributes)

    def _coordinates(self, axis: int) -> Floats:
        """Return the centres of the bins in the axis's units; of listed frames, their numbers."""
        plan, known = self._plan, self._axes[axis]
        nav = len(plan.nav_shape)
        step = plan.view.bin_nav if axis < nav else plan.view.bin_sig
        start, pitch = 0, 1
        if axis >= nav:
            start = plan.sig_box[axis - nav][0]
        elif isinstance(plan.positions, Lattice):
            start, _, pitch = plan.positions.slices[axis]
        index = start + pitch * (np.arange(plan.shape[axis]) * step + (step - 1) / 2)
        if axis < nav and not isinstance(plan.positions, Lattice):
            index = self._numbers()
        coordinates: Floats = known.offset + known.scale * index
        return coordinates

    def _numbers(self) -> Floats:
        """Return the positions in the scan, means where they are binned."""
        positions = self._plan.positions
        (count,) = positions.shape
        numbers = np.empty(count)
        for low in range(0, count, _PIECE):
            current().check("coordinates")
            high = min(low + _PIECE, count)
            numbers[low:high] = positions.box((low,), (high,))
        means: Floats = numbers.reshape(-1, self._plan.view.bin_nav).mean(1)
        return means
