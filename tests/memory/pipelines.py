"""Pipelines: each stage at ordinary sizes, and with every number at its largest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from tests.app.harness import with_query
from tests.e2e.samples import large_stream
from tests.memory.datasets import sparse
from tests.memory.desk import Desk, Prepare, Request, Table

TABLE = Table("pipelines")
POST, BATCHES = "POST /v1/pipelines", "GET /v1/pipelines/{ident}/batches"
BATCH = "GET /v1/pipelines/{ident}/batch"
MIB = 1 << 20
Stage = Mapping[str, Any]
FOREVER = {"op": "repeat", "times": 10**9}


def source(name: str, **options: object) -> Stage:
    return {"op": "source", "dataset": f"d1-{name}", **options}


def _frames(desk: Desk, name: str, rows: int) -> None:
    np.save(desk.roots / f"{name}.npy", np.zeros((rows, 16, 16), "<u2"))
    desk.dataset(f"{name}.npy")


def _labels(desk: Desk, name: str) -> None:
    np.save(desk.roots / f"{name}.npy", np.zeros((40_000, 1), "<i8"))
    desk.dataset(f"{name}.npy")


def _losses(desk: Desk, name: str) -> None:
    (desk.roots / f"{name}.bin").write_bytes(large_stream(16))
    desk.dataset(f"{name}.bin", format="loss")


def _lines(desk: Desk, name: str, length: int, count: int) -> None:
    (desk.roots / f"{name}.txt").write_text(("y" * length + "\n") * count)
    desk.dataset(f"{name}.txt", format="lines")


def _rows(desk: Desk, name: str) -> None:
    columns = {"x": np.arange(400_000), "y": np.arange(400_000) / 2}
    pq.write_table(pa.table(columns), desk.roots / f"{name}.parquet")
    desk.dataset(f"{name}.parquet", format="parquet")


def _wide(desk: Desk, name: str) -> None:
    table = pa.table({"x": pa.array([b"\0" * (1 << 26)] * 4)})
    pq.write_table(table, desk.roots / f"{name}.parquet", compression="zstd", row_group_size=4)
    desk.dataset(f"{name}.parquet", format="parquet")


def _many(desk: Desk, name: str) -> None:
    path = sparse(desk, 1 << 30, f"{name}.raw")
    desk.dataset(path, format="raw", dtype="u1", sig_shape=[1, 1], nav_shape=[1 << 30])


def _zstd(desk: Desk, name: str) -> None:
    """Several files of the widest window, each longer than it."""
    made = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    line = b"y" * MIB + b"\n"
    data = b"".join(made.compress(line) for _ in range(130)) + made.flush()
    names = [f"{name}{n}.zst" for n in range(3)]
    for path in names:
        (desk.roots / path).write_bytes(data)
    desk.ask("POST", "/v1/datasets", {"id": f"d1-{name}", "files": names, "format": "lines"})


FILES: Mapping[str, Callable[[Desk, str], None]] = {
    "few": partial(_frames, rows=100),
    "values": partial(_frames, rows=40_000),
    "labels": _labels,
    "losses": _losses,
    "one": partial(_lines, length=2_000_000, count=1),
    "lines": partial(_lines, length=14, count=40_000),
    "long": partial(_lines, length=60 * MIB, count=1),
    "rows": _rows,
    "wide": _wide,
    "many": _many,
    "zstd": _zstd,
}


def files(desk: Desk, stages: Sequence[Stage] = ()) -> None:
    """Register a few frames, and the files that stages read."""
    read = json.dumps(stages)
    for name, write in FILES.items():
        if name == "few" or f'"d1-{name}"' in read:
            write(desk, name)


def mixed(*stages: Stage) -> Stage:
    return {"op": "mix", "inputs": [[*stages]]}


def few(desk: Desk, *stages: Stage) -> None:
    """Touch the code of stages, with a few items."""
    path = desk.pipeline(source("few"), *stages, {"op": "batch", "size": 8})
    desk.send(Request("GET", f"{path}/batches?max_batches=2"))
    desk.send(Request("GET", f"{path}/batch"))


def reading(*stages: Stage, where: str = "batches", **options: object) -> Prepare:
    """Batches of a pipeline, after some of a small one."""

    def prepare(desk: Desk) -> Request:
        files(desk, stages)
        few(desk)
        path = desk.pipeline(*stages)
        return Request("GET", with_query(f"{path}/{where}", options))

    return prepare


def registering(*stages: Stage) -> Prepare:
    """A pipeline, after a small one."""

    def prepare(desk: Desk) -> Request:
        files(desk, stages)
        few(desk)
        return Request.of("POST", "/v1/pipelines", {"order": 1, "stages": stages})

    return prepare


def batch(size: int, **options: object) -> Stage:
    return {"op": "batch", "size": size, **options}


ORDINARY: Mapping[str, Sequence[Stage]] = {
    "frames": [source("values"), batch(256)],
    "shuffled frames": [source("values"), {"op": "permute", "seed": 1}, batch(256)],
    "labelled frames of a view": [
        source(
            "values",
            view={"sig": [[4, 12], [4, 12]], "dtype": "<f4"},
            unit="frame",
            fields=["data", "index", "nav"],
            labels="d1-labels",
        ),
        {"op": "permute"},
        batch(256),
    ],
    "frames in blocks": [
        source("values"),
        {"op": "shuffle", "kind": "block", "size": 1000},
        batch(256),
    ],
    "frames in a reservoir": [
        source("values"),
        {"op": "shuffle", "kind": "reservoir", "size": 1000},
        batch(256),
    ],
    "lines": [source("lines"), batch(256)],
    "rows": [source("rows"), batch(256)],
    "shuffled rows": [source("rows"), {"op": "permute"}, batch(256)],
    "events": [source("losses"), batch(16)],
    "windows": [source("values"), {"op": "window", "width": 8}, batch(32)],
    "buckets": [
        source("lines"),
        {"op": "bucket_batch", "read_ahead": 1000, "key": "text", "size": 64},
    ],
    "padded lines": [source("lines"), batch(64), {"op": "pad", "multiple": 8}],
}
for _name, _stages in ORDINARY.items():
    TABLE.add(POST, f"registering {_name}", registering(*_stages))
    TABLE.add(BATCHES, f"batches of {_name}", reading(*_stages, max_batches=200))
    TABLE.add(BATCH, f"a batch of {_name}", reading(*_stages, where="batch", offset=3))

LINES = mixed(source("one"), FOREVER)
VALUES = mixed(source("values"), FOREVER)
MANY = source("many")
HOSTILE: Mapping[str, Sequence[Stage]] = {
    "ragged": [LINES, batch(400)],
    "the longest line": [source("long"), batch(1)],
    "long lines together": [mixed(source("long"), FOREVER), batch(16)],
    "padded lines": [mixed(source("lines"), FOREVER), batch(64), {"op": "pad", "length": 1 << 24}],
    "padded to a large multiple": [
        mixed(source("lines"), FOREVER),
        batch(8),
        {"op": "pad", "multiple": 1 << 24},
    ],
    "zstd files of the widest window": [source("zstd"), batch(8)],
    "a row group": [source("wide"), batch(1)],
    "the largest batch": [VALUES, batch(1 << 20)],
    "the largest batch of lines": [mixed(source("lines"), FOREVER), batch(1 << 20)],
    "the largest batch of rows": [mixed(source("rows"), FOREVER), batch(1 << 20)],
    "the largest batch of pixels": [MANY, batch(1 << 20)],
    "the largest shuffle": [VALUES, {"op": "shuffle", "size": 1 << 20}, batch(8)],
    "the largest reservoir": [
        VALUES,
        {"op": "shuffle", "kind": "reservoir", "size": 1 << 20},
        batch(8),
    ],
    "the largest block": [MANY, {"op": "shuffle", "kind": "block", "size": 1 << 20}, batch(8)],
    "the largest window": [VALUES, {"op": "window", "width": 1 << 16}, batch(8)],
    "the largest window of pixels": [
        MANY,
        {"op": "window", "width": 1 << 16, "stride": 1},
        batch(64),
    ],
    "the longest read ahead": [
        mixed(source("lines"), FOREVER),
        {"op": "bucket_batch", "read_ahead": 1_000_000, "key": "text", "size": 8},
    ],
    "the longest read ahead of long lines": [
        LINES,
        {"op": "bucket_batch", "read_ahead": 1_000_000, "key": "text", "size": 8},
    ],
    "permuted pixels": [MANY, {"op": "permute", "epochs": None}, batch(1 << 20)],
    "a split of pixels": [
        MANY,
        {"op": "split", "part": "validation", "fraction": 0.1},
        batch(1024),
    ],
    "a shard of the largest number": [MANY, {"op": "shard", "of": 1 << 30, "index": 5}, batch(8)],
    "prefetched far": [VALUES, batch(1024), {"op": "prefetch", "depth": 1 << 16}],
    "each element of long lines": [LINES, {"op": "select_many", "field": "text"}, batch(1 << 20)],
    "never a batch": [
        mixed(source("losses", fields=["event"]), FOREVER),
        {"op": "filter", "pred": "greater", "args": {"field": "event", "value": 2e9}},
        batch(8),
    ],
    "sums of everything": [VALUES, {"op": "scan", "fn": "cumsum", "field": "data"}, batch(1024)],
    "the largest weights": [
        {
            "op": "mix",
            "inputs": [[source("few")], [source("values")]],
            "weights": [1, 60_000],
            "stop": "cycle",
        },
        batch(1024),
    ],
    "as many sources as may be": [
        {"op": "mix", "inputs": [[source("values")] for _ in range(64)], "order": "random"},
        batch(4096),
    ],
    "as many shuffles as may be": [
        {
            "op": "mix",
            "inputs": [[source("values"), {"op": "shuffle", "kind": "reservoir", "size": 40_000}]]
            * 16,
        },
        batch(1024),
    ],
    "as many stages as may be": [
        source("values"),
        *[{"op": "shuffle", "kind": "reservoir", "size": 4000}] * 14,
        batch(1024),
    ],
    "events together": [mixed(source("losses"), FOREVER), batch(1 << 16)],
    "a world of ranks": [
        MANY,
        {"op": "batch", "size_per_rank": 16, "world": 1 << 16},
    ],
    "shuffled frames of a view": [
        source("many", view={"select": {"shuffle": {"seed": 1}}}, range=[0, 1000]),
        batch(64),
    ],
    "listed frames of a view": [
        source("many", view={"select": {"frames": [*range(100_000)]}}),
        batch(64),
    ],
    "as many labels as may be": [
        source("many", fields=["index", "nav"], labels="d1-many"),
        {"op": "permute"},
        batch(1 << 20),
    ],
    "the largest tiles of a view": [
        source("many", view={"target_bytes": 64 << 20}, unit="tile"),
        batch(4),
    ],
}


def hostile(stages: Sequence[Stage]) -> Prepare:
    """Register and read a pipeline; a refusal is an answer too."""

    def prepare(desk: Desk) -> Callable[[], int]:
        files(desk, stages)
        few(desk)

        def act() -> int:
            post = Request.of("POST", "/v1/pipelines", {"order": 1, "stages": stages})
            try:
                path = f"/v1/pipelines/{desk.send(post).json()['id']}"
            except AssertionError:
                return 422
            return desk.do(Request("GET", f"{path}/batches?max_batches=1000"))

        return act

    return prepare


for _name, _stages in HOSTILE.items():
    TABLE.add(BATCHES, _name, hostile(_stages), hostile=True)


@TABLE.case(POST, hostile=True)
def a_spec_of_a_mebibyte(desk: Desk) -> Request:
    files(desk, [source("values")])
    few(desk)
    names = [f"f{n}" for n in range(90_000)]
    stages = [source("values", fields=names), batch(8)]
    return Request.of("POST", "/v1/pipelines", {"order": 1, "stages": stages})


@TABLE.case(BATCH, hostile=True)
def a_batch_far_away(desk: Desk) -> Request:
    files(desk, [MANY])
    few(desk)
    path = desk.pipeline(MANY, batch(8))
    return Request("GET", f"{path}/batch?offset={1 << 24}")


@TABLE.case("GET /v1/stages")
def all_stages(desk: Desk) -> Request:
    desk.ask("GET", "/v1/stages")
    return Request("GET", "/v1/stages")


@TABLE.case("GET /v1/stages/{name}")
def one_stage(desk: Desk) -> Request:
    desk.ask("GET", "/v1/stages/map")
    return Request("GET", "/v1/stages/map")


@TABLE.case("GET /v1/pipelines")
def listing(desk: Desk) -> Request:
    files(desk)
    few(desk)
    desk.ask("GET", "/v1/pipelines")
    return Request("GET", "/v1/pipelines?limit=1000")


@TABLE.case("GET /v1/pipelines/{ident}")
def describing(desk: Desk) -> Request:
    files(desk, [source("values")])
    path = desk.pipeline(source("values"), batch(8))
    desk.ask("GET", path)
    return Request("GET", path)


@TABLE.case("DELETE /v1/pipelines/{ident}")
def deleting(desk: Desk) -> Request:
    files(desk, [source("values")])
    desk.ask("DELETE", desk.pipeline(source("values"), batch(8)))
    return Request("DELETE", desk.pipeline(source("values"), batch(16)))
