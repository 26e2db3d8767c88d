"""Sort a window of items by key and cut it into batches."""

from __future__ import annotations

from ..._jit import kernel
from ...arrays import Indices


@kernel
def sort_descending(keys: Indices, lowest: int, counts: Indices, out: Indices) -> None:
    """Sort keys from highest to lowest by counting; equal keys keep their order.

    Args:
        keys: shape (k,), all from ``lowest`` to ``lowest + len(counts) - 2``.
        lowest: the lowest key.
        counts: zeros, one more than there are values; scratch.
        out: shape (k,), receives the order.
    """
    top = lowest + len(counts) - 2
    for i in range(len(keys)):
        counts[top - keys[i] + 1] += 1
    for i in range(1, len(counts)):
        counts[i] += counts[i - 1]
    for i in range(len(keys)):
        slot = top - keys[i]
        out[counts[slot]] = i
        counts[slot] += 1


@kernel
def cut(
    keys: Indices,
    order: Indices,
    boundaries: Indices,
    size: int,
    budget: int,
    padded: int,
    cuts: Indices,
) -> int:
    """Cut sorted items into batches, each as large as allowed; return their number.

    Args:
        keys: shape (k,), not negative.
        order: shape (k,), the items from the highest key to the lowest.
        boundaries: shape (k,), values of the items; where they change, a batch begins.
            Shape (0,) for none.
        size: most items of a batch.
        budget: highest weight of a batch, 0 for no limit.
        padded: 1 if the weight is items times their highest key, 0 if it is the sum of keys.
        cuts: shape (k + 1,), receives the place in ``order`` where each batch begins, then k.
    """
    batches, first, total = 0, 0, 0
    cuts[0] = 0
    for i in range(len(order)):
        key = keys[order[i]]
        count = i - first + 1
        weight = keys[order[first]] * count if padded else total + key
        full = count > size or (budget > 0 and weight > budget)
        if len(boundaries) > 0 and boundaries[order[i]] != boundaries[order[first]]:
            full = True
        if full and i > first:
            batches += 1
            cuts[batches] = i
            first, total = i, 0
        total += key
    if len(order) > 0:
        batches += 1
        cuts[batches] = len(order)
    return batches


@kernel
def arrange(
    order: Indices, cuts: Indices, batches: Indices, rows: Indices, offsets: Indices
) -> None:
    """Put whole batches of sorted items in another order.

    Args:
        order: shape (k,), the sorted items.
        cuts: shape (m + 1,), first of each batch in ``order``.
        batches: shape (m,), the batches in their new order.
        rows: shape (k,), receives the items.
        offsets: shape (m + 1,), receives the first of each batch in ``rows``.
    """
    at = 0
    for i in range(len(batches)):
        offsets[i] = at
        for k in range(cuts[batches[i]], cuts[batches[i] + 1]):
            rows[at] = order[k]
            at += 1
    offsets[len(batches)] = at
