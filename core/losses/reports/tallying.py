"""Curves of one large summary at return periods, from tallies of its losses.

``_kernels/tallies.py`` explains them. They pay where each sample has some dozen losses for each
return period. Elsewhere, and where years have weights, losses are listed by curve and selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import Array, Floats, Indices, Mask
from ...budget import Scope, current
from ...slices import SLICE, grouped, slices
from .._kernels import tallies as kernel
from .._kernels.cells import WHOLES, Cells

_MOST_BUCKETS = 192
"""Few enough that those of a hundred samples fit into a second-level cache."""
_MOST_BINS = 4096
_LOOKED_AT = 1 << 16
"""Cells by which buckets are chosen."""
_CELLS_PER_BUCKET = 4
"""So that tallies take less memory than losses."""
_LEAST_CELLS = 64
"""Cells of each sample from which on tallies pay."""
_KEPT_BYTES = 12
_BUCKET_BYTES = 160
"""Tallies of what is alone, and of both kinds of curves with their places."""
_STEP = SLICE // 2


class Wanted(NamedTuple):
    """Losses of one kind, and the ranks at which they are wanted."""

    losses: Floats
    """Sums or largest losses of the cells."""
    full: Indices
    """Ranks of the curve of all samples, as :meth:`Drawing.first` has them."""
    samples: Indices
    """Ranks of the curve of each sample."""


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
    """Groups, the first ones, whose sums are their largest losses, which are left out."""
    wholes: Floats = np.empty((0, WHOLES))
    """WHOLES of each group; shape (groups, WHOLES), or empty where curves gather them."""


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
        WorkStoppedError: they do not fit, or nobody waits for the result.
    """

    def __init__(self, cells: Cells, repeated: Repeated, samples: int) -> None:
        self._cells, self._repeated = cells, repeated
        self._buckets = _choose_buckets(cells, repeated, samples)
        count = len(self._buckets.exponents)
        current().hold("curves", _BUCKET_BYTES * count * (samples + 1))
        self._empty = np.zeros(samples + 1, np.uint8)
        self._alone = np.zeros((samples + 1, count, kernel.FIELDS), np.int64)
        self._count(0, repeated.alone, cells.sums, self._alone)

    def read(self, wanted: Sequence[Wanted]) -> list[Tallied]:
        """Find the losses that curves are read from.

        Raises:
            WorkStoppedError: they do not fit, or nobody waits for the result.
        """
        size, curves = 0, []
        for kind in wanted:
            curves.append(self._arrange(kind, size))
            size = int(curves[-1].ends[-1, -1])
        longest = max(int((each.ends - each.begins).max()) for each in curves)
        with Scope("curves", _KEPT_BYTES * (size + longest)):
            kept = kernel.make_kept(size, longest)
            places = np.stack([each.places for each in curves])
            alone = self._repeated.alone
            self._keep(0, alone, self._cells.sums, places, kept)
            for k, kind in enumerate(wanted):
                self._keep(alone, None, kind.losses, places[k : k + 1], kept)
            has_loss = (curves[0].tallies[1:, :, kernel.CELLS] > 0).any(1)
            samples = 1 + np.flatnonzero(has_loss | (self._empty[1:] > 0))
            whole = np.zeros(min(len(samples), 1), np.int64)
            return [
                Tallied(
                    each.read(whole, kind.full, self._buckets, kept),
                    each.read(samples, kind.samples, self._buckets, kept),
                    samples,
                )
                for kind, each in zip(wanted, curves, strict=True)
            ]

    def _arrange(self, wanted: Wanted, at: int) -> _Curves:
        """Tally losses, and tell where those of buckets with a rank are kept, from ``at`` on."""
        tallies = self._alone.copy()
        self._count(self._repeated.alone, None, wanted.losses, tallies)
        # In place of the numerical mean, which is in no curve of samples, all samples.
        tallies[0] = tallies[1:].sum(0)
        ranked = np.vstack(
            [_ranked(tallies[:1], wanted.full), _ranked(tallies[1:], wanted.samples)]
        )
        ranked |= ranked[0]
        ranked[0] = False
        sizes = np.where(ranked, tallies[..., kernel.CELLS], 0)
        # By bucket, then by sample: those of all samples are one after the other.
        ends = np.ascontiguousarray(at + sizes.T.cumsum().reshape(sizes.T.shape).T)
        begins = ends - sizes
        ends[0] = ends[-1]
        places = np.where(ranked, begins, -1).astype(np.int32)
        return _Curves(tallies, begins, ends, places)

    def _count(self, first: int, last: int | None, losses: Floats, tallies: Indices) -> None:
        for of_groups in self._groups(first, last, losses):
            kernel.tally(*of_groups, self._buckets, self._empty, tallies)

    def _keep(
        self, first: int, last: int | None, losses: Floats, places: Array, kept: kernel.Kept
    ) -> None:
        ranked = (places >= 0).max(0)
        for of_groups in self._groups(first, last, losses):
            kernel.keep(*of_groups, self._buckets, ranked, places, kept)

    def _groups(
        self, first: int, last: int | None, losses: Floats
    ) -> Iterator[tuple[Indices, Array, Indices, Indices]]:
        """What kernels need of some groups at a time."""
        groups = slice(first, len(self._cells.periods) if last is None else last)
        starts, bits = self._cells.starts[first : groups.stop + 1], losses.view(np.int64)
        times = self._repeated.times[groups]
        for a, b in grouped(starts, "curves", _STEP):
            yield starts[a : b + 1], self._cells.samples, bits, times[a:b]


