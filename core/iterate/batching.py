"""Batches of items of similar length, cut from windows that are read ahead.

Padding a batch to its longest item wastes memory and compute if short and long items meet.
Sorting everything by length would end that, but also end the shuffle. The compromise is to
sort only a window of items, cut it into batches, and shuffle those::

    lengths read    5 2 9 1 8 3 3 7        read_ahead=8, size=2
    sorted          9 8 | 7 5 | 3 3 | 2 1
    batches served  3 3 | 9 8 | 2 1 | 7 5

:class:`BucketBatch` is like a sequential stage whose items are batches. Instead of ``take``
it has ``next_batch(state) -> (Block, State) | None``: the rows of one batch and the state
after it, or None at the end. ``next_window(state)`` returns all remaining batches of a
window at once. Reading does not change it, as with every stage.

The state is ``(served, position, ...)``: the batches served of the current window, and the
state of the inner stage at the beginning of the window, which begins with the position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._jit import kernel
from ..arrays import Indices
from ..budget import current
from ..errors import StateError, TransformError
from ..rng import Key, Permutation
from .base import Block, Field, Ragged, Stage, State, check_state, in_order
from .columns import ReusePool, block_bytes, block_length, take_block
from .options import refuse, seed_key, whole

MAX_READ_AHEAD = 1_000_000
MAX_SIZE = 2**20
_MAX_KEY = 2**40
"""Keeps every sum and product over a window within int64."""
_MAX_BUDGET = 2**62
_INDEX_ARRAYS = 12
"""Arrays of 8 bytes per item that sorting and cutting a window take."""
_COUNTED = 4
"""Keys are sorted by counting while their range is below this many values per item."""
_SPARES = 2


@dataclass(frozen=True, slots=True)
class _Window:
    """A window that was read and sorted."""

    state: State
    """State of the inner stage at its beginning."""
    block: Block
    rows: Indices
    """Index in the block of every row, batch by batch in the order they are served."""
    offsets: Indices
    """First row of every batch, and the number of rows."""
    after: State
    """State of the inner stage at its end."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return block_bytes(self.block) + self.rows.nbytes + self.offsets.nbytes


