"""The rows that a caller wants."""

from __future__ import annotations

import numpy as np
import pytest

from app.errors import InvalidOptionError, problem_of
from app.losses.selection import RowSelection, parse_ids, parse_selection


def test_rows_of_some_summaries_and_events() -> None:
    rows = np.zeros(12, [("EventId", "<i4"), ("SummaryId", "<i4")])
    rows["EventId"], rows["SummaryId"] = np.repeat([5, 6, 9], 4), np.tile(np.arange(1, 5), 3)
    selected = parse_selection("3, 1-2,3", "4-5,9")(rows)
    assert selected.tolist() == [(5, 1), (5, 2), (5, 3), (9, 1), (9, 2), (9, 3)]
    assert parse_selection(None, "6")(rows)["SummaryId"].tolist() == [1, 2, 3, 4]
    assert parse_selection("7", None)(rows).tolist() == []
    assert parse_selection("7", "1")(rows[:0]).tolist() == []
    assert RowSelection()(rows) is rows


@pytest.mark.parametrize(
    ("report", "form", "option"),
    [("events", "csv", "summary_ids"), ("ept", "csv", "event_ids"), ("melt", "svg", "event_ids")],
)
def test_a_report_without_the_column_is_refused(report: str, form: str, option: str) -> None:
    selection = RowSelection(**{option: parse_ids("1")})
    with pytest.raises(InvalidOptionError, match=r"has no column|shows the losses") as caught:
        selection.check(report, form)
    assert problem_of(caught.value).members["option"] == option


def test_a_list_of_ids_ascends_without_repeats() -> None:
    assert parse_ids("3, 7-9,3,1").tolist() == [1, 3, 7, 8, 9]


@pytest.mark.parametrize(
    "text", ["", "a", "0", "3-1", "1-", "-1", "1-99999999", "1,,2", "2147483648"]
)
def test_lists_that_are_none(text: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_ids(text)
    assert problem_of(caught.value).status == 422
