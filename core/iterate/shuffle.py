"""Local shuffles, for data that is best read roughly in order.

A permutation of everything reads files at random. A local shuffle mostly moves an item by some
``size`` places only, so that reading stays nearly sequential:

* ``block``: permutes each block of ``size`` items. Random access, but no item crosses a border,
  so an item moves by at most ``size`` - 1 places.
* ``overlap``: two block shuffles of 2 ``size``, shifted by half a block. Random access and
  no borders: the second shuffle mixes across those of the first. An item moves by at most
  3 ``size`` - 1 places: from the first of an outer block to its last, 2 ``size`` - 1, which is in
  the first half of an inner block, and from there to the last of that, ``size`` more.
* ``reservoir``: the well-known streaming shuffle. An item comes at most ``size`` - 1 places
  early, since so many are read ahead of it, but as late as chance will have it: each exchange
  pushes it out with probability 1 / ``size``, so one in e ** (m + 1) comes more than m ``size``
  places late. Each item pushes a random one out of a reservoir of B slots and takes its place::

      item k        ->  slot(k) = below(key, k, B)
      pushed out    <-  the item that entered this slot last

The state of the usual implementation is B items and a random generator, hundreds of kilobytes
in every checkpoint. Here slots are drawn by *counter*: slot(k) is a function of the key and k
alone. So the content of the reservoir after any number of items can be computed without
running up to there: each slot holds the last item that was sent to it, and a scan *backwards*
over k finds that item. Filling all B slots takes about B ln B draws (the coupon collector's
problem), a few milliseconds for B = 100,000, in stretches. The next call takes the slots from a
pool. The state is one integer, the number of items emitted. The reservoir holds positions, not
items, so the inner stage must have random access, and reads an item only when it is emitted.

When the items end, the B items that are left come out in the order of a permutation.
"""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import Indices, Words
from ..budget import Scope, current
from ..errors import StateError
from ..rng import Permutation
from ..rng.kernels import U, mix, scale
from .base import MAX_ITEMS, Block, Counting, Indexed, Sequential, Stage, State, check_state
from .blocks import BlockPermutation
from .columns import ReusePool
from .options import refuse, seed_key, whole
from .positions import Reordering

MAX_SIZE = 2**20
"""Most items that are shuffled together."""
_SPARES = 4
_DRAWS = 1 << 20
"""Items that a scan looks at between two checks of the budget: some 10 ms of work."""
_SLOT_BYTES = 8
_DRAWN = 512
"""Slots that a scan draws at once."""


class BlockShuffle(Reordering):
    """Blocks of ``size`` items, each permuted; the last may be shorter.

    Block j has the order ``Permutation(size, derive(seed, "block", *path).nth(j))``.

    Args:
        inner: stage the items come from.
        size: items of a block.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: the size or seed is invalid.
    """

    def __init__(
        self, inner: Indexed, *, size: int, seed: int = 0, path: tuple[str | int, ...] = ()
    ) -> None:
        whole("size", size, 1, MAX_SIZE)
        self._order = BlockPermutation(seed_key(seed, "block", *path), size, inner.length)
        super().__init__(inner, inner.length)

    def where(self, positions: Indices) -> Indices:
        """Permute positions within their block."""
        return self._order.at(positions)


class OverlapShuffle(Reordering):
    """Two block shuffles in a row, whose blocks overlap by half.

    Blocks have 2 ``size`` items. Those of the second shuffle begin in the middle of those
    of the first, so items cross every border. An item moves by less than 3 ``size`` places,
    on average by 1.08 ``size`` (in a reservoir of that size, by 0.73).

    Args:
        inner: stage the items come from.
        size: half the items of a block.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: the size or seed is invalid.
    """

    def __init__(
        self, inner: Indexed, *, size: int, seed: int = 0, path: tuple[str | int, ...] = ()
    ) -> None:
        whole("size", size, 1, MAX_SIZE)
        key, n = seed_key(seed, "overlap", *path), inner.length
        self._inner_order = BlockPermutation(key.child("inner"), 2 * size, n)
        self._outer_order = BlockPermutation(key.child("outer"), 2 * size, n, lead=size)
        super().__init__(inner, n)

    def where(self, positions: Indices) -> Indices:
        """Permute positions within the outer block, then within the inner."""
        return self._inner_order.at(self._outer_order.at(positions))


