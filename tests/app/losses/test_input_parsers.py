"""One table of parsers, which the service and the command share."""

from __future__ import annotations

import pytest

from app.losses.input_parsers import PARSERS, parse_input
from app.losses.inputs import KINDS
from core.errors import InputError

BAD = b"\0\0\0"


def test_the_service_stores_what_can_be_parsed() -> None:
    assert tuple(PARSERS) == KINDS


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_names_the_file_at_fault(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_input(name, BAD, 3, "model.bin")
    assert caught.value.source == "model.bin"


def test_numbers_of_periods_matter_where_files_have_none() -> None:
    rows = b"event_id,period_no,occ_date_id\n1,2,735000\n"
    assert parse_input("occurrence", rows, 3).periods == 3
    weights = b"period_no,weighting\n1,0.5\n2,0.5\n"
    assert len(parse_input("periods", weights, 2).weights) == 2
    # One that another file has no use for is left alone.
    assert parse_input("quantiles", b"quantile\n0.5\n", 3).tolist() == [0.5]
