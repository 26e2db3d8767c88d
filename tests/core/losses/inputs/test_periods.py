from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.losses.inputs import Data, Form, Periods, encode_periods, parse_periods
from tests.auxiliary import assert_refused, conformance
from tests.scale import examples


def packed(*records: tuple[int, float]) -> bytes:
    return b"".join(struct.pack("<id", *record) for record in records)


def test_weights_of_the_csv_are_those_of_the_packed_file() -> None:
    data = conformance("aux_files/periods.bin")
    periods = parse_periods(data)
    assert periods.weights.tolist() == [0.15, 0.05, 0.4, 0.1, 0.3]
    assert periods.sum_to_one
    assert parse_periods(conformance("aux_files/periods.csv")).weights.tolist() == list(
        periods.weights
    )
    assert encode_periods(periods, "bin") == data
    assert encode_periods(periods, "csv").split() == conformance("aux_files/periods.csv").split()


def test_a_period_without_weight_is_named() -> None:
    for name in ("periods_missing.bin", "periods_missing.csv"):
        data = conformance(f"aux_files/{name}")
        with pytest.raises(
            InputError, match="1 of 5 periods have no weight, the first is period 4"
        ):
            parse_periods(data)


@pytest.mark.parametrize(
    "data",
    [
        packed((2, 0.75), (1, 0.25)),
        b"2,0.75\n1,0.25",
        b"weighting,period_no\r\n.75,2\r\n.25,1\r\n",
        {"Period_No": np.array([2, 1], np.int32), "weighting": np.array([0.75, 0.25])},
    ],
)
def test_periods_may_come_in_any_order(data: Data) -> None:
    assert parse_periods(data, 2).weights.tolist() == [0.25, 0.75]


def test_weights_that_do_not_sum_to_one_are_told() -> None:
    assert not parse_periods(packed((1, 0.5), (2, 0.4))).sum_to_one
    assert parse_periods(packed((1, 0.5), (2, 0.4))).total == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("data", "count", "message", "offset"),
    [
        (b"", None, "there is no data", None),
        (b"1,0.5\n2,0.5", 1, "line 2: period_no 2 is not in 1 to 1", None),
        (b"1,0.5\n2,0.5", 3, "1 of 3 periods have no weight, the first is period 3", None),
        (b"0,0.5", None, "line 1: period_no 0 is not in 1 to 2147483647", None),
        (b"1,0.5\n1,0.5", None, "line 2: period_no 1 is already in line 1", None),
        (b"1,nan", None, "line 1: weighting nan is negative or not finite", None),
        (b"1,1e39", None, "line 1: weighting 1e+39 is beyond float32", None),
        (b"1,-1", None, "line 1: weighting -1.0 is negative or not finite", None),
        (packed((1, 0.5)) + b"1", None, "record 2 is cut off after 1 of 12 bytes", 12),
        (packed((1, 0.5), (2, np.inf)), None, "record 2: weighting inf is negative", 16),
        (packed((3, 0.5)), 2, "record 1: period_no 3 is not in 1 to 2", 0),
        (
            packed((1, 1), (4, 1)),
            None,
            "2 of 4 periods have no weight, the first is period 2",
            None,
        ),
        ({"period_no": np.array([1.5]), "weighting": np.ones(1)}, None, "column period_no", None),
        ({"period_no": np.ones(1, int)}, None, "the columns are period_no", None),
        (
            {"period_no": np.ones(0, int), "weighting": np.ones(0)},
            None,
            "there are no rows",
            None,
        ),
        (
            {"period_no": np.array([1, 1]), "weighting": np.ones(2)},
            None,
            "row 2: period_no 1 is already in row 1",
            None,
        ),
    ],
)
def test_periods_are_refused(
    data: Data, count: int | None, message: str, offset: int | None
) -> None:
    assert_refused(message, offset, parse_periods, data, count)


@given(
    st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=20),
    st.sampled_from(["csv", "bin"]),
)
@settings(max_examples=examples(50))
def test_weights_written_are_read_back(weights: list[float], form: Form) -> None:
    periods = Periods(np.abs(np.array(weights)))
    assert parse_periods(encode_periods(periods, form)).weights.tolist() == list(periods.weights)
