from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.losses.inputs import (
    Data,
    EventRates,
    Form,
    encode_event_rates,
    encode_quantiles,
    parse_event_rates,
    parse_occurrence,
    parse_periods,
    parse_quantiles,
    parse_return_periods,
    parse_summary_info,
    parse_summary_map,
    parse_summary_xref,
    quantiles_from_text,
    return_periods_from_text,
)
from tests.auxiliary import assert_refused, conformance
from tests.scale import examples


def test_quantiles_are_written_as_the_peer_writes_them() -> None:
    data = conformance("aux_files/quantile.bin")
    assert encode_quantiles(parse_quantiles(data), "bin") == data
    text = encode_quantiles(parse_quantiles(data), "csv")
    assert text.startswith(b"quantile\n0.0\n0.2\n")
    assert encode_quantiles(parse_quantiles(text), "bin") == data


# Less than the least normal float32 is the bytes of an integer.
_RATES = st.floats(0, 1e6).filter(lambda rate: rate == 0 or rate > 1.2e-38)


@given(
    st.dictionaries(st.integers(1, 2**31 - 1), _RATES, min_size=1, max_size=9),
)
@settings(max_examples=examples(50))
def test_event_rates_written_are_read_back(rates: dict[int, float]) -> None:
    ids = np.array(sorted(rates), np.int32)
    values = np.abs(np.array([rates[event] for event in sorted(rates)]))
    forms: tuple[Form, Form] = ("csv", "bin")
    for form in forms:
        back = parse_event_rates(encode_event_rates(EventRates(ids, values), form))
        assert back.event_ids.tolist() == ids.tolist()
        expected = values if form == "csv" else values.astype(np.float32).astype(float)
        assert back.rates.tolist() == expected.tolist()


def test_columns_are_found_by_name_in_any_order() -> None:
    columns: Data = {"event_rates": np.array([0.5, 1.0]), "EVENTIDS": np.array([7, 2])}
    assert parse_event_rates(columns).rates.tolist() == [1.0, 0.5]
    assert parse_quantiles({"Quantile": np.array([0.9, 0.1], np.float32)}).dtype == np.float32


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"EventIds": np.array([1])}, "the columns are EventIds. They have to be EventIds,Event"),
        (
            {"EventIds": np.array([1.0]), "Event_rates": np.array([1.0])},
            "column EventIds has values of type float64, not a 64-bit integer",
        ),
        (
            {"EventIds": np.array([1]), "Event_rates": np.array(["x"])},
            "column Event_rates has values of type <U1, not a number",
        ),
        ({"EventIds": np.zeros(0, int), "Event_rates": np.zeros(0)}, "there are no rows"),
        (
            {"EventIds": np.array([1, 0]), "Event_rates": np.zeros(2)},
            "row 2: EventIds 0 is not in 1 to",
        ),
    ],
)
def test_columns_are_refused(columns: Data, message: str) -> None:
    assert_refused(message, None, parse_event_rates, columns)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_quantiles, "quantile\r\n0.5\r\n0.9\r\n"),
        (parse_quantiles, "0.5\n"),
        (parse_event_rates, "EventIds,Event_rates\n1,0.5\n"),
        (parse_occurrence, "event_id,period_no,occ_date_id\n1,9,1\n"),
        (parse_periods, "period_no,weighting\n1,1.0\n"),
        (parse_return_periods, "return_period\n100\n50\n"),
        (parse_summary_xref, "item_id,summary_id,summaryset_id\n1,1,1\n"),
        (parse_summary_map, "loc_id,building_id,item_id\n1,1,1\n"),
        (parse_summary_info, "summary_id,tiv,place\n1,1.0,Zürich\n"),
    ],
)
def test_text_in_wide_characters_is_no_packed_file(
    parse: Callable[..., object], text: str, encoding: str
) -> None:
    for line_ends in (text, text.replace("\n", "\r\n")):
        with pytest.raises(InputError, match=f"it is text in {encoding[:6].upper()}") as caught:
            parse(line_ends.encode(encoding))
        assert caught.value.hint is not None
        assert "UTF-8" in caught.value.hint


def test_records_that_begin_as_a_mark_does_are_records() -> None:
    ids, rates = np.array([1, 65279], np.int32), np.array([0.25, 0.5])
    for first in (ids, ids[::-1]):
        data = encode_event_rates(EventRates(first, rates), "bin")
        assert parse_event_rates(data).event_ids.tolist() == [1, 65279]
    assert parse_return_periods(np.array([65279, 1000, 500], "<i4").tobytes()).years[0] == 65279


@pytest.mark.parametrize("value", [np.nan, -0.5, np.inf, 1.5])
def test_packed_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"quantile .* is not in 0 to 1"):
        parse_quantiles(np.array([value], "<f4").tobytes())
    record = np.array([(1, -abs(value) if value == 1.5 else value)], "<i4,<f4")
    with pytest.raises(InputError, match=r"Event_rates .* is negative or not finite"):
        parse_event_rates(record.tobytes())


TEXTS = st.text(st.sampled_from('0123456789.,-+e \r\n"\tnaif_\u2028\xa0'), max_size=60)
HEADERS = st.sampled_from(
    [
        b"period_no,weighting\n",
        b"return_period\n",
        b"item_id,summary_id,summaryset_id\n",
        b"item_id,loc_id,building_id\n",
        b"summary_id,tiv\n",
        b"",
    ]
)


@given(HEADERS, st.one_of(st.binary(max_size=64), TEXTS.map(str.encode)))
@settings(max_examples=examples(300))
def test_any_bytes_give_an_input_or_an_input_error(header: bytes, body: bytes) -> None:
    data = header + body
    with suppress(InputError):
        weights = parse_periods(data).weights
        assert (np.isfinite(weights) & (weights >= 0)).all()
    with suppress(InputError):
        years = parse_return_periods(data).years
        assert len(years) > 0
        assert (np.diff(years) < 0).all()
    with suppress(InputError):
        xref = parse_summary_xref(data)
        assert len(xref.ids) == len(xref.summary_ids) == len(xref.set_ids) > 0
    with suppress(InputError):
        assert len(np.unique(parse_summary_map(data).ids)) == len(parse_summary_map(data).ids) > 0
    with suppress(InputError):
        assert (np.diff(parse_summary_info(data).summary_ids, prepend=0) > 0).all()


@pytest.mark.parametrize(
    ("parse", "beyond"),
    [
        (parse_quantiles, b"quantile\n0.1\n0.2\n0.3\n"),
        (parse_quantiles, np.array([0.1, 0.2, 0.3], "<f4").tobytes()),
        (quantiles_from_text, "0.1,0.2,0.3"),
        (parse_return_periods, np.array([30, 20, 10], "<i4").tobytes()),
        (return_periods_from_text, "30,20,10"),
    ],
)
def test_points_have_a_limit(
    parse: Callable[[object], object], beyond: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse(beyond)
    monkeypatch.setattr("core.losses.inputs.rows.MAX_POINTS", 2)
    with pytest.raises(InputError, match=r"[34]: .* one too many: there may be 2"):
        parse(beyond)
