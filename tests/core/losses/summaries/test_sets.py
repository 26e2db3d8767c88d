from __future__ import annotations

import numpy as np
import pytest

from core.errors import InputError
from core.losses.inputs import SummaryMap, SummaryXref
from core.losses.inputs.summary_xref import IdColumn
from core.losses.inputs.text_tables import MapColumn
from core.losses.summaries import SummarySets


def xref(*rows: tuple[int, int, int], column: IdColumn | None = None) -> SummaryXref:
    ids, summaries, sets = np.array(rows, np.int32).T
    return SummaryXref(ids, summaries, sets, column)


def summary_map(*rows: tuple[int, int, int], column: MapColumn = "item_id") -> SummaryMap:
    ids, locations, buildings = np.array(rows, np.int32).T
    return SummaryMap(ids, locations, buildings, column)


ROWS = ((4, 7, 2), (4, 1, 1), (9, 3, 2), (9, 1, 1))


def test_all_sets_are_taken_ascending_and_requested_ones_in_their_order() -> None:
    assert SummarySets(xref(*ROWS)).set_ids == (1, 2)
    assert SummarySets(xref(*ROWS), [2]).set_ids == (2,)
    assert SummarySets(xref(*ROWS), [2, 1]).set_ids == (2, 1)


def test_summaries_are_numbered_by_set_and_id() -> None:
    sets = SummarySets(xref(*ROWS), [2, 1])
    assert [sets.summary(number) for number in range(sets.summaries)] == [(2, 3), (2, 7), (1, 1)]
    assert sets.places.items.tolist() == [4, 9]
    assert sets.places.summaries.tolist() == [[1, 2], [0, 2]]


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ([3], r"no summary set 3\. Choose from the sets of the xref: 1, 2"),
        ([1, 4], "no summary set 4"),
        ([0], "no summary set 0"),
        ([], "no summary set is requested. Choose 1, 2"),
        ([1, 1], "requested twice"),
    ],
)
def test_sets_that_cannot_be_are_refused(requested: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        SummarySets(xref(*ROWS), requested)
    assert caught.value.parameter == "sets"


def test_risks_are_buildings_of_locations() -> None:
    risks = summary_map((9, 5, 1), (4, 5, 2))
    sets = SummarySets(xref(*ROWS), None, risks)
    assert sets.counts_risks
    assert sets.pair_count == 4  # two items, each a risk of its own, in two sets
    same = SummarySets(xref(*ROWS), None, summary_map((9, 5, 1), (4, 5, 1)))
    assert same.pair_count == 3  # in set 1 both are in one summary


@pytest.mark.parametrize(
    ("given", "column", "message"),
    [
        (((4, 1, 1),), "item_id", "lacks items of the xref: 9"),
        (((4, 1, 1), (9, 1, 1), (5, 1, 1)), "item_id", "has items that the xref lacks: 5"),
        (((4, 1, 1), (9, 1, 1)), "output_id", "of output_id, but the xref of item_id"),
    ],
)
def test_maps_of_other_items_are_refused(
    given: tuple[tuple[int, int, int], ...], column: MapColumn, message: str
) -> None:
    risks = summary_map(*given, column=column)
    with pytest.raises(InputError, match=rf"map\.csv: .*{message}"):
        SummarySets(xref(*ROWS, column="item_id"), None, risks, map_name="map.csv")


def test_many_missing_items_are_not_all_listed() -> None:
    rows = tuple((item, 1, 1) for item in range(1, 100))
    with pytest.raises(InputError, match=r"the xref: 2, 3, 4, 5, 6, \.\.\."):
        SummarySets(xref(*rows), None, summary_map((1, 1, 1)))
