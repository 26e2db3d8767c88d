"""Arrays of an analysis as JSON values, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import StateError
from ._kernels import layout
from ._kernels.layout import Totals
from .aggregators import Aggregator


def _encode(array: Array) -> str:
    return base64.b85encode(np.ascontiguousarray(array).tobytes()).decode()


def encode_totals(totals: Totals) -> list[str]:
    """Encode the pages of the open event's totals that are in use."""
    pages = np.flatnonzero(totals.touched).astype("<i4")
    sums = totals.sums.reshape(-1, layout.LANES)[pages]
    return [_encode(pages), _encode(sums.astype("<f8"))]


def restore_totals(totals: Totals, encoded: list[str] | None) -> None:
    """Restore totals.

    Raises:
        ValueError: they are missing or incomplete.
    """
    if encoded is None:
        raise ValueError("it has no totals")
    pages = np.frombuffer(base64.b85decode(encoded[0]), "<i4")
    sums = np.frombuffer(base64.b85decode(encoded[1]), "<f8").reshape(-1, layout.LANES)
    if len(pages) != len(sums) or np.any(pages < 0):
        raise ValueError("its totals are cut")
    totals.sums.reshape(-1, layout.LANES)[pages] = sums
    totals.touched[pages] = 1


def encode_aggregators(aggregators: Mapping[str, Aggregator]) -> dict[str, Any]:
    """Encode the state array of every aggregator."""
    return {
        name: [a.state.dtype.str, list(a.state.shape), _encode(a.state)]
        for name, a in aggregators.items()
    }


def restore_aggregators(aggregators: Mapping[str, Aggregator], states: Mapping[str, Any]) -> None:
    """Restore state arrays.

    Raises:
        StateError: they belong to other aggregators.
    """
    if set(states) != set(aggregators):
        raise StateError("the state is of an analysis with other aggregators")
    for name, (dtype, shape, text) in states.items():
        target = aggregators[name].state
        if (dtype, shape) != (target.dtype.str, list(target.shape)):
            raise StateError(f"the state of aggregator {name!r} has another shape")
        target[...] = np.frombuffer(base64.b85decode(text), target.dtype).reshape(shape)
