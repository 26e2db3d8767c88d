"""Batches of pipelines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.cancellation.leaving import Work
from tests.cancellation.losses import summary_stream
from tests.cancellation.place import JSON, Place, Prepare, Table

TABLE = Table()
BATCHES = "GET /v1/pipelines/{ident}/batches"
Stage = dict[str, Any]


def losses(place: Place, part: float) -> str:
    """Events of a stored stream; the dataset."""
    events = max(int(20_000 * part), 10)

    def write(path: Path) -> None:
        path.write_bytes(summary_stream(events, 10, 100))

    return place.dataset(f"losses-{events}.bin", write, format="loss")


def rows(place: Place, part: float) -> str:
    """Rows of parquet, decoded by processes of their own."""
    count = max(int(4_000_000 * part), 10)

    def write(path: Path) -> None:
        columns = {"x": np.arange(count), "y": np.arange(count) / 2}
        pq.write_table(pa.table(columns), path)

    return place.dataset(f"rows-{count}.parquet", write, format="parquet")


def lines(place: Place, part: float) -> str:
    """Lines of text."""
    count = max(int(2_000_000 * part), 10)

    def write(path: Path) -> None:
        path.write_bytes(b"".join(b"y" * (n % 97) + b"\n" for n in range(count)))

    return place.dataset(f"lines-{count}.txt", write, format="lines")


def pipeline(
    *stages: Stage, of: Callable[[Place, float], str] = losses, where: str = "/batches"
) -> Prepare:
    """Batches of what is in a dataset."""

    def prepare(place: Place, part: float) -> Work:
        source = {"op": "source", "dataset": of(place, part).rpartition("/")[2]}
        made = place.send("/v1/pipelines", {"order": 1, "stages": [source, *stages]})
        return Work("GET", f"/v1/pipelines/{made['id']}{where}")

    return prepare


def registering(place: Place, part: float) -> Callable[[], Work]:
    """A pipeline over compressed lines, which are looked through for where they may begin."""

    def write(path: Path) -> None:
        path.write_bytes(gzip.compress(b"a line\n" * int(8_000_000 * part), 1))

    dataset = place.dataset("lines.txt.gz", write, format="lines").rpartition("/")[2]
    sizes = iter(range(1, 1 << 20))

    def make() -> Work:
        batch = {"op": "batch", "size": next(sizes)}
        values = {"order": 1, "stages": [{"op": "source", "dataset": dataset}, batch]}
        return Work("POST", "/v1/pipelines", json.dumps(values).encode(), JSON)

    return make


BATCH: Stage = {"op": "batch", "size": 64}
LARGEST: Stage = {"op": "batch", "size": 1 << 20}
TABLE.add(BATCHES, "shuffle", pipeline({"op": "shuffle", "kind": "block", "size": 1 << 18}, BATCH))
TABLE.add(
    BATCHES, "reservoir", pipeline({"op": "shuffle", "kind": "reservoir", "size": 1 << 18}, BATCH)
)
TABLE.add(
    BATCHES,
    "the largest reservoir",
    pipeline({"op": "shuffle", "kind": "reservoir", "size": 1 << 20}, LARGEST, of=rows),
)
TABLE.add(
    BATCHES,
    "buckets",
    pipeline({"op": "bucket_batch", "read_ahead": 500_000, "key": "text", "size": 64}, of=lines),
)
TABLE.add(BATCHES, "the largest batches of rows", pipeline(LARGEST, of=rows))
TABLE.add(BATCHES, "permuted rows", pipeline({"op": "permute"}, BATCH, of=rows))
TABLE.add(BATCHES, "padded lines", pipeline(BATCH, {"op": "pad", "length": 1 << 16}, of=lines))
TABLE.add(
    "GET /v1/pipelines/{ident}/batch",
    "a batch far away",
    pipeline(
        {"op": "shuffle", "kind": "reservoir", "size": 1 << 18},
        BATCH,
        where="/batch?offset=2000",
    ),
)
TABLE.add("POST /v1/pipelines", "registering a pipeline", registering)
