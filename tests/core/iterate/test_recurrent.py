"""Running results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.errors import StateError
from core.iterate.recurrent import SCANS, Scan
from core.iterate.sources import ArraySource
from tests.core.iterate.drain import drain
from tests.core.iterate.items import TEN, one


def test_running_results() -> None:
    x = np.array([3.0, -1.0, 4.0, 1.5])
    source = ArraySource({"x": x, "k": np.array([5, -7, 2, 2])})

    def run(fn: str, field: str, name: str, **args: float) -> list[Any]:
        return one(Scan(source, fn=fn, field=field, args=args), f"{field}.{name}")

    assert run("cumsum", "x", "cumsum") == np.cumsum(x).tolist()
    assert run("cumsum", "k", "cumsum") == [5, -2, 0, 2]
    assert run("diff", "k", "diff") == [0, -12, 9, 0]
    lacking = ArraySource({"x": np.array([np.nan, 1.0, np.inf])})
    first, *rest = one(Scan(lacking, fn="diff", field="x"), "x.diff")
    assert (first, np.isnan(rest[0]), rest[1]) == (0.0, True, np.inf)
    assert run("minmax", "x", "min") == [3, -1, -1, -1]
    assert run("minmax", "k", "max") == [5, 5, 5, 5]
    assert run("count", "k", "count") == [1, 2, 3, 4]
    assert run("ema", "x", "ema", alpha=0.5) == [3.0, 1.0, 2.5, 2.0]
    assert np.allclose(run("welford", "x", "mean"), [x[: k + 1].mean() for k in range(4)])
    assert np.allclose(run("welford", "x", "std"), [x[: k + 1].std() for k in range(4)])


@pytest.mark.parametrize("fn", sorted(SCANS))
def test_running_results_do_not_depend_on_cuts(fn: str) -> None:
    rng = np.random.default_rng(3)
    source = ArraySource({"x": rng.normal(size=200) * 1e3, "k": rng.integers(-(2**62), 2**62, 200)})
    args = {"alpha": 0.3} if fn == "ema" else {}
    for field in ("x", "k"):
        whole = drain(Scan(source, fn=fn, field=field, args=args), 300)
        for count in (1, 7, 64):
            assert drain(Scan(source, fn=fn, field=field, args=args), count) == whole


def test_an_accumulator_of_too_many_bits() -> None:
    stage = Scan(TEN, fn="cumsum", field="index")
    with pytest.raises(StateError):
        stage.take((2**32, 0, 1), 1)
