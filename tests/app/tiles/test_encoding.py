"""What answers about plans take."""

from __future__ import annotations

import pytest

from app.engine.request_budget import BudgetLimits, RequestBudget
from app.tiles.encoding import plan_arrow
from core.errors import BudgetExceededError
from tests.core.tiles.test_plan import plan


class _Never:
    def is_set(self) -> bool:
        return False


def test_a_table_of_tiles_is_charged_before_it_is_made() -> None:
    made = plan(100_000, (100_000,), tile_shape=[1, 1, 1])
    size = len(plan_arrow(made))
    for memory in (size, 3 * size):
        budget = RequestBudget(BudgetLimits(memory=memory), _Never(), _Never())
        if memory == size:
            with pytest.raises(BudgetExceededError, match="plan"):
                budget.run(plan_arrow, made)
        else:
            assert len(budget.run(plan_arrow, made)) == size
            assert budget.held == 0
            assert size < budget.peak < 3 * size
