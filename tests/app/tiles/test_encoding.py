"""Tiles as JSON; plans as tables, whose tiles are charged before there is one."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits
from app.errors import TooLargeError
from app.tiles.encoding import MAX_JSON_VALUES, plan_arrow, plan_json, tile_values
from core.errors import BudgetExceededError
from core.tiles.plan import Plan
from tests.core.tiles.test_plan import plan

MIB = 1 << 20
TILES = {"arrow": 100_000, "json": 20_000}
"""As many as take some ten mebibytes."""
LISTINGS: dict[str, Callable[[Plan], object]] = {
    "arrow": plan_arrow,
    "json": lambda listed: plan_json(listed, 0, TILES["json"]),
}


@pytest.mark.parametrize("form", LISTINGS)
def test_listed_tiles_are_charged_before_they_take_memory(form: str) -> None:
    listed = plan(TILES[form], (TILES[form],), tile_shape=[1, 1, 1])
    list_tiles = LISTINGS[form]
    budgets = Budgets(BudgetLimits(memory=256 * MIB))
    list_tiles(plan(1, (1,)))  # libraries load on first use
    tracemalloc.start()
    try:
        with budgets.of_request("alice", threading.Event()) as budget:
            budget.run(list_tiles, listed)
            traced = tracemalloc.get_traced_memory()[1]
            assert traced <= budget.held + MIB
            assert budget.held <= 2 * traced + MIB
    finally:
        tracemalloc.stop()
    with (
        Budgets(BudgetLimits(memory=MIB)).of_request("alice", threading.Event()) as budget,
        pytest.raises(BudgetExceededError),
    ):
        budget.run(list_tiles, listed)


@pytest.mark.parametrize(
    "code", ["?", "u1", "i8", "u8", "f2", "f4", "f8", "g", "F", "D", "G", ">u2"]
)
def test_tiles_of_every_type_are_json(code: str) -> None:
    tile = np.array([[0, 1], [1, 0]]).astype(code)
    pairs = [[[0, 0], [1, 0]], [[1, 0], [0, 0]]]
    assert json.loads(tile_values(tile)) == (pairs if code in "FDG" else [[0, 1], [1, 0]])


def test_long_doubles_are_the_next_doubles_and_null_beyond() -> None:
    tile = np.array([np.longdouble(1) / 3, np.longdouble("1e4000")])
    assert json.loads(tile_values(tile)) == [1 / 3, None]


def test_a_tile_of_json_has_so_many_values() -> None:
    assert tile_values(np.zeros(MAX_JSON_VALUES, "?"))
    with pytest.raises(TooLargeError) as caught:
        tile_values(np.zeros(MAX_JSON_VALUES + 1, "?"))
    assert caught.value.members["allowed"] == MAX_JSON_VALUES
