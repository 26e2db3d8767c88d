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
from ...arrays import Array, Floats, Indices
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


class Buffer(NamedTuple):
    """Rows of some references, one after the other."""

    samples: Int32s
    losses: Floats


class Scratch(NamedTuple):
    """Zeros between pairs, but for the lists and what sorts them."""

    now: Floats
    """Loss of an occurrence, shape (samples + 1,), as those that follow."""
    high: Floats
    low: Floats
    largest: Floats
    listed: Indices
    """Samples of an occurrence."""
    all: Indices
    """Samples of a pair."""
    tally: Indices
    """Occurrences of each sample of a pair, then the place of its next row."""
    spare: Indices
    counts: Indices
    """Shape (sorting.COUNTS,)."""
    progress: Indices
    """Shape (sorting.PROGRESS,)."""


@kernel
def gather(
    blocks: Indices,
    counts: Int32s,
    base: int,
    table: LossTable,
    factor: float,
    mapped: Int32s,
    with_losses: bool,
    highest: int,
    out: Buffer,
) -> bool:
    """Copy the rows of a member's blocks into the buffer.

    Args:
        blocks: of the references, of all members.
        counts: rows of the blocks of all members.
        base: number of the member's first block.
        table: of the member.
        factor: of the losses.
        mapped: sample that each becomes, by sample; empty if they stay.
        with_losses: whether losses are needed.
        highest: sample.
        out: receives the rows; of blocks of other members, it keeps what it has.

    Returns:
        Whether all samples are from 0 to the highest, as what adds them up relies on.
    """
    to = ZERO
    beyond = np.int32(0)
    for i in range(len(blocks)):
        count = counts[blocks[i]]
        block = blocks[i] - base
        if 0 <= block < len(table.counts):
            source = table.samples[table.samples_at[block] : table.samples_at[block] + count]
            target = out.samples[to : to + count]
            for j in range(count):
                beyond |= np.int32(np.uint32(source[j]) > np.uint32(highest))
            if beyond != 0:
                return False
            for j in range(count):
                target[j] = mapped[_U(source[j])] if len(mapped) else source[j]
            if with_losses:
                values = table.losses[table.losses_at[block] : table.losses_at[block] + count]
                amounts = out.losses[to : to + count]
                for j in range(count):
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
        if marked[s] != 0:
            listed[_U(k)] = s
            k += 1


@subkernel
def _add_occurrence(
    first: int,
    at: int,
    last: int,
    occurrences: Int32s,
    blocks: Indices,
    counts: Int32s,
    rows: Buffer,
    scratch: Scratch,
) -> tuple[int, int, int]:
    """Add up the rows of the occurrence of a reference.

    Returns:
        The reference after its last, the row after its last, and how many samples it lists.
    """
    now = scratch.now
    listed = scratch.listed
    n = ZERO
    i = first
    while i < last and occurrences[i] == occurrences[first]:
        end = at + counts[blocks[i]]
        for row in range(at, end):
            s = _U(rows.samples[row])
            if now[s] == 0.0:
                listed[_U(n)] = rows.samples[row]
                n += 1
            now[s] += rows.losses[row]
        at = end
        i += 1
    return i, at, n


@kernel
def count_cells(
    pair_starts: Indices,
    blocks: Indices,
    counts: Int32s,
    samples: Int32s,
    scratch: Scratch,
    sizes: Indices,
) -> None:
    """Count the samples of pairs.

    Args:
        pair_starts: first reference of each pair, and the one after the last; from 0.
        blocks: of the references.
        counts: rows of the blocks.
        samples: of the rows in the buffer.
        scratch: zeros.
        sizes: receives the samples of each pair.
    """
    at = ZERO
    tally = scratch.tally
    for pair in range(len(sizes)):
        first = pair_starts[pair]
        last = pair_starts[pair + 1]
        if last == first + 1:
            sizes[pair] = counts[blocks[first]]
            at += counts[blocks[first]]
            continue
        n = ZERO
        for i in range(first, last):
            for row in range(at, at + counts[blocks[i]]):
                s = _U(samples[row])
                scratch.all[_U(n)] = samples[row]
                n += int(tally[s] == 0)
                tally[s] = 1
            at += counts[blocks[i]]
        for k in range(n):
            tally[_U(scratch.all[k])] = 0
        sizes[pair] = n


