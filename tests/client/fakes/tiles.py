"""The part of the small service that has a dataset, ``scan``: one array, read in tiles."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_hexdigest

from app.client.tiles.plan import Plan

Array = npt.NDArray[Any]
Frames = list[tuple[int, dict[str, Any], bytes]]
DATA, END, ERROR, HEARTBEAT = 1, 3, 4, 5


@dataclass
class FakeScan:
    """The dataset.

    Attributes:
        values: two axes of the scan, two of a frame.
        fingerprint: changes with the data.
        bend: does something to the frames of an answer, once.
        most: tiles of an answer, if the service has a limit of its own.
    """

    values: Array = field(default_factory=lambda: np.arange(72, dtype="<u2").reshape(2, 3, 4, 3))
    fingerprint: str = "f0"
    bend: Callable[[Frames], Frames] | None = None
    most: int | None = None
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan_change: dict[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        return {
            "id": "scan",
            "nav_shape": list(self.values.shape[:2]),
            "sig_shape": list(self.values.shape[2:]),
            "dtype": self.values.dtype.str,
            "fingerprint": self.fingerprint,
        }

    def select(self, view: Mapping[str, Any]) -> tuple[Array, Plan]:
        select = view.get("select", {"all": True})
        values = self.values
        nav = 2
        if "frames" in select:
            values = values.reshape(-1, *values.shape[2:])[select["frames"]]
            nav = 1
        tile = tuple(view.get("tile_shape") or (1,) * nav + values.shape[nav:])
        return values, Plan(values.shape[:nav], values.shape[nav:], values.dtype, tile)

    def summary(self, view: Mapping[str, Any]) -> dict[str, Any]:
        _, plan = self.select(view)
        return {
            "shape": list(plan.shape),
            "nav_shape": list(plan.nav_shape),
            "sig_shape": list(plan.sig_shape),
            "dtype": plan.dtype.str,
            "tile_shape": list(plan.tile_shape),
            "grid": list(plan.grid),
            "tiles": math.prod(plan.grid),
            "nbytes": math.prod(plan.shape) * plan.dtype.itemsize,
            "sync_offset": 0,
        } | self.plan_change

    def token(self, tile: int) -> str:
        return f"{tile}.{self.fingerprint}.x"

    def frames(self, view: Mapping[str, Any], first: int, most: int | None) -> Frames:
        values, plan = self.select(view)
        limit = min(most or plan.tiles, self.most or plan.tiles)
        last = min(first + limit, plan.tiles)
        made: Frames = []
        for box in itertools.islice(plan.boxes(), first, last):
            octets = np.ascontiguousarray(values[box.slices]).tobytes()
            about = {"dtype": plan.dtype.str, "shape": list(box.shape)}
            array = {**about, "name": "data", "offset": 0, "nbytes": len(octets)}
            place = {"tile": box.index, "origin": list(box.origin)}
            token = self.token(box.index + 1)
            made.append((DATA, {**place, "token": token, "arrays": [array], **about}, octets))
        end = {
            "reason": "complete" if last == plan.tiles else "count",
            "tiles": plan.tiles,
            "nbytes": plan.nbytes,
            "token": None,
        }
        made.append((END, end, b""))
        bend, self.bend = self.bend, None
        return bend(made) if bend else made


def answer(exchange: Any, scan: FakeScan, body: bytes) -> None:  # noqa: ANN401, C901
    """Answer a request about datasets."""
    parts = urlsplit(exchange.seen.target)
    query = {k: v[0] for k, v in parse_qs(parts.query).items()}
    route = parts.path.removeprefix("/v1/datasets").strip("/").split("/")
    said = json.loads(body) if body else {}
    match route:
        case [""] if exchange.seen.method == "GET":
            ids = [i for i in ("a", "b", "scan") if i > query.get("after", "")][:2]
            exchange._json(200, {"datasets": ids, "after": ids[-1] if len(ids) == 2 else None})
        case [""]:
            exchange._json(201, scan.about() | said)
        case ["scan"]:
            exchange._json(200, scan.about())
        case ["scan", "plan"]:
            exchange._json(200, scan.summary(said))
        case ["scan", "views"]:
            name = xxh3_64_hexdigest(body)
            scan.views[name] = said
            kept = {"id": name, "fingerprint": scan.fingerprint, "token": scan.token(0)}
            exchange._json(201, scan.summary(said) | kept)
        case ["scan", "views", _, "tiles", number]:
            exchange._head(304, {"Thalweg-Token": scan.token(int(number) + 1)}, 0)
        case ["scan", "views", name, "raw"]:
            _raw(exchange, scan, scan.views[name])
        case ["scan", "tiles"]:
            _tiles(exchange, scan, said, query)
        case ["scan", "reduce"]:
            _reduce(exchange, scan, said)
        case ["scan", "image.png"]:
            exchange._head(200, {"Content-Type": "image/png"}, 11)
            exchange._write(b"\x89PNG\r\n\x1a\nxyz")
        case _:
            exchange._json(404, {"code": "not-found", "detail": "there is no such dataset"})


def _tiles(exchange: Any, scan: FakeScan, view: Any, query: Mapping[str, str]) -> None:  # noqa: ANN401
    first = 0
    if "after" in query:
        place, fingerprint, key = query["after"].split(".")
        if key == "old":
            exchange._json(410, {"code": "token-retired", "detail": "old"})
            return
        if fingerprint != scan.fingerprint:
            exchange._json(412, {"code": "data-changed", "detail": "other data"})
            return
        first = int(place)
    most = int(query["max_tiles"]) if "max_tiles" in query else None
    made = scan.frames(view, first, most)
    if (drain := exchange.fault.drain) is not None:
        made = [*made[:drain], (END, made[-1][1] | {"reason": "drain"}, b"")]
    _send(exchange, made, {"Thalweg-Tiles": str(scan.select(view)[1].tiles)})


def _reduce(exchange: Any, scan: FakeScan, said: Any) -> None:  # noqa: ANN401
    values, _ = scan.select(said["view"])
    total = values.sum((0, 1), dtype="<f8")
    about = {"dtype": "<f8", "shape": list(total.shape)}
    array = {**about, "name": "data", "offset": 0, "nbytes": total.nbytes}
    head = {"name": said["reduction"]["op"], "token": None, "arrays": [array], **about}
    made: Frames = [
        (HEARTBEAT, {"done": 1, "of": 2}, b""),
        (DATA, head, total.tobytes()),
        (END, {"reason": "complete", "token": None}, b""),
    ]
    bend, scan.bend = scan.bend, None
    _send(exchange, bend(made) if bend else made, {})


def _send(exchange: Any, frames: Frames, headers: dict[str, str]) -> None:  # noqa: ANN401
    from .service import frame

    fault = exchange.fault
    if fault.status is not None:
        exchange._json(fault.status, {"code": "scripted", "detail": "scripted"}, fault.headers)
        return
    octets = b"".join(frame(*each, number) for number, each in enumerate(frames))
    if fault.change:
        octets = fault.change(octets)
    exchange._head(200, headers, None)
    exchange._write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(octets), octets))


def _raw(exchange: Any, scan: FakeScan, view: Any) -> None:  # noqa: ANN401
    made = b"".join(octets for _, _, octets in scan.frames(view, 0, None))
    etag = f'"{scan.fingerprint}"'
    asked = exchange.seen.headers
    start = int(asked["range"].removeprefix("bytes=").rstrip("-")) if "range" in asked else 0
    if asked.get("if-range", etag) != etag:
        start = 0
    headers = {"ETag": etag}
    if start:
        headers["Content-Range"] = f"bytes {start}-{len(made) - 1}/{len(made)}"
    exchange._head(206 if start else 200, headers, len(made) - start)
    exchange._write(made[start:])
