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

from .exchange import Exchange, Gone
from .frames import DATA, END, HEARTBEAT, Frames

Array = npt.NDArray[Any]


@dataclass
class FakeScan:
    """The dataset.

    Attributes:
        values: two axes of the scan, two of a frame.
        fingerprint: changes with the data.
        bend: does something to the frames of an answer, once.
        most: tiles of an answer, if the service has a limit of its own.
        picture: what a picture is.
        raw_headers: what is different in the heads of the next answers of plain bytes.
        deleted: the dataset and views that were deleted.
        cut_deletions: deletions to do without an answer.
        raw_head: bytes of the head of the last such answer.
    """

    values: Array = field(default_factory=lambda: np.arange(72, dtype="<u2").reshape(2, 3, 4, 3))
    fingerprint: str = "f0"
    bend: Callable[[Frames], Frames] | None = None
    most: int | None = None
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan_change: dict[str, Any] = field(default_factory=dict)
    picture: bytes = b"\x89PNG\r\n\x1a\nxyz"
    raw_headers: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    cut_deletions: int = 0
    raw_head: int = 0

    def about(self) -> dict[str, Any]:
        return {
            "id": "scan",
            "nav_shape": list(self.values.shape[:2]),
            "sig_shape": list(self.values.shape[2:]),
            "dtype": self.values.dtype.str,
            "stored_dtype": self.values.dtype.newbyteorder(">").str,
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

    def state(self) -> dict[str, str]:
        return {"fingerprint": self.fingerprint, "token": self.token(0)}

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


VALUES = FakeScan().values
TWO: Any = {"frames": [4, 1], "tile_shape": (1, 4, 3)}
"""Options of a view with two tiles, and its values."""
TWO_VALUES = VALUES.reshape(6, 4, 3)[[4, 1]]
TILED: Any = {"tile_shape": (2, 2, 3, 2)}
"""Options of a view of everything in eight tiles with gaps."""


def changed(where: int, **more: Any) -> Callable[[Frames], Frames]:  # noqa: ANN401
    """Changes members of the header of one frame."""

    def bend(frames: Frames) -> Frames:
        kind, header, payload = frames[where]
        frames[where] = (kind, header | more, payload)
        return frames

    return bend


def answer(exchange: Exchange, scan: FakeScan, body: bytes) -> None:  # noqa: C901
    """Answer a request about datasets."""
    parts = urlsplit(exchange.seen.target)
    query = {k: v[0] for k, v in parse_qs(parts.query).items()}
    route = parts.path.removeprefix("/v1/datasets").strip("/").split("/")
    said = json.loads(body) if body else {}
    match route:
        case ["scan"] | ["scan", "views", _] if exchange.seen.method == "DELETE":
            _delete(exchange, scan, route[-1])
        case [""] if exchange.seen.method == "GET":
            ids = [i for i in ("a", "b", "scan") if i > query.get("after", "")][:2]
            exchange.json(200, {"datasets": ids, "after": ids[-1] if len(ids) == 2 else None})
        case [""]:
            exchange.json(201, scan.about() | said)
        case ["scan"]:
            exchange.json(200, scan.about())
        case ["scan", "plan"]:
            exchange.json(200, scan.summary(said) | scan.state())
        case ["scan", "views"]:
            name = xxh3_64_hexdigest(body)
            scan.views[name] = said
            exchange.json(201, scan.summary(said) | scan.state() | {"id": name})
        case ["scan", "views", _, "tiles", number]:
            exchange.head(304, {"Thalweg-Token": scan.token(int(number) + 1)}, 0)
        case ["scan", "views", name, "raw"]:
            _raw(exchange, scan, scan.views[name])
        case ["scan", "tiles"]:
            _tiles(exchange, scan, said, query)
        case ["scan", "reduce"]:
            _reduce(exchange, scan, said)
        case ["scan", "image.png"]:
            exchange.head(200, {"Content-Type": "image/png"}, len(scan.picture))
            exchange.write(scan.picture)
        case _:
            exchange.json(404, {"code": "not-found", "detail": "there is no such dataset"})


def _delete(exchange: Exchange, scan: FakeScan, name: str) -> None:
    if name in scan.deleted:
        exchange.json(404, {"code": "not-found", "detail": "there is no such thing"})
        return
    scan.deleted.append(name)
    if scan.cut_deletions:
        scan.cut_deletions -= 1
        raise Gone
    exchange.head(204, {}, 0)


def _tiles(exchange: Exchange, scan: FakeScan, view: Any, query: Mapping[str, str]) -> None:  # noqa: ANN401
    first = 0
    if "after" in query:
        place, fingerprint, key = query["after"].split(".")
        if key == "old":
            exchange.json(410, {"code": "token-retired", "detail": "old"})
            return
        if fingerprint != scan.fingerprint:
            exchange.json(412, {"code": "data-changed", "detail": "other data"})
            return
        first = int(place)
    most = int(query["max_tiles"]) if "max_tiles" in query else None
    made = scan.frames(view, first, most)
    if (drain := exchange.fault.drain) is not None:
        made = [*made[:drain], (END, made[-1][1] | {"reason": "drain"}, b"")]
    exchange.frames(made, {"Thalweg-Tiles": str(scan.select(view)[1].tiles)})


def _reduce(exchange: Exchange, scan: FakeScan, said: Any) -> None:  # noqa: ANN401
    values, _ = scan.select(said["view"])
    total = values.sum((0, 1), dtype="<f8")
    about = {"dtype": "<f8", "shape": list(total.shape)}
    array = {**about, "name": "data", "offset": 0, "nbytes": total.nbytes}
    reduction = said["reduction"]
    name = reduction if isinstance(reduction, str) else reduction["op"]
    head = {"name": name, "token": None, "arrays": [array], **about}
    made: Frames = [
        (HEARTBEAT, {"done": 1, "of": 2}, b""),
        (DATA, head, total.tobytes()),
        (END, {"reason": "complete", "token": None}, b""),
    ]
    bend, scan.bend = scan.bend, None
    exchange.frames(bend(made) if bend else made, {})


def _raw(exchange: Exchange, scan: FakeScan, view: Any) -> None:  # noqa: ANN401
    made = b"".join(octets for _, _, octets in scan.frames(view, 0, None))
    etag = f'"{scan.fingerprint}"'
    asked = exchange.seen.headers
    start = int(asked["range"].removeprefix("bytes=").rstrip("-")) if "range" in asked else 0
    if asked.get("if-range", etag) != etag:
        start = 0
    headers: dict[str, Any] = {"ETag": etag}
    if start:
        headers["Content-Range"] = f"bytes {start}-{len(made) - 1}/{len(made)}"
    lie = dict(scan.raw_headers.pop(0)) if scan.raw_headers else {}
    status = lie.pop("status", 206 if start else 200)
    told = {name: value for name, value in (headers | lie).items() if value is not None}
    exchange.head(status, told, len(made) - start)
    scan.raw_head = exchange.sent
    exchange.write(made[start:])
