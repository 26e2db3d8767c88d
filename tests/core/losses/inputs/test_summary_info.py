from __future__ import annotations

import numpy as np
import pytest

from core.losses.inputs import Data, encode_summary_info, parse_summary_info
from tests.auxiliary import CONFORMANCE, assert_refused

OUTPUT = CONFORMANCE / "oasis-run" / "run" / "output"


@pytest.mark.parametrize("name", ["gul_S1", "gul_S2", "il_S1", "ri_S2"])
def test_the_peers_files_are_read_and_written(name: str) -> None:
    path = OUTPUT / f"{name}_summary-info.csv"
    if not path.exists():
        pytest.skip(f"no conformance data at {path}")
    info = parse_summary_info(path.read_bytes())
    assert info.summary_ids.tolist() == list(range(1, len(info.summary_ids) + 1))
    assert list(info.columns)[-1] == "tiv"
    assert encode_summary_info(info).split() == path.read_bytes().split()


def test_summaries_are_sorted_and_texts_kept() -> None:
    text = b'\xef\xbb\xbftiv,Summary_Id,"Name, full"\r\n1.50,2,"a ""b"", c"\r\n2,1,\r\n\r\n'
    info = parse_summary_info(text)
    assert info.summary_ids.tolist() == [1, 2]
    assert {name: values.tolist() for name, values in info.columns.items()} == {
        "tiv": ["2", "1.50"],
        "Name, full": ["", 'a "b", c'],
    }
    again = parse_summary_info(encode_summary_info(info))
    assert {name: list(values) for name, values in again.columns.items()} == {
        name: list(values) for name, values in info.columns.items()
    }


def test_columns_become_texts() -> None:
    columns: Data = {"summary_id": np.array([2, 1]), "tiv": np.array([0.5, 1e20])}
    assert parse_summary_info(columns).columns["tiv"].tolist() == ["1e+20", "0.5"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "there is no data"),
        (b"tiv\n1", "no column is named summary_id"),
        (b"summary_id\n1", "summaries have no column but their id"),
        (b"summary_id,tiv,TIV\n1,1,1", "two columns are named tiv"),
        (b"summary_id,tiv\n1,1\n\n1,2", "line 4: summary_id 1 is already in line 2"),
        (b"summary_id,tiv\n1,1\n0,2", "line 3: summary_id 0 is not in 1 to 2147483647"),
        (b"summary_id,tiv\n1,1,1", "line 2: the number of columns is 3 and has to be 2"),
        (b'summary_id,tiv\n1,2\n2,"3\n3,4\n', "line 3: a quote is open to the end of the file"),
        (b'summary_id,tiv\n\n1,"2"0\n', "line 3: ',' expected after"),
        (b'"summary_id,tiv\n1,2\n', "line 1: a quote is open to the end of the file"),
        (b"summary_id,a\n\n1," + b"x" * 131_073, "line 3: a cell has more than 131,072 characters"),
        (b"summary_id" + b",a" * 4096 + b"\n1", "the header line has 4097 columns"),
        ({"summary_id": np.zeros(0, int), "tiv": np.zeros(0)}, "there are no rows"),
    ],
)
def test_summary_infos_are_refused(data: Data, message: str) -> None:
    assert_refused(message, None, parse_summary_info, data)


def test_a_control_character_is_named() -> None:
    message = "the byte 0x1a is a control character"
    assert_refused(message, 17, parse_summary_info, b"summary_id,tiv\n1,\x1a")


def test_a_row_of_several_lines_is_named_by_its_first() -> None:
    text = b'summary_id,name\n1,"a\nb"\n1,"c\nd\ne"\n'
    message = "line 4: summary_id 1 is already in line 2"
    assert_refused(message, None, parse_summary_info, text)


def test_cells_of_several_lines_are_written_as_one() -> None:
    text = b'summary_id,name\n1,"a\rb"\n2,"c\r\nd"\n'
    assert encode_summary_info(parse_summary_info(text)) == text
