"""From rows to the losses of periods: what a group loses by sample, in sum and at most.

The rows of some pairs are copied into a buffer first, whichever member they come from, in float64
and times its factor. A group's loss of an occurrence is the sum over its blocks, in their order.
Over the occurrences of a period the sums are carried as two floats (``core.losses`` explains
why), so that they equal the sums of ordinary reports to the last bit.

Losses are above 0. So a 0 in scratch says that a sample has none yet, and a list of those that
have one tells what to read and to clear: the work for a pair follows its rows, not ``samples``,
unless most samples are there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ..._vectors import ask_for
from ...arrays import Array, Floats, Indices
from ...losses._kernels.cells import MEAN_LARGEST, MEAN_SUM, TOTAL_LARGEST, TOTAL_SUM
from ...losses._kernels.exact import two_sum
from ...losses._kernels.layout import ZERO
from ...sorting import sort_slice
from ..losses import LossTable

# See core/losses/_kernels/unpacking.py.
_U = np.uintp

Int32s = npt.NDArray[np.int32]

_TINY = 5e-324
"""The least float64: what a loss times a factor is at least."""
_SPARSE = 32
"""Samples for each that is there, from which on these are sorted instead of looked for."""


_AHEAD = 4
"""References between that whose rows are copied and that whose rows are asked for."""
_LINE = 64
"""Bytes of a line of the caches."""


class Load(NamedTuple):
    """Some pairs, their references, and the rows of these one after the other."""

    starts: Indices
    """First reference of each pair, and the one after the last; from 0."""
    periods: Int32s
    """Of the pairs."""
    occurrences: Int32s
    """Of the references."""
    counts: Indices
    """Rows of each."""
    samples: Int32s
    """Of the rows; perhaps longer than they are many."""
    losses: Floats


class Scratch(NamedTuple):
    """Zeros between pairs, but for the lists and what sorts them."""

    now: Floats
    """Loss of an occurrence, shape (samples + 1,), as those that follow."""
    high: Floats
    low: Floats
    largest: Floats
    listed: Indices
    """Samples of an occurrence; one longer, as those that follow."""
    all: Indices
    """Samples of a pair."""
    tally: Indices
    """Occurrences of each sample of a pair, then the place of its next row."""
    spare: Indices
    counts: Indices
    """Shape (sorting.COUNTS,)."""
    progress: Indices
    """Shape (sorting.PROGRESS,)."""


@subkernel
def _ask_ahead(i: int, blocks: Indices, base: int, table: LossTable, load: Load) -> None:
    """Ask for the rows of a later reference, and for the places of a yet later one.

    Blocks lie here and there: waiting for them took longer than all else that is done to rows.
    """
    later = i + 3 * _AHEAD
    if later < len(blocks) and 0 <= blocks[later] - base < len(table.counts):
        ask_for(table.samples_at, blocks[later] - base)
        ask_for(table.losses_at, blocks[later] - base)
    later = i + _AHEAD
    if later < len(blocks) and 0 <= blocks[later] - base < len(table.counts):
        samples = table.samples_at[blocks[later] - base]
        losses = table.losses_at[blocks[later] - base]
        for row in range(0, load.counts[later], _LINE // table.losses.itemsize):
            ask_for(table.samples, samples + row)
            if len(load.losses):
                ask_for(table.losses, losses + row)


@kernel
def gather(
    blocks: Indices, base: int, table: LossTable, factor: float, mapped: Int32s, load: Load
) -> bool:
    """Copy the rows of a member's blocks to where they belong.

    Args:
        blocks: of the references, of all members.
        base: number of the member's first block.
        table: of the member.
        factor: of the losses.
        mapped: sample that each becomes; those beyond it are damaged.
        load: receives the rows; of blocks of other members, it keeps what it has. Losses are
            not read if it has no place for them.

    Returns:
        Whether all samples are among those mapped, as what adds them up relies on.
    """
    to = ZERO
    beyond = np.int32(0)
    for i in range(len(blocks)):
        _ask_ahead(i, blocks, base, table, load)
        count = load.counts[i]
        block = blocks[i] - base
        if 0 <= block < len(table.counts):
            source = table.samples[table.samples_at[block] : table.samples_at[block] + count]
            for j in range(count):
                beyond |= np.int32(np.uint32(source[j]) >= np.uint32(len(mapped)))
            if beyond != 0:
                return False
            target = load.samples[to : to + count]
            for j in range(count):
                target[j] = mapped[_U(source[j])]
            values = table.losses[table.losses_at[block] : table.losses_at[block] + count]
            amounts = load.losses[to : to + count]
            for j in range(len(amounts)):
                amounts[j] = max(np.float64(values[j]) * factor, _TINY)
        to += count
    return True


@subkernel
def _in_order(listed: Indices, n: int, marked: Array, scratch: Scratch) -> None:
    """Sort listed samples, those with a mark."""
    if n * _SPARSE < len(marked):
        scratch.progress[:] = 0
        nothing = listed[:0]
        progress = scratch.progress
        sort_slice(listed[:n], nothing, scratch.spare, nothing, scratch.counts, progress, n)
        return
    k = ZERO
    for s in range(len(marked)):
        # Written for every sample, and kept if it is there: no branch to mispredict.
        listed[_U(k)] = s
        k += int(marked[s] != 0)


@subkernel
def _add_occurrence(
    first: int, at: int, last: int, load: Load, scratch: Scratch
) -> tuple[int, int, int]:
    """Add up the rows of the occurrence of a reference.

    Returns:
        The reference after its last, the row after its last, and how many samples it lists.
    """
    now = scratch.now
    listed = scratch.listed
    n = ZERO
    i = first
    while i < last and load.occurrences[i] == load.occurrences[first]:
        end = at + load.counts[i]
        for row in range(at, end):
            s = _U(load.samples[row])
            listed[_U(n)] = load.samples[row]
            n += int(now[s] == 0.0)
            now[s] += load.losses[row]
        at = end
        i += 1
    return i, at, n


@subkernel
def _tally_pair(pair: int, at: int, load: Load, scratch: Scratch) -> tuple[int, int]:
    """Count the occurrences of each sample of a pair.

    Returns:
        The row after its last, and how many samples it has.
    """
    i = load.starts[pair]
    n = ZERO
    while i < load.starts[pair + 1]:
        i, at, found = _add_occurrence(i, at, load.starts[pair + 1], load, scratch)
        for k in range(found):
            s = _U(scratch.listed[k])
            scratch.now[s] = 0.0
            scratch.all[_U(n)] = scratch.listed[k]
            n += int(scratch.tally[s] == 0)
            scratch.tally[s] += 1
    return at, n


@kernel
def count_pairs(load: Load, scratch: Scratch, sizes: Indices, lengths: Indices) -> None:
    """Count the samples of pairs, and the losses that these have of occurrences.

    Args:
        load: the pairs; of those with one reference, no sample is read.
        scratch: its lists are used.
        sizes: receives the samples of each pair.
        lengths: receives its losses.
    """
    in_pair, in_occurrence = scratch.all, scratch.listed
    in_pair[:] = -1
    in_occurrence[:] = -1
    at = ZERO
    for pair in range(len(sizes)):
        first = load.starts[pair]
        last = load.starts[pair + 1]
        size = length = load.counts[first]
        if last == first + 1:
            at += size
        else:
            size = length = ZERO
            occurrence = first
            for i in range(first, last):
                if load.occurrences[i] != load.occurrences[occurrence]:
                    occurrence = i
                for row in range(at, at + load.counts[i]):
                    s = _U(load.samples[row])
                    size += int(in_pair[s] != first)
                    length += int(in_occurrence[s] != occurrence)
                    in_pair[s] = first
                    in_occurrence[s] = occurrence
                at += load.counts[i]
        sizes[pair] = size
        lengths[pair] = length


@subkernel
def _add_occurrences(
    i: int, at: int, last: int, load: Load, scratch: Scratch, found: int
) -> tuple[int, int]:
    """Add up further occurrences of a pair, after that whose losses are in scratch.

    Returns:
        The row after the last, and how many samples the pair has.
    """
    high, low, most = scratch.high, scratch.low, scratch.largest
    n = ZERO
    while True:
        for k in range(found):
            s = _U(scratch.listed[k])
            x = scratch.now[s]
            scratch.now[s] = 0.0
            scratch.all[_U(n)] = scratch.listed[k]
            n += int(high[s] == 0.0)
            high[s], rest = two_sum(high[s], x)
            low[s] += rest
            most[s] = max(most[s], x)
        if i == last:
            return at, n
        i, at, found = _add_occurrence(i, at, last, load, scratch)


@subkernel
def _write_occurrence(
    n: int, scratch: Scratch, samples: Int32s, sums: Floats, largest: Floats
) -> float:
    """Write the listed samples of one occurrence; return the total of all but the mean."""
    now, listed = scratch.now, scratch.listed
    total = 0.0
    if n * _SPARSE < len(now):
        _in_order(listed, n, now, scratch)
        for k in range(n):
            s = _U(listed[k])
            x = now[s]
            samples[k] = listed[k]
            sums[k] = x
            largest[k] = x
            total += x if listed[k] else 0.0
            now[s] = 0.0
        return total
    k = ZERO
    for sample in range(len(now)):
        if k == n:
            break
        # Written for every sample, and kept if it is there: no branch to mispredict.
        x = now[sample]
        samples[_U(k)] = sample
        sums[_U(k)] = x
        largest[_U(k)] = x
        k += int(x != 0.0)
        total += x if sample else 0.0
    now[:] = 0.0
    return total


@subkernel
def _write_pair(
    n: int, scratch: Scratch, samples: Int32s, sums: Floats, largest: Floats
) -> tuple[float, float]:
    """Write the listed samples of a pair; return the totals of all but the mean."""
    high, low, most = scratch.high, scratch.low, scratch.largest
    _in_order(scratch.all, n, high, scratch)
    total = peaks = 0.0
    for k in range(n):
        s = _U(scratch.all[k])
        samples[k] = scratch.all[k]
        sums[k] = high[s] + low[s]
        largest[k] = most[s]
        total += sums[k] if scratch.all[k] else 0.0
        peaks += most[s] if scratch.all[k] else 0.0
        high[s] = 0.0
        low[s] = 0.0
        most[s] = 0.0
    return total, peaks


@subkernel
def _copy_block(load: Load, at: int, samples: Int32s, sums: Floats, largest: Floats) -> float:
    """Write the rows of a block from ``at`` on; return the total of all but the mean."""
    total = 0.0
    for k in range(len(samples)):
        x = load.losses[at + k]
        samples[k] = load.samples[at + k]
        sums[k] = x
        largest[k] = x
        total += x if samples[k] else 0.0
    return total


@kernel
def add_up(
    load: Load,
    ordered: bool,
    scratch: Scratch,
    sizes: Indices,
    samples: Int32s,
    sums: Floats,
    largest: Floats,
    wholes: Floats,
) -> int:
    """Write the cells of pairs, one after the other.

    Args:
        load: the pairs.
        ordered: whether the samples of a block ascend.
        scratch: zeros.
        sizes: receives the cells of each pair.
        samples: receives the sample of each cell, ascending within a pair.
        sums: receives the sum over the occurrences of its period.
        largest: receives the largest of them; the same memory as ``sums`` where pairs have one.
        wholes: receives WHOLES of each pair.

    Returns:
        The number of cells.
    """
    at = ZERO
    to = ZERO
    for pair in range(len(sizes)):
        first = load.starts[pair]
        last = load.starts[pair + 1]
        begin = to
        if ordered and last == first + 1:
            to = begin + load.counts[first]
            out = samples[begin:to], sums[begin:to], largest[begin:to]
            total = peaks = _copy_block(load, at, *out)
            at += load.counts[first]
        else:
            i, at, n = _add_occurrence(first, at, last, load, scratch)
            if i == last:
                to = begin + n
                out = samples[begin:to], sums[begin:to], largest[begin:to]
                total = peaks = _write_occurrence(n, scratch, *out)
            else:
                at, n = _add_occurrences(i, at, last, load, scratch, n)
                to = begin + n
                out = samples[begin:to], sums[begin:to], largest[begin:to]
                total, peaks = _write_pair(n, scratch, *out)
        has_mean = to > begin and samples[begin] == 0
        wholes[pair, MEAN_SUM] = sums[begin] if has_mean else 0.0
        wholes[pair, MEAN_LARGEST] = largest[begin] if has_mean else 0.0
        wholes[pair, TOTAL_SUM] = total
        wholes[pair, TOTAL_LARGEST] = peaks
        sizes[pair] = to - begin
    return to


@kernel
def list_occurrences(
    load: Load,
    scratch: Scratch,
    begin: int,
    starts: Indices,
    samples: Int32s,
    occurrences: Int32s,
    losses: Floats,
) -> None:
    """Write the losses of pairs by sample and occurrence.

    Args:
        load: the pairs.
        scratch: zeros.
        begin: number of the first loss.
        starts: receives the first loss of each cell.
        samples: receives the sample of each cell.
        occurrences: receives the occurrence of each loss.
        losses: receives the losses.
    """
    row = ZERO
    cell = ZERO
    place = ZERO
    tally, listed = scratch.tally, scratch.all
    for pair in range(len(load.starts) - 1):
        at = row
        row, n = _tally_pair(pair, row, load, scratch)
        _in_order(listed, n, tally, scratch)
        for k in range(n):
            s = _U(listed[k])
            starts[cell] = begin + place
            samples[cell] = listed[k]
            cell += 1
            count = tally[s]
            tally[s] = place
            place += count
        i = load.starts[pair]
        while i < load.starts[pair + 1]:
            occurrence = load.occurrences[i]
            i, at, found = _add_occurrence(i, at, load.starts[pair + 1], load, scratch)
            for k in range(found):
                s = _U(scratch.listed[k])
                occurrences[tally[s]] = occurrence
                losses[tally[s]] = scratch.now[s]
                scratch.now[s] = 0.0
                tally[s] += 1
        for k in range(n):
            tally[_U(listed[k])] = 0
