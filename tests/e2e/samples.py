"""Streams to post, and their tables out of every format."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from core.losses.reports import REPORTS
from tests.frames import receive
from tests.streams import Block, Stream, make_header

Rows = npt.NDArray[np.void]
FORMATS = ("csv", "bin", "ndjson", "arrow", "parquet", "frames")


def twenty_thousand_bytes() -> bytes:
    """97 events in exactly 20,000 bytes."""
    blocks = []
    for event in range(1, 98):
        count = 24 if event <= 25 else 23
        pairs = [(-5, 900.5), (-1, 40.25), *((s, event + s / 8) for s in range(1, count - 1))]
        blocks.append(Block(event, 7, tuple(pairs), 1000.0))
    data = Stream("summary", 30, 4, tuple(blocks)).encode()
    assert len(data) == 20_000
    return data


def large_stream(mebibytes: int, *, samples: int = 250, blocks: int = 4) -> bytes:
    """A summary stream of about this size: events of a few full blocks, ids ascending."""
    dtype = np.dtype(
        [
            ("event", "<i4"),
            ("ident", "<i4"),
            ("exposure", "<f4"),
            ("pairs", [("sidx", "<i4"), ("loss", "<f4")], samples + 3),
        ]
    )
    count = (mebibytes << 20) // dtype.itemsize // blocks * blocks
    rng = np.random.default_rng(mebibytes)
    made = np.zeros(count, dtype)
    made["event"] = 1 + np.arange(count) // blocks
    made["ident"] = 1 + np.arange(count) % blocks
    made["exposure"] = 1e6
    made["pairs"]["sidx"] = [-5, -1, *range(1, samples + 1), 0]
    made["pairs"]["loss"][:, :-1] = rng.random((count, samples + 2), np.float32) * 1e5
    return make_header("summary", samples) + made.tobytes()


def rows_of_answer(form: str, report: str, body: bytes) -> Rows:
    """The rows in an answer, in any format but csv; each format has to say that it is whole."""
    dtype = REPORTS[report].dtype(4)
    if form == "bin":
        return np.frombuffer(body, dtype)
    if form == "frames":
        received = receive(body)
        assert received.end is not None
        return received.rows(report) if report in received.tables else np.zeros(0, dtype)
    if form == "ndjson":
        return rows_of_ndjson(dtype, body)
    table = pq.read_table(io.BytesIO(body)) if form == "parquet" else _read_arrow(body)
    rows = np.zeros(len(table), dtype)
    for name in dtype.names or ():
        rows[name] = table[name].to_numpy()
    return rows


def _read_arrow(body: bytes) -> pa.Table:
    # The reader takes a cut between two batches for an end: the end has to be there.
    assert body.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    return pa.ipc.open_stream(body).read_all()


def rows_of_ndjson(dtype: npt.DTypeLike, body: bytes) -> Rows:
    lines = [json.loads(line) for line in body.splitlines()]
    assert "end" in lines.pop()
    found = [line for line in lines if "checkpoint" not in line]
    nan = float("nan")
    values = [tuple(nan if v is None else v for v in line.values()) for line in found]
    return np.array(values, dtype)


def assert_rows(got: Rows, expected: Rows) -> None:
    """The same, bit for bit but for the kind of a NaN."""
    assert got.dtype == expected.dtype
    for name in expected.dtype.names or ():
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


def joined(parts: Sequence[Rows]) -> Rows:
    return np.concatenate(parts)
