"""The rows that a caller wants."""

from __future__ import annotations

import numpy as np
import pytest

from app.errors import InvalidOptionError, TooLargeError, problem_of
from app.losses import selection
from app.losses.selection import (
    MAX_SETS,
    Chosen,
    RowSelection,
    choose_sets,
    parse_ids,
    parse_selection,
    parse_sets,
)
from core.losses.inputs import SummaryXref
from tests.core.test_slices import passes


def test_rows_of_some_summaries_and_events() -> None:
    rows = np.zeros(12, [("EventId", "<i4"), ("SummaryId", "<i4")])
    rows["EventId"], rows["SummaryId"] = np.repeat([5, 6, 9], 4), np.tile(np.arange(1, 5), 3)
    selected = parse_selection("3, 1-2,3", "4-5,9")(rows)
    assert selected.tolist() == [(5, 1), (5, 2), (5, 3), (9, 1), (9, 2), (9, 3)]
    assert parse_selection(None, "6")(rows)["SummaryId"].tolist() == [1, 2, 3, 4]
    assert parse_selection("7", None)(rows).tolist() == []
    assert parse_selection("7", "1")(rows[:0]).tolist() == []
    assert RowSelection()(rows) is rows


def test_ids_that_no_row_has_are_told() -> None:
    rows = np.zeros(12, [("EventId", "<i4"), ("SummaryId", "<i4")])
    rows["EventId"], rows["SummaryId"] = np.repeat([5, 6, 9], 4), np.tile(np.arange(1, 5), 3)
    chosen = Chosen(parse_selection("2,7", "4-10,6000-7000"))
    assert [len(chosen(rows[i : i + 4])) for i in (0, 4, 8)] == [1, 1, 1]
    assert chosen.count == 3
    # Summary 2 and event 6 have rows, whatever else is chosen.
    told = {"missing_summary_ids": "7", "missing_event_ids": "4,7-8,10,6000-7000"}
    assert chosen.missing == told
    assert Chosen(RowSelection()).missing == {}
    scattered = Chosen(parse_selection(",".join(map(str, range(1, 200, 2))), None))
    assert scattered.missing["missing_summary_ids"].endswith(",77,79,...")


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


def xref(items: int, sets: int) -> SummaryXref:
    """All items in set 1, and one item in each of the others."""
    ids = np.concatenate([np.arange(1, items + 1), np.ones(sets - 1, int)]).astype(np.int32)
    set_ids = np.concatenate([np.ones(items, int), np.arange(2, sets + 1)]).astype(np.int32)
    return SummaryXref(ids, np.ones_like(ids), set_ids, None)


def test_items_and_sets_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_PLACES", 1000)
    assert choose_sets(xref(100, 10), None, None).set_ids == tuple(range(1, 11))
    with pytest.raises(TooLargeError) as caught:
        choose_sets(xref(101, 10), None, None)
    assert caught.value.members == {"limit": "summary_sets", "allowed": 1000, "setting": None}
    assert choose_sets(xref(101, 10), [1, 2], None).set_ids == (1, 2)


def test_too_many_sets_are_refused_before_they_are_looked_at() -> None:
    with pytest.raises(InvalidOptionError, match="100000 sets"):
        choose_sets(xref(1, 100_000), None, None)
    assert len(choose_sets(xref(1, MAX_SETS), None, None).set_ids) == MAX_SETS


def test_lists_of_sets() -> None:
    assert parse_sets("4, 1") == (4, 1)
    for text in ("", ",", "1,1", "0", "-1", "1-3", "x", ",".join(map(str, range(1, 102)))):
        with pytest.raises(InvalidOptionError) as caught:
            parse_sets(text)
        assert caught.value.members["option"] == "sets"


def test_sets_of_many_items_are_chosen_in_slices() -> None:
    chosen = xref(100, 1)
    # The sets twice, the items, and twice what is numbered; then the table is filled.
    assert passes(lambda: choose_sets(chosen, None, None), 100) == 2 * 5 + 6 + 2 * 6 + 1
