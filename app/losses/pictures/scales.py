"""Units and ticks of axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_UNITS = ((1.0, ""), (1e3, "thousand"), (1e6, "million"), (1e9, "billion"), (1e12, "trillion"))
_TOO_LONG = 9e5
"""Amounts from which ticks would have seven digits."""
_MANTISSAS = (1, 2, 5)
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit in which amounts are written."""

    divisor: float
    label: str
    """Such as ``million EUR``; empty for plain amounts without currency."""

    def write(self, amount: float, decimals: int) -> str:
        """An amount with thousands separators."""
        return f"{amount / self.divisor:,.{decimals}f}".replace("-", "\N{MINUS SIGN}")

    def title(self, quantity: str) -> str:
        """The title of an axis."""
        return f"{quantity} ({self.label})" if self.label else quantity


def choose_unit(maxima: Iterable[float], currency: str | None) -> Unit:
    """The largest unit in which no axis ends below one, or one that keeps numbers short.

    Args:
        maxima: largest amount of each axis.
        currency: code of the currency, or None.
    """
    positive = [value for value in maxima if value > 0] or [1.0]
    divisor, name = _UNITS[0]
    for larger, larger_name in _UNITS[1:]:
        # Thousands only shorten: an axis that ends at 50,000 is written out.
        suits = larger <= min(positive) and larger_name != "thousand"
        if suits or max(positive) / divisor >= _TOO_LONG:
            divisor, name = larger, larger_name
    if currency is not None:
        return Unit(divisor, f"{name} {currency}".strip())
    return Unit(divisor, name and f"{name}s")


def ticks_within(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers within a range, evenly spaced.

    Args:
        low: start of the axis.
        high: its end, above the start.
        about: how many steps to fit in at the most.
    """
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in _STEPS if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_labels(ticks: Sequence[float], unit: Unit) -> list[str]:
    """The ticks of an axis in a unit, with as many decimals as tell them apart."""
    scaled = [tick / unit.divisor for tick in ticks]
    step = min((b - a for a, b in itertools.pairwise(scaled)), default=1.0)
    decimals = next(d for d in range(30) if abs(round(step, d) - step) <= step * 1e-6)
    return [unit.write(tick, decimals) for tick in ticks]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2, 5, 10, … within a range; where these are too many, powers of ten only.

    Args:
        low: start of the axis, above 0.
        high: its end.
        most: ticks, at the most.
    """
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for mantissas in (_MANTISSAS, (1,)):
        values = (m * 10.0**e for e in exponents for m in mantissas)
        ticks = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def short_number(value: float) -> str:
    """A number of years or samples with thousands separators."""
    return f"{value:,.10g}"


def three_digits(amount: float, unit: Unit) -> str:
    """An amount with about three significant digits, for labels of bars."""
    scaled = abs(amount / unit.divisor)
    decimals = 0 if scaled == 0 else max(0, 2 - math.floor(math.log10(scaled)))
    return unit.write(amount, min(decimals, 6))