@kernel
def add_up(
    pair_starts: Indices,
    occurrences: Int32s,
    blocks: Indices,
    counts: Int32s,
    rows: Buffer,
    ordered: bool,
    scratch: Scratch,
    samples: Int32s,
    sums: Floats,
    largest: Floats,
) -> None:
    """Write the cells of pairs, one after the other.

    Args:
        pair_starts: as :func:`count_cells` has it, as those that follow.
        occurrences: of the references.
        blocks: of the references.
        counts: rows of the blocks.
        rows: of the references.
        ordered: whether the samples of a block ascend.
        scratch: zeros.
        samples: receives the sample of each cell, ascending within a pair.
        sums: receives the sum over the occurrences of its period.
        largest: receives the largest of them.
    """
    at = ZERO
    to = ZERO
    high, low, most, listed = scratch.high, scratch.low, scratch.largest, scratch.all
    for pair in range(len(pair_starts) - 1):
        i = pair_starts[pair]
        last = pair_starts[pair + 1]
        if ordered and last == i + 1:
            for row in range(at, at + counts[blocks[i]]):
                samples[to] = rows.samples[row]
                sums[to] = rows.losses[row]
                largest[to] = rows.losses[row]
                to += 1
            at += counts[blocks[i]]
            continue
        n = ZERO
        while i < last:
            i, at, found = _add_occurrence(i, at, last, occurrences, blocks, counts, rows, scratch)
            for k in range(found):
                s = _U(scratch.listed[k])
                x = scratch.now[s]
                scratch.now[s] = 0.0
                listed[_U(n)] = scratch.listed[k]
                n += int(high[s] == 0.0)
                high[s], rest = two_sum(high[s], x)
                low[s] += rest
                most[s] = max(most[s], x)
        _in_order(listed, n, high, scratch)
        for k in range(n):
            s = _U(listed[k])
            samples[to] = listed[k]
            sums[to] = high[s] + low[s]
            largest[to] = most[s]
            high[s] = 0.0
            low[s] = 0.0
            most[s] = 0.0
            to += 1


@kernel
def count_rows(
    pair_starts: Indices,
    occurrences: Int32s,
    blocks: Indices,
    counts: Int32s,
    rows: Buffer,
    scratch: Scratch,
    sizes: Indices,
    lengths: Indices,
) -> None:
    """Count the samples of pairs, and the losses that these have of occurrences.

    Args:
        pair_starts: as :func:`count_cells` has it, as those that follow.
        occurrences: of the references.
        blocks: of the references.
        counts: rows of the blocks.
        rows: of the references.
        scratch: zeros.
        sizes: receives the samples of each pair.
        lengths: receives its losses.
    """
    at = ZERO
    for pair in range(len(sizes)):
        i = pair_starts[pair]
        last = pair_starts[pair + 1]
        n = ZERO
        length = ZERO
        while i < last:
            i, at, found = _add_occurrence(i, at, last, occurrences, blocks, counts, rows, scratch)
            length += found
            for k in range(found):
                s = _U(scratch.listed[k])
                scratch.now[s] = 0.0
                scratch.all[_U(n)] = scratch.listed[k]
                n += int(scratch.tally[s] == 0)
                scratch.tally[s] = 1
        for k in range(n):
            scratch.tally[_U(scratch.all[k])] = 0
        sizes[pair] = n
        lengths[pair] = length


@kernel
def list_occurrences(
    pair_starts: Indices,
    occurrences: Int32s,
    blocks: Indices,
    counts: Int32s,
    rows: Buffer,
    scratch: Scratch,
    begin: int,
    starts: Indices,
    samples: Int32s,
    of: Int32s,
    losses: Floats,
) -> None:
    """Write the losses of pairs by sample and occurrence.

    Args:
        pair_starts: as :func:`count_cells` has it, as those that follow.
        occurrences: of the references.
        blocks: of the references.
        counts: rows of the blocks.
        rows: of the references.
        scratch: zeros.
        begin: number of the first loss.
        starts: receives the first loss of each cell.
        samples: receives the sample of each cell.
        of: receives the occurrence of each loss.
        losses: receives the losses.
    """
    row = ZERO
    cell = ZERO
    place = ZERO
    tally, listed = scratch.tally, scratch.all
    for pair in range(len(pair_starts) - 1):
        first = pair_starts[pair]
        last = pair_starts[pair + 1]
        n = ZERO
        i = first
        at = row
        while i < last:
            i, at, found = _add_occurrence(i, at, last, occurrences, blocks, counts, rows, scratch)
            for k in range(found):
                s = _U(scratch.listed[k])
                scratch.now[s] = 0.0
                listed[_U(n)] = scratch.listed[k]
                n += int(tally[s] == 0)
                tally[s] += 1
        _in_order(listed, n, tally, scratch)
        for k in range(n):
            s = _U(listed[k])
            starts[cell] = begin + place
            samples[cell] = listed[k]
            cell += 1
            count = tally[s]
            tally[s] = place
            place += count
        i = first
        at = row
        while i < last:
            occurrence = occurrences[i]
            i, at, found = _add_occurrence(i, at, last, occurrences, blocks, counts, rows, scratch)
            for k in range(found):
                s = _U(scratch.listed[k])
                of[tally[s]] = occurrence
                losses[tally[s]] = scratch.now[s]
                scratch.now[s] = 0.0
                tally[s] += 1
        row = at
        for k in range(n):
            tally[_U(listed[k])] = 0
