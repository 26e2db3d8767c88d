"""The rows of some pairs, brought into a buffer, whichever member they come from.

They are copied in float64 and times the factor of their member. Blocks lie here and there, so
their memory is asked for before it is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..._jit import kernel, subkernel
from ..._vectors import ROWS, ask_for, copy_rows
from ...arrays import Floats, Indices
from ...losses._kernels.layout import ZERO
from ..losses import LossTable

# See core/losses/_kernels/unpacking.py.
_U = np.uintp

Int32s = npt.NDArray[np.int32]

_TINY = 5e-324
"""The least float64: what a loss times a factor is at least."""
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


@subkernel
def _copy_block(
    table: LossTable, block: int, count: int, factor: float, load: Load, to: int
) -> None:
    """Copy the rows of a block, whose samples stay as they are."""
    samples, losses = table.samples_at[block], table.losses_at[block]
    if count < ROWS:
        for j in range(count):
            load.samples[to + j] = table.samples[samples + j]
            load.losses[to + j] = max(np.float64(table.losses[losses + j]) * factor, _TINY)
        return
    for begin in range(0, count, ROWS):
        # At the end some are copied again.
        j = min(begin, count - ROWS)
        source = (table.samples, samples + j, table.losses, losses + j)
        copy_rows(*source, factor, load.samples, load.losses, to + j)


@subkernel
def _map_block(
    table: LossTable, block: int, count: int, factor: float, mapped: Int32s, load: Load, to: int
) -> bool:
    """Copy the rows of a block with the sample that each becomes; return whether each has one."""
    source = table.samples[table.samples_at[block] : table.samples_at[block] + count]
    beyond = np.int32(0)
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
    return True


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
        mapped: sample that each becomes; those beyond it are damaged. Empty if all stay as they
            are, damaged ones too.
        load: receives the rows; of blocks of other members, it keeps what it has. Losses are
            not read if it has no place for them, where samples are mapped.

    Returns:
        Whether all samples are among those mapped, as what adds them up relies on.
    """
    to = ZERO
    for i in range(len(blocks)):
        _ask_ahead(i, blocks, base, table, load)
        count = load.counts[i]
        block = blocks[i] - base
        if 0 <= block < len(table.counts):
            if len(mapped) == 0:
                _copy_block(table, block, count, factor, load, to)
            elif not _map_block(table, block, count, factor, mapped, load, to):
                return False
        to += count
    return True
