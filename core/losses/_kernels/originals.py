"""Blocks that stay where the stream has them, and are read again when they are added up.

Memory that a process has never touched costs several times a copy: the system zeroes it, and
beneath a hypervisor it has to be found first. The bytes of a file that has just been read are in
memory already. So the pass over a file need not copy losses: it leaves a *reference* in the place
of a stretch, of the same head, and the place of the block::

    owner  summary  code | REFERRED  count | stream and byte offset of the block, 64 bits

What looks for events, periods and sizes sees no difference. The losses of a few summaries at a
time are then read from the file, as the pass reads them, into stretches in memory that is used
again for the next ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel
from ...arrays import Indices
from .block import take_block
from .layout import OK, ZERO, Record, Scratch, Words
from .stretches import HEAD, OFFSET_BITS, REFERRED, Arena, append_block, stretch_size


@kernel
def originals_size(words: npt.NDArray[np.int32], places: Indices, samples: int, width: int) -> int:
    """Words of the stretches that references stand for."""
    size = ZERO
    for i in range(len(places)):
        at = places[i]
        code = int(words[at + 2]) & ~REFERRED
        size += stretch_size(code, int(words[at + 3]), samples, width)
    return size


@kernel
def read_originals(
    references: Arena,
    places: Indices,
    stream: int,
    words: Words,
    rules: Record,
    state: Record,
    scratch: Scratch,
    arena: Arena,
    moved: Indices,
) -> int:
    """Append the blocks of one stream, to which references refer, as stretches.

    Args:
        references: where the references are.
        places: words of them; those of other streams are passed over.
        stream: index of the stream.
        words: all words of the stream.
        rules: RULES record, by which blocks are accepted and appended.
        state: STATE record; ``ledger_words`` is where the next stretch goes.
        scratch: for a block.
        arena: receives the stretches.
        moved: receives their words; shape of ``places``.

    Returns:
        Number of the first reference whose block is another than it was; else how many there are.
    """
    s = state[0]
    b = scratch.block[0]
    for i in range(len(places)):
        at = places[i]
        original = references.longs[(at + HEAD) >> 1]
        if original >> OFFSET_BITS != stream:
            continue
        s["at"] = (original & ((1 << OFFSET_BITS) - 1)) >> 2
        s["probe"] = 0
        if take_block(words, len(words), rules, state, scratch) != OK:
            return i
        moved[i] = s["ledger_words"]
        if append_block(rules, state, scratch, arena) != OK:
            return i
        to = moved[i]
        if (
            b["event"] != references.words[at]
            or b["id"] != references.words[at + 1]
            or arena.words[to + 2] != references.words[at + 2] & ~REFERRED
            or arena.words[to + 3] != references.words[at + 3]
        ):
            return i
    return len(places)
