"""Return periods beyond what the periods of a run can tell."""

from __future__ import annotations

import numpy as np
import pytest

from core.losses.inputs import Occurrence, Periods, ReturnPeriods
from core.losses.parameters import ReportInputs

EMPTY = np.zeros(0, np.int32)


@pytest.mark.parametrize(
    ("years", "weights", "longest"),
    [
        ([4, 2], None, None),
        ([5, 2], None, 4),
        ([10], [0.1, 0.2, 0.7, 0.0], None),
        ([11], [0.1, 0.2, 0.7, 0.0], 10),
        ([11], [0.4, 0.4, 1e-310, 0.2], None),
        ([3], [1 / 3 + 1e-9, 1 / 3, 1 / 3, 0.0], None),
    ],
)
def test_the_longest_return_period(
    years: list[int], weights: list[float] | None, longest: int | None
) -> None:
    inputs = ReportInputs(
        occurrence=Occurrence(4, EMPTY, EMPTY, np.zeros(0, np.int64)),
        periods=None if weights is None else Periods(np.array(weights)),
        return_periods=ReturnPeriods(np.array(years, np.int32)),
    )
    assert inputs.longest_return_period == longest


def test_every_point_of_a_curve_is_there() -> None:
    occurrence = Occurrence(4, EMPTY, EMPTY, np.zeros(0, np.int64))
    assert ReportInputs(occurrence=occurrence).longest_return_period is None