class _Curves(NamedTuple):
    """Curves, the first of all samples, then one of each sample; and where losses are kept."""

    tallies: Indices
    begins: Array
    ends: Array
    places: Array

    def read(
        self, curves: Indices, first: Indices, buckets: kernel.Buckets, kept: kernel.Kept
    ) -> Floats:
        """Find the losses that some curves are read from."""
        found = np.zeros((len(curves), 3, len(first)))
        begins, ends = self.begins[curves], self.ends[curves]
        work = np.append(0, (ends - begins).sum(1).cumsum())
        for a, b in grouped(work, "curves", _STEP) if first.any() else ():
            inputs = (self.tallies[curves[a:b]], buckets, begins[a:b], ends[a:b], kept)
            kernel.read_tallies(*inputs, first, found[a:b], found[a:b].view(np.int64))
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
            rows = np.flatnonzero(at < counts.shape[1])
            falling[rows, at[rows]] = True
    return ranked


def _choose_buckets(cells: Cells, repeated: Repeated, samples: int) -> kernel.Buckets:
    """Buckets that reach from the least loss above 0 to the largest sum."""
    count = int(cells.starts[-1])
    least, most = _find_bounds(cells, repeated)
    shift = 0
    while shift < kernel.MOST_SHIFT and (most >> shift) - (least >> shift) >= _MOST_BINS:
        shift += 1
    base, bins = least >> shift, (most >> shift) - (least >> shift) + 1
    exponents = (base + np.arange(bins)) >> (52 - shift)
    # An odd step, as blocks may all have an even number of cells.
    bits = cells.sums[: count : count // _LOOKED_AT | 1].view(np.int64)
    looked_at = np.bincount((bits[bits > 0] >> shift) - base, minlength=bins)
    before = looked_at.cumsum() - looked_at
    room = max(min(count // (_CELLS_PER_BUCKET * (samples + 1)), _MOST_BUCKETS), 1)
    is_first = np.diff(before * room // max(len(bits), 1), prepend=-1) > 0
    is_first |= np.diff(exponents, prepend=-1) > 0
    firsts = np.flatnonzero(is_first)
    lasts = np.append(firsts[1:], bins) - 1
    differing = shift + np.frexp((base + firsts) ^ (base + lasts))[1].astype(np.int64)
    of_bins = (is_first.cumsum() - 1).astype(np.uint16)
    return kernel.Buckets(shift, base, of_bins, exponents[firsts], differing)


def _find_bounds(cells: Cells, repeated: Repeated) -> tuple[int, int]:
    """Bits of the least loss above 0 and of the largest sum; both 0 if there is none."""
    count, alone = cells.starts[[-1, repeated.alone]].tolist()
    bounds = np.array([kernel.MOST_BITS, 0])
    for losses, first in ((cells.sums, 0), (cells.largest, alone)):
        for a, b in slices(count - first, "curves"):
            kernel.find_bounds(losses[first + a : first + b].view(np.int64), bounds)
    least, most = bounds.tolist()
    return min(least, most), most
