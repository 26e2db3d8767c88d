"""Which blocks happen when: references, by group and occurrence.

An occurrence has the events of one member or, where members share a catalogue, of several. A
reference is a block of an event at one of its occurrences, if the block has a group. They are
counted by group, then put in place, which keeps the order of the occurrences::

    occurrences    1: e3         2: e7         3: e3
    blocks         a(g0) b(g1)   c(g0)         a(g0) b(g1)
    references     g0 | 1 a | 2 c | 3 a |   g1 | 1 b | 3 b |

A *pair* is a group and a period: the references that are added up together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._jit import kernel
from ...arrays import Indices
from ...losses._kernels.layout import ZERO
from ...sorting import place_of

Int32s = npt.NDArray[np.int32]


@kernel
def group_blocks(summary_ids: Int32s, known: Int32s, groups: Int32s, out: Int32s) -> None:
    """Tell the group of each block.

    Args:
        summary_ids: of the blocks.
        known: summaries that have a group, ascending.
        groups: group of each, -1 for none.
        out: receives the groups; -1 for a summary that is not known.
    """
    for i in range(len(summary_ids)):
        # Ids mostly count up from the first.
        at = int(summary_ids[i]) - int(known[0]) if len(known) else -1
        if not (0 <= at < len(known) and known[at] == summary_ids[i]):
            at = place_of(summary_ids[i], known)
        out[i] = groups[at] if at >= 0 else -1


@kernel
def count_references(
    event_starts: Indices,
    times: Indices,
    groups: Int32s,
    counts: Int32s,
    references: Indices,
    sizes: Indices,
) -> None:
    """Count the references of some events by group.

    Args:
        event_starts: first block of each event, and the one after the last.
        times: occurrences of each event.
        groups: of all blocks.
        counts: rows of all blocks.
        references: increased by the references of each group.
        sizes: increased by the rows of these.
    """
    for event in range(len(times)):
        for block in range(event_starts[event], event_starts[event + 1]):
            group = groups[block]
            if group >= 0:
                references[group] += times[event]
                sizes[group] += times[event] * counts[block]


@kernel
def refer(
    events: Int32s,
    event_starts: Indices,
    groups: Int32s,
    counts: Int32s,
    first: int,
    last: int,
    cursors: Indices,
    occurrences: Int32s,
    blocks: Indices,
    rows: Int32s,
) -> None:
    """Put the references of some occurrences in place.

    Args:
        events: index of the event of each member at each occurrence, -1 for none;
            shape (members, occurrences).
        event_starts: first block of each event.
        groups: of the blocks.
        counts: rows of the blocks.
        first: occurrence.
        last: occurrence after the last.
        cursors: next place of each group, increased by its references.
        occurrences: receives the occurrence of each reference.
        blocks: receives its block.
        rows: receives the rows of that.
    """
    for occurrence in range(first, last):
        for m in range(events.shape[0]):
            event = events[m, occurrence]
            if event >= 0:
                for block in range(event_starts[event], event_starts[event + 1]):
                    group = groups[block]
                    if group >= 0:
                        occurrences[cursors[group]] = occurrence
                        blocks[cursors[group]] = block
                        rows[cursors[group]] = counts[block]
                        cursors[group] += 1


@kernel
def find_pairs(
    starts: Indices,
    group: int,
    first: int,
    last: int,
    occurrences: Int32s,
    rows: Int32s,
    periods: Int32s,
    pair_starts: Indices,
    pair_groups: Int32s,
    pair_rows: Indices,
    progress: Indices,
) -> None:
    """Note where pairs begin among some references.

    Args:
        starts: first reference of each group.
        group: of the first reference.
        first: reference.
        last: reference after the last.
        occurrences: of the references.
        rows: of the references.
        periods: of the occurrences.
        pair_starts: receives the first reference of each pair.
        pair_groups: receives its group.
        pair_rows: receives the rows before it.
        progress: pairs and rows so far.
    """
    pair = progress[0]
    total = progress[1]
    for i in range(first, last):
        new = i == starts[group]
        while i == starts[group + 1]:
            group += 1
            new = True
        if new or periods[occurrences[i]] != periods[occurrences[i - 1]]:
            pair_starts[pair] = i
            pair_groups[pair] = group
            pair_rows[pair] = total
            pair += 1
        total += rows[i]
    progress[0] = pair
    progress[1] = total + ZERO


@kernel
def find_alone(starts: Indices, occurrences: Int32s, blocks: Indices, keys: Indices) -> None:
    """Tell pairs by their first block where an occurrence is all that happens in a period.

    Args:
        starts: first reference of each pair, and the one after the last.
        occurrences: of the references.
        blocks: of the references.
        keys: receives the blocks; keeps what it has for other pairs.
    """
    for pair in range(len(keys)):
        first = starts[pair]
        if occurrences[first] == occurrences[starts[pair + 1] - 1]:
            keys[pair] = blocks[first]


@kernel
def find_changes(
    keys: Indices, order: Indices, starts: Indices, blocks: Indices, new: npt.NDArray[np.bool_]
) -> None:
    """Tell which pairs have other blocks than the one before.

    A filter may leave out an event of one member and not of another, so that the first block
    does not tell all.

    Args:
        keys: of ``find_alone``, ascending.
        order: pair of each.
        starts: first reference of each pair, and the one after the last.
        blocks: of the references.
        new: receives whether a pair differs.
    """
    for j in range(len(keys)):
        new[j] = j == 0 or keys[j] != keys[j - 1]
        if not new[j]:
            this, that = starts[order[j]], starts[order[j - 1]]
            count = starts[order[j] + 1] - this
            new[j] = count != starts[order[j - 1] + 1] - that
            for k in range(0 if new[j] else count):
                new[j] |= blocks[this + k] != blocks[that + k]
