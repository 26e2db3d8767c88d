"""Limits of summary sets, which hold before anything of their size is built."""

from __future__ import annotations

import numpy as np
import pytest

from app.errors import InvalidOptionError, TooLargeError
from app.losses import summary_sets
from app.losses.summary_sets import MAX_SETS, choose_sets, parse_sets
from core.losses.inputs import SummaryXref
from tests.core.test_slices import passes


def xref(items: int, sets: int) -> SummaryXref:
    """All items in set 1, and one item in each of the others."""
    ids = np.concatenate([np.arange(1, items + 1), np.ones(sets - 1, int)]).astype(np.int32)
    set_ids = np.concatenate([np.ones(items, int), np.arange(2, sets + 1)]).astype(np.int32)
    return SummaryXref(ids, np.ones_like(ids), set_ids, None)


def test_items_and_sets_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_sets, "MAX_PLACES", 1000)
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
