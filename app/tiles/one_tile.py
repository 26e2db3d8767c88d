"""One tile as a whole answer: plain values, a file that numpy loads, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.errors import NotAcceptableError, NotFoundError
from app.http.answers import WholeAnswer
from app.http.media_types import MEDIA_TYPES
from app.http.ranges import Fields, not_modified
from core.tiles.plan import Tile

from .encoding import npy_bytes, octets_of, tile_values
from .views import OpenView, Views

MEDIA = {"bin": MEDIA_TYPES["bin"], "npy": "application/x-npy", "json": "application/json"}
"""Media type of each format."""


def check_format(form: str) -> None:
    """Refuse a format that tiles do not come in.

    Raises:
        NotAcceptableError: it is one.
    """
    if form not in _ENCODERS:
        raise NotAcceptableError(f"a tile comes as bin, npy or json, not as {form[:40]!r}")


@dataclass(frozen=True, slots=True)
class TileRequest:
    """Which tile is asked for, and how."""

    dataset: str
    view: str
    index: int
    form: str
    """One of MEDIA."""
    head: bool
    """Whether only the headers are asked for."""


def one_tile(views: Views, request: TileRequest, requested: Fields) -> WholeAnswer:
    """Answer with one tile of a registered view.

    Args:
        views: the views.
        request: which tile.
        requested: headers of the request.

    Raises:
        NotFoundError: there is no such view, or no such tile.
        CoreError, ServiceError: the tile cannot be read.
    """
    index, form = request.index, request.form
    view = views.registered(request.view, request.dataset)
    try:
        if not 0 <= index < view.plan.tiles:
            raise NotFoundError(f"the view has tiles 0 to {view.plan.tiles - 1}")
        tile = view.plan.tile(index)
        etag = view.etag(f"{index}-{form}")
        headers = _headers(view, tile, etag, form)
        if not_modified(requested, etag):
            return WholeAnswer(304, headers)
        if request.head and form == "bin":
            return WholeAnswer(200, headers, length=tile.nbytes)
        return WholeAnswer(200, headers, _ENCODERS[form](view, tile))
    finally:
        view.close()


def _headers(view: OpenView, tile: Tile, etag: str, form: str) -> Mapping[str, str]:
    return {
        "Content-Type": MEDIA[form],
        "ETag": etag,
        "Cache-Control": "no-cache",
        "Thalweg-Dtype": view.plan.dtype.str,
        "Thalweg-Shape": json.dumps(list(tile.shape)),
        "Thalweg-Origin": json.dumps(list(tile.origin)),
        "Thalweg-Token": view.tokens.token(tile.index + 1),
    }


_ENCODERS: Mapping[str, Callable[[OpenView, Tile], bytes | memoryview]] = {
    "bin": lambda view, tile: octets_of(view.read(tile)),
    "npy": lambda view, tile: npy_bytes(view.read(tile)),
    "json": lambda view, tile: tile_values(view.read(tile)),
}
