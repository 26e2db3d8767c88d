from __future__ import annotations

import numpy as np
import pytest

from core.losses.inputs import Data, encode_summary_map, parse_summary_map
from tests.auxiliary import CONFORMANCE, assert_refused

RUN = CONFORMANCE / "oasis-run" / "run" / "input"


@pytest.mark.parametrize(("name", "column"), [("gul", "item_id"), ("fm", "output_id")])
def test_the_peers_files_are_read(name: str, column: str) -> None:
    path = RUN / f"{name}_summary_map.csv"
    if not path.exists():
        pytest.skip(f"no conformance data at {path}")
    summary_map = parse_summary_map(path.read_bytes())
    assert summary_map.id_column == column
    assert summary_map.ids.tolist() == list(range(1, len(summary_map.ids) + 1))
    # 16 locations, one of three buildings.
    assert len(np.unique(summary_map.loc_ids)) == 16
    assert len(np.unique(summary_map.risks())) == 18
    again = parse_summary_map(encode_summary_map(summary_map))
    assert again.ids.tolist() == summary_map.ids.tolist()
    assert again.risks().tolist() == summary_map.risks().tolist()


@pytest.mark.parametrize(
    "data",
    [
        b'loc_id,name,item_id,building_id\n1,"a, ""b""",5,1\n1,"two\nlines",6,2\n2,,4,1\n2,,4,1\n',
        {
            "Item_ID": np.array([5, 6, 4]),
            "loc_id": np.array([1, 1, 2]),
            "building_id": np.array(["1", "2", "1"]),
        },
    ],
)
def test_other_columns_may_be_anything(data: Data) -> None:
    summary_map = parse_summary_map(data)
    assert summary_map.ids.tolist() == [5, 6, 4]
    assert summary_map.risks().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no data"),
        (b"item_id,loc_id\n1,\xf6", "the bytes are not UTF-8 text"),
        (b"loc_id,building_id\n1,1", "no column is named item_id or output_id"),
        (b"item_id,building_id\n1,1", "no column is named loc_id"),
        (b"item_id,loc_id,building_id\n", "there is a header line but no other"),
        (b"item_id,loc_id,LOC_ID,building_id\n1,1,1,1", "two columns are named loc_id"),
        (b"item_id,loc_id,building_id\n1,1\n", "line 2: the number of columns is 2 and has to"),
        (b"item_id,loc_id,building_id\n1,1,1\nx,1,1", "line 3: item_id 'x' is not a 64-bit"),
        (b"item_id,loc_id,building_id\n1,1,1\n0,1,1", "line 3: item_id 0 is not in 1 to"),
        (b"item_id,loc_id,building_id\n1,1,99999999999999999999", "line 2: building_id '9999"),
        (b"item_id,loc_id,building_id\n1,1,1\n2,1,1\n1,1,2", "line 4: item_id 1 is in another"),
    ],
)
def test_summary_maps_are_refused(data: Data, message: str) -> None:
    assert_refused(message, None, parse_summary_map, data)
