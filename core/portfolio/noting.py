"""What is said of a programme beside its results: defaults that were taken, and odd terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .layers import Recoveries
from .programme import TERMS, Layer, Programme

_NAMED = 5
"""Layers that a note names."""
_TINY = 1e-6
"""Part of the largest annual loss below which an amount is likely to be in another unit."""
_AFTER = {"CXL", "AXL", "PR", "SL"}
"""Types with terms of what CededPercent leaves."""


def notes_of(programme: Programme) -> Iterator[str]:
    """Yield notes about terms, each once and with the layers that it is about."""
    several = len(programme.layers) > 1
    rows: list[tuple[str, Callable[[Layer], bool]]] = [
        (
            "without InuringPriority it is 1, and layers of one priority apply to the same losses",
            lambda layer: several and "InuringPriority" not in layer.given,
        ),
        (
            "without Reinstatement and AggLimit the limit is paid for every loss of a period",
            lambda layer: (
                layer.kind in {"CXL", "PR"}
                and layer.line < math.inf
                and not layer.given & {"Reinstatement", "AggLimit"}
            ),
        ),
        (
            "without Start an hours clause begins with the first loss",
            lambda layer: layer.hours > 0 and "Start" not in layer.given,
        ),
        (
            "CededPercent is of each loss, before other terms; PlacedPercent is the layer's share",
            lambda layer: layer.kind in _AFTER and layer.terms["CededPercent"] < 1,
        ),
        (
            "ReinsPremium is more than the limit",
            lambda layer: layer.premium is not None and layer.premium > layer.line,
        ),
    ]
    for note, holds in rows:
        yield from _named(note, [layer.place for layer in programme.layers if holds(layer)])


def notes_on(recoveries: Recoveries) -> Iterator[str]:
    """Yield a note of layers whose amounts are tiny beside the losses."""
    largest = float(recoveries.gross_sums.max(initial=0.0))
    amounts = [name for name in TERMS if not name.endswith("Percent")]
    found = [
        layer.place
        for layer in recoveries.programme.layers
        if any(0 < layer.terms[name] < _TINY * largest for name in amounts)
    ]
    note = f"an amount is below a millionth of the largest annual loss, {largest:,.0f}: are both in"
    yield from _named(f"{note} one unit?", found)


def _named(note: str, places: list[str]) -> Iterator[str]:
    if places:
        yield f"{', '.join(places[:_NAMED])}{', …' * (len(places) > _NAMED)}: {note}"
