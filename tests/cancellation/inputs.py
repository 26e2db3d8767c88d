"""Auxiliary files, the longest there may be."""

from __future__ import annotations

import struct

import numpy as np

from tests.cancellation.leaving import Work
from tests.cancellation.place import Place, Prepare, Table

TABLE = Table()
PUT = "PUT /v1/inputs/{name}"
MOST = 128 << 20
"""Bytes of the largest input."""
PERIODS = 10_000_000


def occurrence_csv(place: Place, part: float) -> Work:  # noqa: ARG001 - a kind of work
    """The largest csv of occurrences."""
    line = b"1234,%d,2000,1,1\n"
    body = b"".join(line % period for period in range(1, int(5_700_000 * part)))
    assert len(body) <= MOST
    return Work("PUT", f"/v1/inputs/occurrence?no_of_periods={PERIODS}", body)


def lines(name: str, head: bytes, line: bytes, mean: int, *, most: int = MOST) -> Prepare:
    """A csv of lines with a number, of some bytes each."""

    def prepare(place: Place, part: float) -> Work:  # noqa: ARG001 - a kind of work
        count = int(most * part) // mean
        body = head + b"".join(line.replace(b"#", b"%d" % n) for n in range(1, count))
        assert len(body) <= MOST
        return Work("PUT", f"/v1/inputs/{name}", body)

    return prepare


def packed(name: str, *columns: str, head: bytes = b"") -> Prepare:
    """Packed records, numbered in all their columns."""

    def prepare(place: Place, part: float) -> Work:  # noqa: ARG001 - a kind of work
        dtype = np.dtype([(f"c{n}", column) for n, column in enumerate(columns)])
        rows = np.ones(int(MOST * part) // dtype.itemsize - 1, dtype)
        # From the last to the first, so that what has to ascend is sorted.
        rows["c0"] = rows["c1"] = np.arange(len(rows), 0, -1)
        return Work("PUT", f"/v1/inputs/{name}", head + rows.tobytes())

    return prepare


TABLE.add(PUT, "occurrences in csv", occurrence_csv)
TABLE.add(
    PUT,
    "packed occurrences",
    packed("occurrence", "<i4", "<i4", "<i4", head=struct.pack("<2i", 1, 12_000_000)),
)
TABLE.add(PUT, "packed xref", packed("summary_xref", "<i4", "<i4", "<i4"))
TABLE.add(
    PUT,
    "rates in csv",
    lines("event_rates", b"EventIds,Event_rates\n", b"#,0.5\n", 13),
)
TABLE.add(
    PUT,
    "a map in csv",
    lines("summary_map", b"loc_id,item_id,building_id\n", b"#,#,1\n", 20, most=24 << 20),
)
TABLE.add(
    PUT,
    "descriptions of summaries",
    lines("summary_info", b"summary_id,name\n", b"#,place #\n", 24, most=24 << 20),
)
