"""Plans as tables: the tiles that are listed are charged before there is one."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable

import pytest

from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits
from app.tiles.encoding import plan_arrow, plan_json
from core.errors import BudgetExceededError
from core.tiles.plan import Plan
from tests.core.tiles.test_plan import plan

MIB = 1 << 20
TILES = 100_000
LISTINGS: dict[str, Callable[[Plan], object]] = {
    "arrow": plan_arrow,
    "json": lambda listed: plan_json(listed, 0, TILES),
}


@pytest.mark.parametrize("form", LISTINGS)
def test_listed_tiles_are_charged_before_they_take_memory(form: str) -> None:
    listed = plan(TILES, (TILES,), tile_shape=[1, 1, 1])
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
