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
_ROUNDING = 1e-9
"""Part of an amount by which sums and products may differ from what was meant."""
_Row = tuple[str, Callable[[Layer], bool]]
"""A note, and whether a layer needs it."""
_AMOUNTS = [name for name in TERMS if not name.endswith("Percent")]


def notes_of(programme: Programme) -> Iterator[str]:
    """Yield notes about terms, each once and with the layers that it is about."""
    several = len(programme.layers) > 1
    rows: list[_Row] = [
        (
            "without InuringPriority it is 1, and layers of one priority apply to the same losses",
            lambda layer: several and "InuringPriority" not in layer.given,
        ),
        (
            "without Reinstatement and AggLimit the limit is paid for every loss of a period",
            lambda layer: (
                layer.kind in {"CXL", "PR"}
                and layer.line < math.inf
                and not layer.given.keys() & {"Reinstatement", "AggLimit"}
            ),
        ),
        (
            "without Start an hours clause begins with the first loss",
            lambda layer: layer.hours > 0 and "Start" not in layer.given,
        ),
        (
            "CededPercent is of each loss, before other terms; PlacedPercent is the layer's share",
            lambda layer: _has_share(layer) and not layer.of_risks,
        ),
        (
            "CededPercent is of each risk's loss after RiskAttachment and RiskLimit, before others",
            lambda layer: _has_share(layer) and layer.of_risks,
        ),
        (
            "CededPercent, PlacedPercent or TreatyShare is 0, so that nothing is ever paid",
            lambda layer: 0 in {layer.terms["CededPercent"], layer.placed},
        ),
        (
            "ReinsPremium is more than the limit",
            lambda layer: layer.premium is not None and layer.premium > layer.line,
        ),
        (
            "AggLimit is less than the limit times Reinstatement + 1, and leaves less to reinstate",
            lambda layer: _less(layer.given.get("AggLimit"), _reinstated(layer)),
        ),
        (
            "AggLimit is more than the limit times Reinstatement + 1, and never reached",
            lambda layer: _less(_reinstated(layer), layer.given.get("AggLimit")),
        ),
        *_LIMITS,
        (
            "OccFranchiseDed is not more than OccAttachment, and changes nothing",
            lambda layer: 0 < layer.terms["OccFranchiseDed"] <= layer.terms["OccAttachment"],
        ),
        (
            "OccReverseFranchise is less than OccAttachment + OccLimit, which is never fully paid",
            lambda layer: _less(
                layer.given.get("OccReverseFranchise"),
                layer.terms["OccAttachment"] + layer.terms["OccLimit"],
            ),
        ),
    ]
    for note, holds in rows:
        yield from _named(note, [layer.place for layer in programme.layers if holds(layer)])


def _has_share(layer: Layer) -> bool:
    """Whether a layer has terms beside a share of losses, whose order may be taken for another."""
    return layer.terms["CededPercent"] < 1 and not layer.given.keys().isdisjoint(_AMOUNTS)


def _reinstated(layer: Layer) -> float | None:
    return (len(layer.charges) + 1) * layer.line if "Reinstatement" in layer.given else None


def _brought(layer: Layer, limit: str) -> float | None:
    """Most that a limit lets into those that follow; None if it is not given."""
    amount, share = layer.given.get(limit), layer.terms["CededPercent"]
    return amount * share if amount and limit == "RiskLimit" else amount


def _less(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one < other * (1 - _ROUNDING)


def _binding(low: str, high: str) -> _Row:
    note = f"{low} is less than {high}, which is never paid in full"
    return note, lambda layer: _less(layer.given.get(low), _brought(layer, high))


_LIMITS = [
    _binding("AggLimit", "OccLimit"),
    _binding("AggLimit", "RiskLimit"),
    _binding("OccLimit", "RiskLimit"),
]


def notes_on(recoveries: Recoveries) -> Iterator[str]:
    """Yield a note of layers whose amounts are tiny beside the losses."""
    largest = float(recoveries.gross_sums.max(initial=0.0))
    found = [
        layer.place
        for layer in recoveries.programme.layers
        if any(0 < layer.terms[name] < _TINY * largest for name in _AMOUNTS)
    ]
    note = f"an amount is below a millionth of the largest annual loss, {largest:,.0f}: are both in"
    yield from _named(f"{note} one unit?", found)


def _named(note: str, places: list[str]) -> Iterator[str]:
    if places:
        yield f"{', '.join(places[:_NAMED])}{', …' * (len(places) > _NAMED)}: {note}"
