"""Sums of 64-bit integers against Python's, which have no limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.errors import CastingError
from core.tiles.convert import convert, halves, joined
from tests.scale import examples

LIMITS = {"i8": (-(2**63), 2**63 - 1), "u8": (0, 2**64 - 1)}


def drawn(rng: np.random.Generator, code: str) -> list[int]:
    """Values of all sizes, mostly near the limits of the type."""
    low, high = LIMITS[code]
    near = [low, high, low + 1, high - 1, 0, 1, 2**32, 2**32 - 1, 2**53 + 1]
    small = [v for v in (-1, -(2**32), -(2**32) - 1) if v >= low]
    count = int(rng.integers(1, 9))
    return [
        int(rng.choice(np.array(near + small, object)))
        if rng.random() < 0.6
        else int(rng.integers(0, 2**62)) * (-1 if low and rng.random() < 0.5 else 1)
        for _ in range(count)
    ]


@pytest.mark.parametrize("code", ["i8", "u8"])
def test_sums_are_exact_or_refused(code: str) -> None:
    rng = np.random.default_rng(7)
    low, high = LIMITS[code]
    dtype = np.dtype(code)
    seen = {True: 0, False: 0}
    for _ in range(examples(400)):
        values = drawn(rng, code)
        sums = halves(np.array(values, dtype)).sum(axis=1, keepdims=True)
        total = sum(values)
        args = (sums, code == "u8", dtype)
        fits = low <= total <= high
        seen[fits] += 1
        if fits:
            assert joined(*args, "safe").tolist() == [total]
        else:
            with pytest.raises(CastingError):
                joined(*args, "safe")
        assert joined(*args, "clip").tolist() == [min(max(total, low), high)]
        assert joined(*args, "wrap").tolist() == [(total - low) % 2**64 + low]
        made = joined(sums, code == "u8", np.dtype("f8"), "safe")
        assert made[0] == pytest.approx(float(total), rel=2**-52, abs=0)
    assert min(seen.values()) > 0


@pytest.mark.parametrize(("value", "wanted"), [(1.66, "floating"), (1e20, "wider")])
def test_what_would_hold_a_value(value: float, wanted: str) -> None:
    with pytest.raises(CastingError, match=f"Request a {wanted} dtype"):
        convert(np.array([value]), np.zeros(1, "<i4"), "safe")


@pytest.mark.parametrize("casting", ["safe", "wrap", "clip"])
@pytest.mark.parametrize("code", ["u2", "i8", "?"])
def test_no_integer_is_made_of_nan(casting: Any, code: str) -> None:  # noqa: ANN401
    for values in (np.array([1.0, np.nan]), np.array([np.nan], "f2")):
        with pytest.raises(CastingError, match="a value is NaN") as caught:
            convert(values, np.empty(values.shape, code), casting)
        assert "floating" in str(caught.value.hint)
