"""Requests about datasets, their views, tiles and reductions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np

from ..transport.requests import Request, json_request, path_of
from .options import dtype_text, plain


@dataclass(frozen=True, slots=True)
class TileRequests:
    """Builds the requests for one view.

    Attributes:
        dataset: its id.
        view: as JSON values.
    """

    dataset: str
    view: Mapping[str, Any]

    def _post(self, route: str, query: Mapping[str, Any] | None = None) -> Request:
        text = f"?{urlencode(query)}" if query else ""
        return json_request(path_of("datasets", self.dataset, route) + text, self.view)

    def plan(self) -> Request:
        """Ask for the shapes of the view and its tiles."""
        return self._post("plan", {"count": "0"})

    def keep(self) -> Request:
        """Have the service keep the view under an id."""
        return self._post("views")

    def stream(self, after: str | None, limit: int | None) -> Request:
        """Ask for the tiles after a token, or for some of them."""
        query = {"after": after, "max_tiles": limit}
        return self._post("tiles", {name: v for name, v in query.items() if v is not None})

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
    """Ask for a picture; options that are objects become JSON."""
    query = {
        name: json.dumps(plain(value)) if isinstance(value, Mapping) else str(value)
        for name, value in options.items()
        if value is not None
    }
    text = f"?{urlencode(query)}" if query else ""
    return Request("GET", path_of("datasets", ident, "image.png") + text)