class BucketBatch:
    """Batches of items with similar keys.

    A window of ``read_ahead`` items is read and sorted by key, highest first; items of
    equal keys keep their order. Batches are cut greedily and shuffled within the window:
    batch m of window w is batch ``Permutation(batches, derive(seed, "bucket",
    *path).nth(w)).at(m)``. The last window may be shorter. An item above the budget is a
    batch alone.

    Args:
        inner: stage the items come from.
        read_ahead: items of a window.
        key: a ragged field, whose length is the key, or a field of integers from 0.
        size: most items of a batch. At least one of size and budget is required.
        budget: highest weight of a batch.
        padded: whether the weight of a batch is its items times their highest key, which is
            the size of the batch once padded, or the sum of its keys.
        boundary: a field of integers; a batch never continues, in sorted order, past an
            item with another value of it.
        shuffle: whether batches are shuffled within their window.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key of the shuffle, for stages that share a seed.

    Raises:
        PipelineError: an option is invalid, contradicts another or does not fit the items.
    """

    def __init__(
        self,
        inner: Stage,
        *,
        read_ahead: int,
        key: str,
        size: int | None = None,
        budget: int | None = None,
        padded: bool = True,
        boundary: str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        path: tuple[str | int, ...] = (),
    ) -> None:
        self._read_ahead = whole("read_ahead", read_ahead, 1, MAX_READ_AHEAD)
        if size is None and budget is None:
            hint = "One of them says when a batch is full."
            raise refuse("neither size nor budget", hint, "size")
        self._size = MAX_SIZE if size is None else whole("size", size, 1, MAX_SIZE)
        self._budget = 0 if budget is None else whole("budget", budget, 1, _MAX_BUDGET)
        self._padded = padded
        self._key_field = _field(inner, key, "key")
        self._boundary = None if boundary is None else _field(inner, boundary, "boundary").name
        if self._boundary is not None and _field(inner, self._boundary, "boundary").ragged:
            raise refuse("a boundary is one integer per item", option="boundary")
        self._order: Key | None = seed_key(seed, "bucket", *path) if shuffle else None
        self.inner = in_order(inner)
        self._windows: ReusePool[_Window] = ReusePool(_SPARES)
        self.schema = self.inner.schema
        self.initial = (0, *self.inner.initial)
        self.endless = self.inner.endless

    def next_batch(self, state: State) -> tuple[Block, State] | None:
        """The rows of the next batch and the state after it; None at the end.

        Raises:
            StateError: it cannot be a state of this stage.
            TransformError: a negative key, or one of 2**40 or more.
        """
        window, served = self._window(state)
        if window is None:
            return None
        rows = window.rows[window.offsets[served] : window.offsets[served + 1]]
        served += 1
        if served < len(window.offsets) - 1:
            self._windows.give(window)
            return take_block(window.block, rows), (served, *window.state)
        return take_block(window.block, rows), (0, *window.after)

    def next_window(self, state: State) -> tuple[Block, Indices, State] | None:
        """All remaining batches of a window; None at the end.

        Returns:
            The rows, batch by batch; the first row of each batch and the number of rows,
            shape (batches + 1,); and the state after them.

        Raises:
            StateError: it cannot be a state of this stage.
            TransformError: a negative key, or one of 2**40 or more.
        """
        window, served = self._window(state)
        if window is None:
            return None
        first = window.offsets[served]
        block = take_block(window.block, window.rows[first:])
        return block, window.offsets[served:] - first, (0, *window.after)

    def _window(self, state: State) -> tuple[_Window | None, int]:
        """The current window, None at the end, and the number of batches served of it."""
        check_state(state, self.initial)
        served, at = state[0], state[1:]
        current().hold("bucket_batch", sum(window.nbytes for window in self._windows.kept()))
        window = self._windows.take(lambda candidate: candidate.state == at)
        if window is None:
            window = self._read(at)
        batches = 0 if window is None else len(window.offsets) - 1
        if served and served >= batches:
            raise StateError(f"{served} batches served of a window of {batches}")
        return window, served

    def _read(self, at: State) -> _Window | None:
        block, after = self.inner.take(at, self._read_ahead)
        count = block_length(block)
        if not count:
            return None
        current().hold("bucket_batch", _INDEX_ARRAYS * 8 * count)
        keys, lowest, highest = self._keys(block, at[0])
        order = _descending(keys, lowest, highest)
        boundaries = np.empty(0, np.int64)
        if self._boundary is not None:
            boundaries = _integers(block, self._boundary)
        cuts = np.empty(count + 1, np.int64)
        batches = cut(keys, order, boundaries, self._size, self._budget, int(self._padded), cuts)
        cuts = cuts[: batches + 1].copy()
        rows, offsets = self._shuffled(order, cuts, at[0] // self._read_ahead)
        return _Window(at, block, rows, offsets, after)

    def _keys(self, block: Block, position: int) -> tuple[Indices, int, int]:
        """The keys of items, the lowest and the highest."""
        keys = _integers(block, self._key_field.name)
        lowest, highest = int(keys.min()), int(keys.max())
        if lowest < 0 or highest >= _MAX_KEY:
            wrong = int(np.flatnonzero((keys < 0) | (keys >= _MAX_KEY))[0])
            raise TransformError(
                f"key {self._key_field.name!r} of the item at position "
                f"{position + wrong} is {block[self._key_field.name][wrong]}",
                position=position + wrong,
                hint="Keys are from 0 to 2**40 - 1.",
            )
        return keys, lowest, highest

    def _shuffled(self, order: Indices, cuts: Indices, window: int) -> tuple[Indices, Indices]:
        """Rows and first rows of the batches in the order they are served."""
        if self._order is None:
            return order, cuts
        count = len(cuts) - 1
        batches = Permutation(count, self._order.nth(window)).at(np.arange(count))
        rows, offsets = np.empty_like(order), np.empty_like(cuts)
        arrange(order, cuts, batches, rows, offsets)
        return rows, offsets


def _field(inner: Stage, name: str, option: str) -> Field:
    """The field that an option names: ragged, or of one integer per item."""
    for field in inner.schema:
        if field.name == name and (field.ragged or (field.dtype.kind in "biu" and not field.shape)):
            return field
    hint = "A ragged field, or one of one integer per item."
    raise refuse(f"{option} is {name!r}", hint, option)


def _integers(block: Block, name: str) -> Indices:
    """Lengths of ragged items or values of integers, int64, contiguous and writable."""
    column = block[name]
    if isinstance(column, Ragged):
        return np.diff(column.offsets)
    # Of uint64, what is beyond int64 wraps: it stays different, and no key.
    return np.require(column, np.int64, ["C", "W"])


def _descending(keys: Indices, lowest: int, highest: int) -> Indices:
    if highest - lowest >= _COUNTED * len(keys):
        return np.argsort(-keys, kind="stable")
    order = np.empty(len(keys), np.int64)
    sort_descending(keys, lowest, np.zeros(highest - lowest + 2, np.int64), order)
    return order


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
