"""Auxiliary files: each kind in each form, as long as may be."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from functools import partial
from gzip import compress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.losses.inputs.rows import MAX_POINTS
from tests.memory.desk import Desk, Prepare, Request, Table
from tests.memory.losses import INT_MAX, occurrence, weights, xref

TABLE = Table("inputs")
PUT = "PUT /v1/inputs/{name}"
Made = Callable[[], bytes]

DAYS = "event_id,period_no,occ_year,occ_month,occ_day\n"
HEADS = {
    "quantiles": "quantile\n",
    "event_rates": "EventIds,Event_rates\n",
    "occurrence": DAYS,
    "periods": "period_no,weighting\n",
    "return_periods": "return_period\n",
    "summary_xref": "item_id,summary_id,summaryset_id\n",
    "summary_map": "loc_id,item_id,building_id\n",
    "summary_info": "summary_id,name\n",
}
"""Titles of csv files."""


def csv_of(name: str, rows: int) -> bytes:
    """A csv of so many rows."""
    line = {
        "quantiles": lambda n: f"{n / (rows + 1):.7f}\n",
        "event_rates": lambda n: f"{n},0.5\n",
        "occurrence": lambda n: f"{n},{n % 1000 + 1},2000,1,1\n",
        "periods": lambda n: f"{n},{1 / rows:.9f}\n",
        "return_periods": lambda n: f"{rows + 1 - n}\n",
        "summary_xref": lambda n: f"{n},{n},1\n",
        "summary_map": lambda n: f"{n},{n},1\n",
        "summary_info": lambda n: f"{n},place {n}\n",
    }[name]
    return (HEADS[name] + "".join(map(line, range(1, rows + 1)))).encode()


def parquet_of(rows: int) -> bytes:
    """Rates of so many events as parquet."""
    numbers = np.arange(1, rows + 1)
    sink = io.BytesIO()
    table = pa.table({"EventIds": numbers, "Event_rates": np.full(rows, 0.5)})
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def storing(name: str, small: Made, made: Made, **headers: str) -> Prepare:
    """A file, after a small one."""

    def prepare(desk: Desk) -> Request:
        path = f"/v1/inputs/{name}"
        desk.send(Request.of("PUT", path, small(), headers))
        return Request.of("PUT", path, made(), headers)

    return prepare


def few(name: str) -> Made:
    """A csv of three rows."""
    return partial(csv_of, name, 3)


for _name in HEADS:
    TABLE.add(PUT, f"{_name}, a csv", storing(_name, few(_name), partial(csv_of, _name, 1000)))
    _rows = MAX_POINTS if _name in {"quantiles", "return_periods"} else 400_000
    _long = partial(csv_of, _name, _rows)
    TABLE.add(PUT, f"{_name}, a long csv", storing(_name, few(_name), _long))

TABLE.add(
    PUT,
    "packed occurrences",
    storing("occurrence", partial(occurrence, 3), partial(occurrence, 1_000_000)),
)
TABLE.add(
    PUT, "packed weights", storing("periods", partial(weights, 3), partial(weights, 1_000_000))
)
TABLE.add(
    PUT, "packed xref", storing("summary_xref", partial(xref, 3, 1), partial(xref, 1_000_000, 2))
)
TABLE.add(
    PUT,
    "parquet",
    storing("event_rates", partial(parquet_of, 3), partial(parquet_of, 1_000_000)),
)


def hostile(name: str, kind: str, made: Made, small: Made | None = None, **headers: str) -> None:
    """Add a file that costs more than it seems to."""
    small = small or few(kind)
    TABLE.add(PUT, name, storing(kind, small, made, **headers), hostile=True)


def described(*lines: str) -> bytes:
    return "\n".join(["summary_id,name", *lines, ""]).encode()


hostile("a csv of 64 MiB", "periods", lambda: csv_of("periods", 3_600_000))
hostile("packed xref of 120 MB", "summary_xref", lambda: xref(1_000_000, 10))
hostile("the shortest lines", "return_periods", lambda: b"\n" * (32 << 20))
hostile("many columns", "summary_info", lambda: b"summary_id" + b",x" * 4_000_000 + b"\n1\n")
hostile(
    "many different columns",
    "summary_info",
    lambda: ",".join(["summary_id", *(f"c{n}" for n in range(200_000))]).encode() + b"\n1,\n",
)
hostile(
    "texts as long as may be",
    "summary_info",
    lambda: described(f"1,{'y' * 1000}", *(f"{n},x" for n in range(2, 400_000))),
)
hostile("the largest numbers", "periods", f"period_no,weighting\n{INT_MAX},1\n".encode)
hostile(
    "the largest declared number of periods",
    "occurrence",
    lambda: struct.pack("<5i", 1, INT_MAX, 1, INT_MAX, INT_MAX),
)
hostile(
    "a bomb",
    "periods",
    lambda: compress(bytes(100 << 20)),
    lambda: compress(csv_of("periods", 3)),
    **{"Content-Encoding": "gzip"},
)
hostile("parquet of one value repeated", "event_rates", lambda: parquet_of(6_000_000))


@TABLE.case("DELETE /v1/inputs/{name}/{digest}")
def deleting(desk: Desk) -> Request:
    small = desk.input("periods", csv_of("periods", 3))
    desk.send(Request.of("DELETE", f"/v1/inputs/periods/{small}"))
    return Request.of("DELETE", f"/v1/inputs/periods/{desk.input('periods', weights(100_000))}")
