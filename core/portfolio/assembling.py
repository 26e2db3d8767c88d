"""Loss tables and calendars, put together of rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices, Mask
from ..budget import current
from ..errors import InputError
from ..losses.inputs import Occurrence
from ..slices import SLICE, slices
from ..sorting import order_of
from .losses import Calendar, LossTable, Occurrences

_TOLERANCE = 1e-6
"""Weights printed with nine decimals sum to one within this, however many they are."""
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class LossRows:
    """Rows with a loss above 0, shape (n,) each."""

    numbers: Indices
    """Row of the file, from 0."""
    events: Indices
    summaries: Indices
    samples: Indices
    losses: Floats
    periods: Indices
    dates: Indices

    def take(self, rows: Indices | Mask) -> LossRows:
        """Some of them, in an order."""
        at: Indices = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        return LossRows(*(picked(getattr(self, field.name), at) for field in fields(self)))


def picked(
    values: npt.NDArray[Value], at: npt.NDArray[np.integer[Any]], stage: str = "input"
) -> npt.NDArray[Value]:
    """Values at some places, taken in slices; shape of ``at``."""
    found = np.empty(len(at), values.dtype)
    for a, b in slices(len(at), stage):
        np.take(values, at[a:b], out=found[a:b])
    return found


def places_of(values: npt.NDArray[np.integer[Any]], ids: npt.NDArray[np.integer[Any]]) -> Indices:
    """Index of values among ascending ids, of which there is at least one; -1 of others."""
    found = np.empty(len(values), np.int64)
    for a, b in slices(len(values), "input", SLICE >> 3):
        at = np.minimum(np.searchsorted(ids, values[a:b]), len(ids) - 1)
        found[a:b] = np.where(ids[at] == values[a:b], at, -1)
    return found


def check_weights(weights: Floats | None, periods: int) -> Floats:
    """Weights of periods as a calendar has them.

    Raises:
        InputError: they are of another number of periods, or do not add up to 1.
    """
    if weights is None:
        return np.zeros(0)
    if len(weights) != periods:
        message = f"there are weights of {len(weights)} periods, and {periods} periods"
        raise InputError(message, hint="Give each period a weight")
    if abs(float(weights.sum()) - 1) > _TOLERANCE:
        message = f"the weights of the periods add up to {weights.sum():.9g}, not to 1"
        raise InputError(message, hint="Divide them by their sum, if that is what they mean")
    return weights


def order_by(*keys: Indices) -> Indices:
    """Order of rows by keys that are not negative, the first one first; equal rows stay."""
    order = np.arange(len(keys[0]))
    for key in reversed(keys):
        order = picked(order, order_of(picked(key, order), "input")[1])
    return order


def starts_by(*ordered: Indices) -> Indices:
    """Where each distinct tuple of ordered ones begins, and their number."""
    new = np.ones(len(ordered[0]) + 1, np.bool_)
    new[1:-1] = np.any([key[1:] != key[:-1] for key in ordered], axis=0)
    return np.flatnonzero(new)


def ends_of(counts: npt.NDArray[np.integer[Any]]) -> Indices:
    """Sums of the first 0, 1, 2 ... counts."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def spread(firsts: Indices, counts: npt.NDArray[np.integer[Any]]) -> Indices:
    """All indices of ranges, one after the other."""
    ends = np.cumsum(counts, dtype=np.int64)
    found: Indices = np.repeat(firsts - (ends - counts), counts) + np.arange(counts.sum())
    return found


def table_of(
    events: Indices, summaries: Indices, samples: Indices, losses: npt.NDArray[np.floating[Any]]
) -> LossTable:
    """Make a loss table of rows in order of event, summary and sample, shape (n,) each."""
    starts = starts_by(events, summaries)
    of_block = events[starts[:-1]]
    first = starts_by(of_block)
    return LossTable(
        of_block[first[:-1]].astype(np.int32),
        first,
        summaries[starts[:-1]].astype(np.int32),
        starts[:-1],
        starts[:-1].copy(),
        np.diff(starts).astype(np.int32),
        samples.astype(np.int32),
        losses,
    )


def occurrences_of(periods: Indices, events: Indices, dates: Indices) -> Occurrences:
    """Bring occurrences into the order of a calendar."""
    order = order_by(periods, dates, events)
    ids, numbers = (picked(v, order).astype(np.int32) for v in (events, periods))
    return Occurrences(numbers, ids, picked(dates, order))


def calendar_of(occurrence: Occurrence, weights: Floats | None = None) -> Calendar:
    """Make a calendar of an occurrence file and the weights of its periods.

    Raises:
        InputError: as :func:`check_weights`.
    """
    numbers, ids = (
        values.astype(np.int64) for values in (occurrence.period_numbers, occurrence.event_ids)
    )
    rows = occurrences_of(numbers, ids, occurrence.dates)
    weighted = check_weights(weights, occurrence.periods)
    return Calendar(occurrence.periods, rows, weighted, occurrence.calendar, occurrence.granular)


def repeated(table: LossTable, samples: int) -> LossTable:
    """Give a set of one sample several, all with its losses; and if it has no means, these too.

    Raises:
        WorkStoppedError: the losses do not fit, or nobody waits for the result.
    """
    first, last = table.losses_at, table.losses_at + table.counts - 1
    has_mean = picked(table.samples, table.samples_at) == 0
    has_sample = picked(table.samples, table.samples_at + table.counts - 1) > 0
    has_mean |= not has_mean.any()
    width = samples + 1
    current().hold("input", table.losses.dtype.itemsize * width * len(first))
    losses = np.empty((len(first), width), table.losses.dtype)
    for a, b in slices(len(first), "input", SLICE // width + 1):
        losses[a:b, 0] = table.losses[first[a:b]]
        losses[a:b, 1:] = table.losses[last[a:b], np.newaxis]
    skipped = (~has_mean).astype(np.int64)
    return table._replace(
        samples_at=skipped,
        losses_at=np.arange(len(first)) * width + skipped,
        counts=(has_mean + samples * has_sample).astype(np.int32),
        samples=np.arange(width, dtype=np.int32),
        losses=losses.ravel(),
    )
