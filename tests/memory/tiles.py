"""Views of datasets: tiles, plans, raw bytes, zarr, reductions and pictures."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

import numpy as np

from tests.app.harness import with_query
from tests.memory.datasets import frames, sparse
from tests.memory.desk import Desk, Prepare, Request, Table
from tests.memory.measured import BUCKET

TABLE = Table("tiles")
OF = "/v1/datasets/{ident}"
SHAPE = (64, 64, 64, 64)
View = Mapping[str, object]


def scan(desk: Desk) -> str:
    """Frames of 32 MiB in all."""
    return frames(desk, shape=SHAPE)


def stack(desk: Desk, number: int, *sig: int, dtype: str = "u1") -> str:
    """So many empty frames, which take no room on the disk."""
    nbytes = number * int(np.prod(sig)) * np.dtype(dtype).itemsize
    name = sparse(desk, nbytes, f"stack{number}.raw")
    return desk.dataset(name, format="raw", dtype=dtype, sig_shape=[*sig], nav_shape=[number])


Opened = Callable[[Desk], str]


def posted(where: str, view: View, opened: Opened = scan, **options: object) -> Prepare:
    """A view in the body, after one of a small dataset."""

    def prepare(desk: Desk) -> Request:
        small = with_query(f"{frames(desk, 'small.npy')}{where}", options)
        desk.send(Request.of("POST", small, {}))
        return Request.of("POST", with_query(f"{opened(desk)}{where}", options), view)

    return prepare


def stored(where: str, view: View, opened: Opened = scan, **options: object) -> Prepare:
    """A stored view, after one of a small dataset."""

    def prepare(desk: Desk) -> Request:
        small = desk.view(frames(desk, "small.npy"))
        desk.send(Request("GET", with_query(small + where, options)))
        return Request("GET", with_query(desk.view(opened(desk), **view) + where, options))

    return prepare


TILES, PLAN, VIEWS = f"POST {OF}/tiles", f"POST {OF}/plan", f"POST {OF}/views"
for _route in (TILES, PLAN, VIEWS):
    _where = "/" + _route.rpartition("/")[2]
    TABLE.add(_route, f"everything, to {_where}", posted(_where, {}))
    TABLE.add(
        _route,
        f"binned and converted, to {_where}",
        posted(_where, {"bin": {"sig": 2}, "dtype": "<f4"}),
    )
    TABLE.add(
        _route, f"a short list, to {_where}", posted(_where, {"select": {"frames": [*range(4000)]}})
    )
    TABLE.add(
        _route, f"a shuffle, to {_where}", posted(_where, {"select": {"shuffle": {"seed": 7}}})
    )
    for _name, _select, _count in (
        ("two million frames", {"frames": [*range(2_000_000)]}, 1 << 22),
        ("a long list out of order", {"frames": [*range(1_000_000, 0, -1)]}, 1 << 22),
        ("a mask of 2**25", {"mask": base64.b64encode(b"\xaa" * (1 << 22)).decode()}, 1 << 25),
        ("a shuffle of 2**26", {"shuffle": {"seed": 7}}, 1 << 26),
        ("a grid of 2**38", {"nav": [[0, 1 << 38, 3]]}, 1 << 38),
    ):

        def _large(desk: Desk, count: int = _count) -> str:
            return stack(desk, count, 1, 1)

        TABLE.add(
            _route,
            f"{_name}, to {_where}",
            posted(_where, {"select": _select}, _large),
            hostile=True,
        )
    TABLE.add(
        _route,
        f"the largest offset, to {_where}",
        posted(_where, {"sync_offset": 2**62, "missing": "zero"}),
        hostile=True,
    )
    TABLE.add(
        _route,
        f"half of a shuffle missing, to {_where}",
        posted(
            _where, {"sync_offset": 1 << 23, "missing": "skip"}, lambda d: stack(d, 1 << 24, 1, 1)
        ),
        hostile=True,
    )
TABLE.add(TILES, "tiles of blosc2", posted("/tiles", {}, codec="blosc2"))
TABLE.add(TILES, "tiles of 64 MiB", posted("/tiles", {"target_bytes": 64 << 20}), hostile=True)
TABLE.add(
    TILES,
    "tiles of 64 MiB of wide numbers",
    posted(
        "/tiles", {"target_bytes": 64 << 20, "dtype": "<c16"}, lambda d: stack(d, 64, 4096, 4096)
    ),
    hostile=True,
)
TABLE.add(
    TILES,
    "tiles of 64 MiB in blosc2",
    posted(
        "/tiles", {"target_bytes": 64 << 20}, lambda d: stack(d, 64, 4096, 4096), codec="blosc2"
    ),
    hostile=True,
)
TABLE.add(
    TILES,
    "the largest sums of frames",
    posted("/tiles", {"bin": {"nav": 64}}, lambda d: stack(d, 64, 4096, 4096)),
    hostile=True,
)
TABLE.add(
    TILES,
    "the largest sums of pixels",
    posted("/tiles", {"bin": {"sig": 4096}}, lambda d: stack(d, 64, 4096, 4096)),
    hostile=True,
)
TABLE.add(TILES, "one pixel a tile", posted("/tiles", {"tile_shape": [1, 1, 1, 1]}), hostile=True)
TABLE.add(
    TILES,
    "pixels of huge frames",
    posted("/tiles", {"sig": [[0, 1], [0, 1]]}, lambda d: stack(d, 4, 1 << 15, 1 << 15)),
    hostile=True,
)
TABLE.add(
    TILES,
    "columns of huge frames",
    posted("/tiles", {"sig": [[0, 1 << 15], [0, 1]]}, lambda d: stack(d, 64, 1 << 15, 1 << 15)),
    hostile=True,
)

PLANS = f"GET {OF}/views/{{name}}/plan"
TABLE.add(f"GET {OF}/views/{{name}}", "a stored view", stored("", {}))
TABLE.add(PLANS, "a stored plan", stored("/plan", {}))
TABLE.add(PLANS, "a plan in arrow", stored("/plan", {}, format="arrow"))
for _form in ("json", "arrow"):
    _pixels = {"tile_shape": [1, 1, 1]}
    TABLE.add(
        PLANS,
        f"a hundred thousand tiles in {_form}",
        stored("/plan", _pixels, lambda d: stack(d, 1 << 20, 4, 4), count=100_000, format=_form),
        hostile=True,
    )
    TABLE.add(
        PLANS,
        f"five million tiles in {_form}",
        stored("/plan", _pixels, lambda d: stack(d, 4_900_000, 1, 1), format=_form),
        hostile=True,
    )
TABLE.add(
    PLANS,
    "as many parts as may be",
    stored(
        "/plan", {"tile_shape": [1, 1, 1]}, lambda d: stack(d, 1 << 20, 4, 4), count=0, parts=10_000
    ),
    hostile=True,
)
TABLE.add(f"GET {OF}/views/{{name}}/tiles", "tiles of a stored view", stored("/tiles", {}))
TABLE.add(f"GET {OF}/views/{{name}}/raw", "raw", stored("/raw", {}))
TABLE.add(f"GET {OF}/views/{{name}}/raw", "raw, converted", stored("/raw", {"dtype": "<f4"}))
ONE = f"GET {OF}/views/{{name}}/tiles/{{index}}"
for _form in ("bin", "npy", "json"):
    TABLE.add(
        ONE, f"a tile in {_form}", stored("/tiles/0", {"target_bytes": 1 << 20}, format=_form)
    )
TABLE.add(
    ONE,
    "a tile of a million values in json",
    stored(
        "/tiles/0",
        {"tile_shape": [4, 4, 250, 250]},
        lambda d: frames(d, shape=(4, 4, 250, 250)),
        format="json",
    ),
    hostile=True,
)
TABLE.add(
    ONE,
    "a tile of 64 MiB",
    stored("/tiles/0", {"target_bytes": 64 << 20}, lambda d: stack(d, 64, 4096, 4096)),
    hostile=True,
)


@TABLE.case(f"DELETE {OF}/views/{{name}}")
def deleting(desk: Desk) -> Request:
    path = frames(desk)
    desk.ask("DELETE", desk.view(path))
    return Request("DELETE", desk.view(path, bin={"sig": 2}))


def of_zarr(key: str, view: View, opened: Opened = scan) -> Prepare:
    """A file of the zarr group."""

    def prepare(desk: Desk) -> Request:
        small = desk.view(frames(desk, "small.npy")).rpartition("/")[2]
        desk.send(Request("GET", f"/zarr/{small}/{key}"))
        name = desk.view(opened(desk), **view).rpartition("/")[2]
        return Request("GET", f"/zarr/{name}/{key}")

    return prepare


ZARR = "GET /zarr/{view}/{key}"
TABLE.add(ZARR, "metadata", of_zarr("zarr.json", {}))
TABLE.add(ZARR, "a chunk", of_zarr("data/c/0/0/0/0", {}))


@TABLE.case(ZARR, hostile=True)
def coordinates_of_many_frames(desk: Desk) -> Request:
    small = desk.view(frames(desk, "small.npy")).rpartition("/")[2]
    known = desk.send(Request("GET", f"/zarr/{small}/zarr.json")).json()
    axes = [*known["consolidated_metadata"]["metadata"]]
    desk.send(Request("GET", f"/zarr/{small}/{axes[0]}/zarr.json"))
    name = desk.view(stack(desk, 1 << 26, 1, 1)).rpartition("/")[2]
    about = desk.send(Request("GET", f"/zarr/{name}/zarr.json")).json()
    axis = next(a for a in about["consolidated_metadata"]["metadata"] if a != "data")
    return Request("GET", f"/zarr/{name}/{axis}/c/0")


# -- reductions ----------------------------------------------------------------------

REDUCE = f"POST {OF}/reduce"
OPS: list[dict[str, object]] = [
    {"op": op, "over": over} for op in ("sum", "std", "max") for over in ("frames", "pixels")
]
OPS += [{"op": "com"}, {"op": "virtual", "detectors": [{"disk": {"centre": [9, 9], "radius": 4}}]}]


def reducing(reduction: View, opened: Opened = scan, view: View | None = None) -> Prepare:
    """A reduction, after that of a small dataset."""

    def prepare(desk: Desk) -> Request:
        small = f"{frames(desk, 'small.npy')}/reduce"
        desk.send(Request.of("POST", small, {"reduction": {"op": "sum", "over": "frames"}}))
        body = {"view": view or {}, "reduction": reduction}
        return Request.of("POST", f"{opened(desk)}/reduce", body)

    return prepare


for _op in OPS:
    TABLE.add(
        REDUCE,
        " over ".join(str(_op[key]) for key in ("op", "over") if key in _op),
        reducing(_op),
    )
_SUM, _STD = {"op": "sum", "over": "frames"}, {"op": "std", "over": "frames"}
TABLE.add(
    REDUCE,
    "std of the largest frames",
    reducing(_STD, lambda d: stack(d, 16, 2048, 2048)),
    hostile=True,
)
TABLE.add(
    REDUCE,
    "sum of huge frames",
    reducing(_SUM, lambda d: stack(d, 4, 1 << 15, 1 << 15)),
    hostile=True,
)
TABLE.add(
    REDUCE,
    "sums of many small frames",
    reducing({"op": "std", "over": "pixels"}, lambda d: stack(d, 1 << 26, 1, 1)),
    hostile=True,
)
TABLE.add(
    REDUCE,
    "com of many small frames",
    reducing({"op": "com"}, lambda d: stack(d, 1 << 25, 2, 1)),
    hostile=True,
)
_DISKS = [{"disk": {"centre": [n, n], "radius": 1000}} for n in range(64)]
TABLE.add(
    REDUCE,
    "as many detectors as may be",
    reducing({"op": "virtual", "detectors": _DISKS}, lambda d: stack(d, 16, 2048, 2048)),
    hostile=True,
)
TABLE.add(
    REDUCE,
    "as many detectors of many frames",
    reducing({"op": "virtual", "detectors": _DISKS}, lambda d: stack(d, 1 << 22, 2, 2)),
    hostile=True,
)


def image(opened: Opened = scan, **options: object) -> Prepare:
    """A picture, after that of a small dataset."""

    def prepare(desk: Desk) -> Request:
        desk.send(Request("GET", f"{frames(desk, 'small.npy')}/image.png"))
        given = {name: json.dumps(v) if isinstance(v, dict) else v for name, v in options.items()}
        return Request("GET", with_query(f"{opened(desk)}/image.png", given))

    return prepare


IMAGE = f"GET {OF}/image.png"
TABLE.add(IMAGE, "a picture", image(map="viridis"))
TABLE.add(IMAGE, "a picture of a large frame", image(lambda d: stack(d, 4, 2048, 2048)))
TABLE.add(
    IMAGE,
    "a picture of the largest frame",
    image(lambda d: stack(d, 2, 8192, 8192), map="viridis"),
    hostile=True,
)
TABLE.add(
    IMAGE,
    "a picture of many frames",
    image(lambda d: stack(d, 1 << 24, 1, 1), reduction={"op": "sum", "over": "pixels"}),
    hostile=True,
)

TABLE.add(TILES, "tiles of a bucket", posted("/tiles", {"dtype": "<f4"}), dataset_roots=BUCKET)
TABLE.add(
    ONE,
    "a tile of a bucket",
    stored("/tiles/0", {"target_bytes": 8 << 20}),
    dataset_roots=BUCKET,
)
TABLE.add(
    TILES,
    "tiles of 64 MiB of a bucket",
    posted("/tiles", {"target_bytes": 64 << 20}),
    hostile=True,
    dataset_roots=BUCKET,
)
TABLE.add(
    REDUCE,
    "a reduction of a bucket",
    reducing({"op": "std", "over": "frames"}),
    dataset_roots=BUCKET,
)
