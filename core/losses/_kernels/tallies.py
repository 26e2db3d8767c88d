"""Curves at return periods without listing their losses.

A large summary has a curve for each sample, and one of all samples. To list the losses of each
would move every loss several times, only to look at two losses for each return period and to
add up those above. Instead losses are counted in buckets of their bits, sample by sample, with
the sums of each bucket; the curve of all samples is the sum of those tallies::

    bits            |............|............|............|............|
    sample 1             12           31           17 *          2
    sample 2              9           28 *         25            4          * a rank lies here
    all                  21           59 *         42            6
    kept                          1:31  2:28    1:17

Only the losses of buckets in which a rank lies are kept, by bucket and then sample, so that
those of all samples lie together. Among them a loss is found digit by digit. Where an occurrence is
alone in its period it is kept for both kinds of curves, OEP and AEP, at once.

Buckets have about equally many losses, so that few are kept: each is a run of *bins*, the bits of
losses without the last ones. A bucket ends with an exponent, as sums are kept by exponent.

A period may stand for several with the same losses: ``times`` says for how many. Sums are those
of ``tails``, which depend on no order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ...arrays import Array, Floats, Indices
from .curves import BEFORE, LEVEL, TOTAL
from .layout import ZERO
from .tails import EXPONENTS, FRACTION, LOWER, SPLIT, add_losses, total_of

# See unpacking.py.
_U = np.uintp

Int32s = npt.NDArray[np.int32]

LOSSES = 0
"""Number of losses."""
CELLS = 1
"""Cells that they are in."""
UPPER = 2
LOWEST = 3
"""Sums of the upper and lower bits of their fractions."""
FIELDS = 4

MOST_SHIFT = 52
MOST_BITS = (1 << 63) - 1
_DIGIT = 8
"""Bits that are told apart at a time."""
_FEW = 12
"""Losses among which each is compared with each."""


class Buckets(NamedTuple):
    """Which bucket a loss is in: that of its bin, its bits without the last, less ``base``."""

    shift: int
    """Last bits that a bin does not tell, at most MOST_SHIFT: its losses have one exponent."""
    base: int
    of_bins: npt.NDArray[np.uint16]
    """Bucket of each bin, ascending, shape (bins,)."""
    exponents: Indices
    """Of the losses of each bucket, shape (buckets,)."""
    differing: Indices
    """How many of the last bits of its losses differ, shape (buckets,)."""


class Kept(NamedTuple):
    """Losses of buckets with a rank, and scratch as long as the most of a curve and bucket."""

    bits: Indices
    times: Int32s
    spare_bits: Indices
    spare_times: Int32s
    counts: Indices
    """Shape (1 << DIGIT,)."""
    parts: Indices
    """Zeros, of tails; shape (2, EXPONENTS)."""


def make_kept(size: int, longest: int) -> Kept:
    """Room for so many losses."""
    bits, times = np.empty(size, np.int64), np.empty(size, np.int32)
    spare = np.empty(longest, np.int64), np.empty(longest, np.int32)
    return Kept(bits, times, *spare, np.zeros(1 << _DIGIT, np.int64), np.zeros((2, EXPONENTS), int))


@kernel
def find_bounds(bits: Indices, bounds: Indices) -> None:
    """Find the least and the most bits of losses above 0, those so far included."""
    least, most = bounds
    # Without a branch, so that it is done in vectors.
    for j in range(len(bits)):
        x = bits[j]
        least = min(least, x if x > 0 else MOST_BITS)
        most = max(most, x)
    bounds[0] = least
    bounds[1] = most


@subkernel
def _bucket_of(bits: int, buckets: Buckets) -> np.uintp:
    return _U(buckets.of_bins[(_U(bits) >> _U(buckets.shift)) - _U(buckets.base)])


@kernel
def tally(
    starts: Indices,
    samples: Int32s,
    bits: Indices,
    times: Indices,
    buckets: Buckets,
    empty: npt.NDArray[np.uint8],
    out: Indices,
) -> None:
    """Count the losses of some periods.

    Args:
        starts: first cell of each period, and the one after the last.
        samples: of all cells.
        bits: of their losses.
        times: periods that each stands for.
        buckets: of the bits.
        empty: receives 1 for each sample that is there without a loss.
        out: receives FIELDS by sample and bucket.
    """
    for period in range(len(starts) - 1):
        n = times[period]
        of_period = samples[starts[period] : starts[period + 1]]
        losses = bits[starts[period] : starts[period + 1]]
        for j in range(len(losses)):
            x = losses[j]
            if x > 0:
                tallied = out[_U(of_period[j]), _bucket_of(x, buckets)]
                tallied[LOSSES] += n
                tallied[CELLS] += 1
                tallied[UPPER] += n * ((x & FRACTION) >> SPLIT)
                tallied[LOWEST] += n * (x & LOWER)
            else:
                empty[_U(of_period[j])] = 1


@kernel
def keep(
    starts: Indices,
    samples: Int32s,
    bits: Indices,
    times: Indices,
    buckets: Buckets,
    ranked: npt.NDArray[np.bool_],
    places: Int32s,
    kept: Kept,
) -> None:
    """Keep the losses of buckets in which a rank lies.

    Args:
        starts: as for ``tally``, like those that follow.
        samples: of all cells.
        bits: of their losses.
        times: periods that each stands for.
        buckets: of the bits.
        ranked: in which buckets of a sample there is a rank of any kind of curve.
        places: next place of each kind, sample and bucket, -1 where it has no rank.
        kept: receives the losses.
    """
    for period in range(len(starts) - 1):
        of_period = samples[starts[period] : starts[period + 1]]
        losses = bits[starts[period] : starts[period + 1]]
        for j in range(len(losses)):
            x = losses[j]
            if x > 0:
                sample, bucket = _U(of_period[j]), _bucket_of(x, buckets)
                if ranked[sample, bucket]:
                    for kind in range(len(places)):
                        place = places[kind, sample, bucket]
                        if place >= 0:
                            kept.bits[place] = x
                            kept.times[place] = times[period]
                            places[kind, sample, bucket] = place + 1


@subkernel
def _narrow(
    bits: Indices, times: Int32s, n: int, rank: int, shift: int, kept: Kept
) -> tuple[int, int]:
    """Copy the losses with the digit of that of a rank to spare.

    Returns:
        How many there are, and the rank among them.
    """
    counts = kept.counts
    counts[:] = 0
    mask = len(counts) - 1
    for j in range(n):
        counts[_U((bits[j] >> shift) & mask)] += times[j]
    digit = mask
    while counts[digit] < rank:
        rank -= counts[digit]
        digit -= 1
    count = ZERO
    for j in range(n):
        x, many = bits[j], times[j]
        kept.spare_bits[_U(count)] = x
        kept.spare_times[_U(count)] = many
        count += int((x >> shift) & mask == digit)
    return count, rank


@subkernel
def _pick(bits: Indices, times: Int32s, rank: int, shift: int, kept: Kept) -> int:
    """The loss of a rank, 1 for the largest, among losses that differ in ``shift`` bits."""
    n = len(bits)
    while n > _FEW and shift > 0:
        shift = max(shift - _DIGIT, 0)
        n, rank = _narrow(bits, times, n, rank, shift, kept)
        bits = kept.spare_bits
        times = kept.spare_times
    for j in range(n):
        above = ZERO
        equal = ZERO
        for other in range(n):
            above += times[other] if bits[other] > bits[j] else 0
            equal += times[other] if bits[other] == bits[j] else 0
        if above < rank <= above + equal:
            return int(bits[j])
    return 0


@subkernel
def _least(bits: Indices) -> int:
    least = bits[0]
    for j in range(len(bits)):
        least = min(least, bits[j])
    return int(least)


@subkernel
def _sum_above(bits: Indices, times: Int32s, level: int) -> tuple[int, int, int, int]:
    """Count losses above one of them, add up their fractions, and find the least."""
    n = upper = lower = ZERO
    least = ZERO
    for j in range(len(bits)):
        x, many = bits[j], times[j]
        if x > level:
            n += many
            upper += many * ((x & FRACTION) >> SPLIT)
            lower += many * (x & LOWER)
            least = min(least, x) if least else x
    return n, upper, lower, least


@kernel
def read_tallies(
    tallies: Indices,
    buckets: Buckets,
    begins: Array,
    ends: Array,
    kept: Kept,
    first: Indices,
    found: Floats,
    found_bits: Indices,
) -> None:
    """Find what curves are read from, as ``curves.find_levels`` does.

    Args:
        tallies: FIELDS by curve and bucket.
        buckets: of the bits.
        begins: where the losses of each curve and bucket are kept.
        ends: where they end.
        kept: the losses of buckets in which a rank lies.
        first: the i that belongs to each return period, 0 for none; ascending.
        found: receives LEVEL, BEFORE and TOTAL; shape (curves, 3, return periods).
        found_bits: the same memory as integers.
    """
    for curve in range(len(tallies)):
        at = tallies.shape[1] - 1
        above = ZERO
        last = -1
        least = most = 0
        for k in range(len(first)):
            i = first[k]
            found[curve, :, k] = 0.0
            if i == 0:
                continue
            while at >= 0 and above + tallies[curve, at, LOSSES] < i:
                tallied = tallies[curve, at]
                if tallied[LOSSES]:
                    least = buckets.exponents[at]
                    most = max(most, least)
                    add_losses(kept.parts, least, *_sums(tallied))
                    above += tallied[LOSSES]
                    last = at
                at -= 1
            if at < 0:
                if i == above + 1 and last >= 0:
                    begin, end = begins[curve, last], ends[curve, last]
                    found_bits[curve, BEFORE, k] = _least(kept.bits[begin:end])
                found[curve, TOTAL, k] = total_of(kept.parts, least, most)
                continue
            bits = kept.bits[begins[curve, at] : ends[curve, at]]
            times = kept.times[begins[curve, at] : ends[curve, at]]
            level = _pick(bits, times, i - above, buckets.differing[at], kept)
            n, upper, lower, before = _sum_above(bits, times, level)
            equal = i - 1 - above - n
            if equal > 0:
                before = level
            elif n == 0 and last >= 0:
                before = _least(kept.bits[begins[curve, last] : ends[curve, last]])
            upper += equal * ((level & FRACTION) >> SPLIT)
            lower += equal * (level & LOWER)
            exponent = level >> 52
            add_losses(kept.parts, exponent, n + equal, upper, lower)
            found_bits[curve, LEVEL, k] = level
            found_bits[curve, BEFORE, k] = before
            found[curve, TOTAL, k] = total_of(kept.parts, exponent, max(most, exponent))
            add_losses(kept.parts, exponent, -(n + equal), -upper, -lower)
        kept.parts[:, least : most + 1] = 0


@subkernel
def _sums(tallied: Indices) -> tuple[int, int, int]:
    return tallied[LOSSES], tallied[UPPER], tallied[LOWEST]
