"""Loss sets: the losses of events, and the occurrences of those.

A loss set has the losses above 0 of every event, summary and sample, and the numerical mean as
sample 0. A *block* is what one event does to one summary::

    events      |e2      |e5   |e9      |    ascending
    blocks      |s1 |s3  |s1   |s2 |s3  |    ascending by summary within an event
    rows        |0 1 4|2 |0 3 7|1  |0 1 |    samples of each block, ascending, with their losses

Rows lie where the file has them: ``samples`` and ``losses`` are views of one buffer, of which
each block knows its place. So a loss set is as large as a disk, and what a question does not
touch is never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices

Int32s = npt.NDArray[np.int32]


class LossTable(NamedTuple):
    """Losses by event, summary and sample."""

    event_ids: Int32s
    """Ascending and unique, shape (events,)."""
    event_starts: Indices
    """First block of each event, shape (events + 1,)."""
    summary_ids: Int32s
    """Ascending within each event, shape (blocks,)."""
    samples_at: Indices
    """Place of each block's first sample in ``samples``, shape (blocks,)."""
    losses_at: Indices
    """Place of each block's first loss in ``losses``, shape (blocks,)."""
    counts: Int32s
    """Rows of each block, shape (blocks,)."""
    samples: Int32s
    """0 for the numerical mean, else from 1 on."""
    losses: npt.NDArray[np.floating[Any]]
    """float32 or float64, finite and above 0."""


class Occurrences(NamedTuple):
    """When events happen, in the order in which a programme meets them.

    Rows are sorted by period, then date, then event id.
    """

    periods: Int32s
    """From 1 on, shape (occurrences,)."""
    event_ids: Int32s
    dates: Indices
    """Days, or minutes if ``granular``; where a model has no dates, ids that order, or all 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """The periods of a catalogue of events, and what happens in them."""

    periods: int
    """Number of periods, those without an occurrence included."""
    occurrences: Occurrences
    weights: Floats
    """Weights of the periods, which add up to 1, shape (periods,); empty if equally likely."""
    dated: bool = True
    """Whether ``dates`` are dates of the calendar."""
    granular: bool = False
    """Whether they count minutes instead of days."""


class OccurrenceLosses(NamedTuple):
    """Losses of one subject, such as a group or the whole, occurrence by occurrence.

    A *cell* is a period and a sample; its rows are in the order of its occurrences.
    """

    starts: Indices
    """First row of each cell, shape (cells + 1,)."""
    periods: Int32s
    """Period of each cell, ascending."""
    samples: Int32s
    """Sample of each cell, ascending within a period; 0 is the numerical mean."""
    occurrences: Int32s
    """Row of ``Occurrences`` of each loss, ascending within a cell; shape (rows,)."""
    losses: Floats
    """Above 0, shape (rows,)."""