class ReservoirShuffle(Counting):
    """Items pass through a reservoir: each pushes a random one out and takes its slot.

    This is the buffered shuffle of the Kaldi toolkit with random numbers by counter: item k
    goes into slot ``below(key, k, B)``, so the state is the number of items emitted.
    After the last item the reservoir empties in the order
    ``Permutation(B, key.child("flush"))``. A reservoir is never larger than the inner stage.

    Args:
        inner: stage the items come from; it must have random access.
        size: B, the slots of the reservoir.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: the inner stage is sequential, or the size or seed is invalid.
    """

    def __init__(
        self, inner: Stage, *, size: int, seed: int = 0, path: tuple[str | int, ...] = ()
    ) -> None:
        whole("size", size, 1, MAX_SIZE)
        if isinstance(inner, Sequential):
            hint = "Put the shuffle before the first sequential stage."
            raise refuse("a reservoir cannot follow a sequential stage", hint, "kind")
        self.inner = inner
        n = inner.length
        self._end = MAX_ITEMS if n is None else n
        self._size = min(size, self._end)
        self._last_exchange = self._end - self._size
        key = seed_key(seed, "reservoir", *path)
        self._key = key.words
        self._flush = Permutation(self._size, key.child("flush"))
        self._spare: ReusePool[tuple[int, Indices]] = ReusePool(_SPARES)
        self.schema = self.inner.schema
        self.initial = (0,)
        self.endless = self.inner.length is None

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read the items that the next exchanges push out.

        Raises:
            StateError: more items emitted than the inner stage has.
        """
        check_state(state, self.initial)
        emitted = state[0]
        if emitted > self._end:
            raise StateError(f"{emitted} items emitted of {self._end}")
        stop = min(emitted + count, self._end)
        return self.inner.at(self._where(emitted, stop)), (stop,)

    def skip(self, state: State, count: int) -> State:
        """Add to the number of items emitted."""
        return (state[0] + count,)

    def _where(self, start: int, stop: int) -> Indices:
        """Positions in the inner stage of items start to stop - 1."""
        out = np.empty(stop - start, np.int64)
        exchanged = max(min(stop, self._last_exchange) - start, 0)
        at = min(start, self._last_exchange)
        slots = self._slots(at)
        exchange(self._key, at, slots, out[:exchanged])
        if exchanged < len(out):
            first = start + exchanged - self._last_exchange
            places = np.arange(first, first + len(out) - exchanged)
            out[exchanged:] = slots[self._flush.at(places)]
        self._spare.give((at + exchanged, slots))
        return out

    def _slots(self, emitted: int) -> Indices:
        """The positions in the reservoir after ``emitted`` items, shape (B,)."""
        current().hold("shuffle", _SLOT_BYTES * self._size)
        spare = self._spare.take(lambda candidate: candidate[0] == emitted)
        if spare is not None:
            return spare[1]
        slots = np.full(self._size, -1, np.int64)
        at, missing = self._size + emitted - 1, self._size
        drawn = np.empty(_DRAWN, np.int64)
        while missing and at >= self._size:
            current().check("shuffle")
            at, missing = refill(self._key, slots, at, missing, _DRAWS, drawn)
        if missing:
            with Scope("shuffle", 2 * _SLOT_BYTES * self._size):
                unknown = np.flatnonzero(slots < 0)
                slots[unknown] = unknown
        return slots


@kernel
def refill(
    key: Words, slots: Indices, at: int, missing: int, draws: int, drawn: Indices
) -> tuple[int, int]:
    """Find the items in the reservoir, going back from the item that entered it last.

    A whole scan takes B ln B draws on average, so callers scan in stretches.

    Args:
        key: of the slots.
        slots: shape (B,), the number of the item in each slot, -1 where it is not known yet.
        at: the item to begin with.
        missing: number of slots not known yet.
        draws: maximum number of items to look at.
        drawn: shape (k,), k > 0, scratch.

    Returns:
        The item to go on with and the number of slots still unknown. Below item B, each unknown
        slot holds the item of its own number.
    """
    first, second = key[0], key[1]
    size = len(slots)
    stop = max(size, at + 1 - draws)
    while missing > 0 and at >= stop:
        # As in exchange: k slots are drawn before any is looked at, in a loop that vectorises.
        count = min(len(drawn), at + 1 - stop)
        for i in range(count):
            drawn[i] = np.int64(scale(mix(U(at - i), first, second), U(size)))
        seen = 0
        while missing > 0 and seen < count:
            slot = drawn[seen]
            if slots[slot] < 0:
                slots[slot] = at - seen
                missing -= 1
            seen += 1
        at -= seen
    return at, missing


@kernel
def exchange(key: Words, emitted: int, slots: Indices, out: Indices) -> None:
    """Put in as many items as come out, and note which those are.

    Args:
        key: of the slots.
        emitted: items that came out before.
        slots: shape (B,), the number of the item in each slot; updated.
        out: shape (k,), receives the items that come out.
    """
    # All slots are drawn before any is used: that loop has no dependencies and vectorises.
    first, second = key[0], key[1]
    size = len(slots)
    for i in range(len(out)):
        out[i] = np.int64(scale(mix(U(size + emitted + i), first, second), U(size)))
    for i in range(len(out)):
        slot = out[i]
        out[i] = slots[slot]
        slots[slot] = size + emitted + i
