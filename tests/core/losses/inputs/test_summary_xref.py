from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from core.losses.inputs import Data, encode_summary_xref, parse_summary_xref
from tests.auxiliary import CONFORMANCE, assert_refused

RUN = CONFORMANCE / "oasis-run" / "run" / "input"


def packed(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack("<3i", *row) for row in rows)


@pytest.mark.parametrize("name", ["gulsummaryxref", "fmsummaryxref", "RI_1/fmsummaryxref"])
def test_the_peers_files_are_read_and_written(name: str) -> None:
    if not RUN.is_dir():
        pytest.skip(f"no conformance data at {RUN}")
    data, text = (Path(RUN, f"{name}.{form}").read_bytes() for form in ("bin", "csv"))
    xref = parse_summary_xref(text)
    assert xref.id_column == ("item_id" if name.startswith("gul") else "output")
    assert xref.sets.tolist() == [1, 2]
    assert encode_summary_xref(xref, "csv").split() == text.split()
    assert encode_summary_xref(xref, "bin") == data
    again = parse_summary_xref(data)
    assert again.id_column is None
    assert encode_summary_xref(again, "bin") == data


def test_csv_without_header_does_not_tell_what_its_ids_are() -> None:
    xref = parse_summary_xref(b"3,1,1\n4,2,1\n3,1,2\n")
    assert xref.id_column is None
    assert (xref.ids.tolist(), xref.summary_ids.tolist()) == ([3, 4, 3], [1, 2, 1])
    assert encode_summary_xref(xref, "csv").startswith(b"item_id,")


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"", "there is no data", None),
        (b"item,summary_id,summaryset_id\n1,1,1", "line 1: the columns are item,summary", None),
        (b"1,1", "line 1: the number of columns is 2 and has to be 3", None),
        (b"1,1,1\n0,1,1", "line 2: item_id 0 is not in 1 to 2147483647", None),
        (b"output,summary_id,summaryset_id\n1,0,1", "line 2: summary_id 0 is not in 1", None),
        (b"1,1,0", "line 1: summaryset_id 0 is not in 1 to", None),
        (b"1,1,1\n1,1,2\n1,2,1", "line 3: item_id 1 is already in line 1, for the same", None),
        (packed((1, 1, 1), (2, 0, 1)), "record 2: summary_id 0 is not in 1", 16),
        (packed((1, 1, 1), (1, 2, 1)), "record 2: item_id 1 is already in record 1", 12),
        (packed((1, 1, 1))[:-2], "record 1 is cut off after 10 of 12 bytes", 0),
        (
            {"output": np.ones(2, int), "summary_id": np.ones(2, int), "summaryset_id": [1, 1]},
            "row 2: output 1 is already in row 1",
            None,
        ),
    ],
)
def test_summary_xrefs_are_refused(data: Data, message: str, offset: int | None) -> None:
    if not isinstance(data, bytes):
        data = {name: np.array(values) for name, values in data.items()}
    assert_refused(message, offset, parse_summary_xref, data)
