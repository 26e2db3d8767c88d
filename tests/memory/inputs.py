"""Auxiliary files: each kind in each form, as long as may be."""

from __future__ import annotations

import io
import struct
from gzip import compress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.memory.desk import Desk, Prepare, Request, Table
from tests.memory.losses import INT_MAX, occurrence, weights, xref

TABLE = Table("inputs")
PUT = "PUT /v1/inputs/{name}"

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


def storing(name: str, small: bytes, data: bytes, **headers: str) -> Prepare:
    """A file, after a small one."""

    def prepare(desk: Desk) -> Request:
        path = f"/v1/inputs/{name}"
        desk.send(Request.of("PUT", path, small, headers))
        return Request.of("PUT", path, data, headers)

    return prepare


for _name in HEADS:
    _small = csv_of(_name, 3)
    TABLE.add(PUT, f"{_name}, a csv", storing(_name, _small, csv_of(_name, 1000)))
    TABLE.add(PUT, f"{_name}, a long csv", storing(_name, _small, csv_of(_name, 400_000)))

_SMALL = csv_of("periods", 3)
TABLE.add(PUT, "packed occurrences", storing("occurrence", occurrence(3), occurrence(1_000_000)))
TABLE.add(PUT, "packed weights", storing("periods", weights(3), weights(1_000_000)))
TABLE.add(PUT, "packed xref", storing("summary_xref", xref(3, 1), xref(1_000_000, 2)))
TABLE.add(PUT, "parquet", storing("event_rates", parquet_of(3), parquet_of(1_000_000)))
TABLE.add(
    PUT,
    "a csv of 64 MiB",
    storing("periods", _SMALL, csv_of("periods", 3_600_000)),
    hostile=True,
)
TABLE.add(
    PUT,
    "packed xref of 120 MB",
    storing("summary_xref", xref(3, 1), xref(1_000_000, 10)),
    hostile=True,
)
TABLE.add(
    PUT,
    "the shortest lines",
    storing("return_periods", csv_of("return_periods", 3), b"\n" * (32 << 20)),
    hostile=True,
)
TABLE.add(
    PUT,
    "many columns",
    storing(
        "summary_info", csv_of("summary_info", 3), b"summary_id" + b",x" * 4_000_000 + b"\n1\n"
    ),
    hostile=True,
)
TABLE.add(
    PUT,
    "many different columns",
    storing(
        "summary_info",
        csv_of("summary_info", 3),
        (
            "summary_id," + ",".join(f"c{n}" for n in range(200_000)) + "\n1" + "," * 200_000
        ).encode(),
    ),
    hostile=True,
)
TABLE.add(
    PUT,
    "texts as long as may be",
    storing(
        "summary_info",
        csv_of("summary_info", 3),
        (
            f"summary_id,name\n1,{'y' * 1000}\n" + "".join(f"{n},x\n" for n in range(2, 400_000))
        ).encode(),
    ),
    hostile=True,
)
TABLE.add(
    PUT,
    "the largest numbers",
    storing("periods", _SMALL, f"period_no,weighting\n{INT_MAX},1\n".encode()),
    hostile=True,
)
TABLE.add(
    PUT,
    "the largest declared number of periods",
    storing("occurrence", occurrence(3), struct.pack("<5i", 1, INT_MAX, 1, INT_MAX, INT_MAX)),
    hostile=True,
)
TABLE.add(
    PUT,
    "a bomb",
    storing(
        "periods", compress(_SMALL), compress(bytes(100 << 20)), **{"Content-Encoding": "gzip"}
    ),
    hostile=True,
)
TABLE.add(
    PUT,
    "parquet of one value repeated",
    storing("event_rates", parquet_of(3), parquet_of(6_000_000)),
    hostile=True,
)


@TABLE.case("DELETE /v1/inputs/{name}/{digest}")
def deleting(desk: Desk) -> Request:
    small = desk.input("periods", _SMALL)
    desk.send(Request.of("DELETE", f"/v1/inputs/periods/{small}"))
    return Request.of("DELETE", f"/v1/inputs/periods/{desk.input('periods', weights(100_000))}")
