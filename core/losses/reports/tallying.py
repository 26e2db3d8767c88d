"""Curves of one large summary at return periods, from tallies of its losses.

``_kernels/tallies.py`` explains them. They pay where each sample has some dozen losses for each
return period. Elsewhere, and where years have weights, losses are listed by curve and selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...arrays import Array, Floats, Indices, Mask
from ...budget import Scope, current
from ...slices import SLICE, grouped, slices
from .._kernels import tallies as kernel
from .._kernels.cells import Cells

_MOST_BUCKETS = 256
"""Few enough that those of a hundred samples fit into a second-level cache."""
_CELLS_PER_BUCKET = 4
"""So that tallies take less memory than losses."""
_LEAST_CELLS = 64
"""Cells of each sample from which on tallies pay."""
_KEPT_BYTES = 12
_STEP = SLICE // 2


class Tallied(NamedTuple):
    """Losses that curves are read from, shape (curves, 3, return periods)."""

    full: Floats
    """Of all samples: one curve, or none if no sample is there."""
    samples: Floats
    """Of each sample that is there."""
    labels: Indices
    """Number of each of these, from 1 on."""


class Repeated(NamedTuple):
    """Groups of cells that stand for several periods each, with the same losses."""

    times: Indices
    """Periods that each group stands for, shape (groups,)."""
    alone: int
    """Groups, the first ones, whose sums are their largest losses."""


def pays(cells: int, samples: int) -> bool:
    """Whether a summary has enough cells for tallies."""
    return cells >= _LEAST_CELLS * (samples + 1)


class Tally:
    """The losses of a summary by sample and bucket.

    Args:
        cells: of one summary.
        repeated: of its groups.
        samples: len_sample.

    Raises:
        WorkStoppedError: nobody waits for the result.
    """

    def __init__(self, cells: Cells, repeated: Repeated, samples: int) -> None:
        self._cells, self._repeated = cells, repeated
        self._buckets, count = _choose_buckets(cells, samples)
        self._present = np.zeros(samples + 1, np.uint8)
        self._alone = np.zeros((samples + 1, count, kernel.FIELDS), np.int64)
        self._count(0, repeated.alone, cells.sums, self._alone)

    def read(self, losses: Floats, full: Indices, samples: Indices) -> Tallied:
        """Find the losses that curves are read from.

        Args:
            losses: sums or largest losses of the cells.
            full: ranks of the curve of all samples, as :meth:`Drawing.first` has them.
            samples: ranks of the curve of each sample.

        Raises:
            WorkStoppedError: they do not fit, or nobody waits for the result.
        """
        tallies = self._alone.copy()
        groups = len(self._cells.periods)
        self._count(self._repeated.alone, groups, losses, tallies)
        # In place of the numerical mean, which is in no curve of samples, all samples.
        tallies[0] = tallies[1:].sum(0)
        ranked = np.vstack([_ranked(tallies[:1], full), _ranked(tallies[1:], samples)])
        ranked |= ranked[0]
        ranked[0] = False
        sizes = np.where(ranked, tallies[..., kernel.CELLS], 0)
        # By bucket, then by sample: those of all samples are one after the other.
        ends = np.ascontiguousarray(sizes.T.cumsum().reshape(sizes.T.shape).T)
        begins = ends - sizes
        ends[0] = ends[-1]
        size, longest = int(sizes.sum()), int((ends - begins).max())
        with Scope("curves", _KEPT_BYTES * (size + longest)):
            kept = kernel.make_kept(size, longest)
            places = np.where(ranked, begins, -1).astype(np.int32)
            for of_groups in self._groups(0, groups, losses):
                kernel.keep(*of_groups, self._buckets, places, kept)
            curves = _Curves(tallies, begins, ends, kept, self._buckets)
            of_samples = 1 + np.flatnonzero(self._present[1:])
            of_all = np.zeros(min(len(of_samples), 1), np.int64)
            return Tallied(curves.read(of_all, full), curves.read(of_samples, samples), of_samples)

    def _count(self, first: int, last: int, losses: Floats, tallies: Indices) -> None:
        for of_groups in self._groups(first, last, losses):
            kernel.tally(*of_groups, self._buckets, self._present, tallies)

    def _groups(
        self, first: int, last: int, losses: Floats
    ) -> Iterator[tuple[Indices, Array, Indices, Indices]]:
        """What kernels need of some groups at a time."""
        starts, bits = self._cells.starts[first : last + 1], losses.view(np.int64)
        times = self._repeated.times[first:last]
        for a, b in grouped(starts, "curves", _STEP):
            yield starts[a : b + 1], self._cells.samples, bits, times[a:b]


class _Curves(NamedTuple):
    """Curves, the first of all samples, then one of each sample."""

    tallies: Indices
    begins: Array
    ends: Array
    kept: kernel.Kept
    buckets: kernel.Buckets

    def read(self, curves: Indices, first: Indices) -> Floats:
        """Find the losses that some curves are read from."""
        found = np.zeros((len(curves), 3, len(first)))
        begins, ends = self.begins[curves], self.ends[curves]
        work = np.append(0, (ends - begins).sum(1).cumsum())
        for a, b in grouped(work, "curves", _STEP) if first.any() else ():
            given = (self.tallies[curves[a:b]], self.buckets, begins[a:b], ends[a:b], self.kept)
            kernel.read_tallies(*given, first, found[a:b], found[a:b].view(np.int64))
        return found


def _ranked(tallies: Indices, first: Indices) -> Mask:
    """In which buckets of curves the ranks are, and the ranks before; shape (curves, buckets)."""
    ranked = np.zeros(tallies.shape[:2], np.bool_)
    falling = ranked[:, ::-1]
    counts = tallies[:, ::-1, kernel.LOSSES].cumsum(1)
    for rank in np.unique([first, first - 1]):
        current().check("curves")
        if rank > 0:
            at = (counts < rank).sum(1)
            there = np.flatnonzero(at < counts.shape[1])
            falling[there, at[there]] = True
    return ranked


def _choose_buckets(cells: Cells, samples: int) -> tuple[kernel.Buckets, int]:
    """Buckets that reach from the least loss above 0 to the largest sum, and how many they are."""
    count = int(cells.starts[-1])
    bounds = np.array([kernel.MOST_BITS, 0])
    for a, b in slices(count, "curves"):
        for losses in (cells.sums, cells.largest):
            kernel.find_bounds(losses[a:b].view(np.int64), bounds)
    least, most = bounds.tolist()
    if most == 0:
        return kernel.Buckets(0, 0), 1
    room = max(min(count // (_CELLS_PER_BUCKET * (samples + 1)), _MOST_BUCKETS), 1)
    shift = 0
    while shift < kernel.MOST_SHIFT and (most >> shift) - (least >> shift) >= room:
        shift += 1
    base = least >> shift
    return kernel.Buckets(shift, base), (most >> shift) - base + 1
