"""Stages that shuffle nearby items.

``block`` and ``overlap`` have random access; ``reservoir`` has not, but its state is one
number all the same.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Indices
from ..errors import PipelineError, StateError
from ..rng import Permutation
from ._kernels.reservoir import exchange, refill
from .base import Block, Indexed, Schema, Sequential, Stage, State
from .blocks import BlockPermutation
from .inorder import Counting, check_state
from .options import seed_key, whole
from .positions import Reordering
from .reuse import ReusePool
from .sources import MAX_ITEMS

MAX_SIZE = 2**20
"""Of the items that are shuffled together."""
_KEPT = 4


class BlockShuffle(Reordering):
    """Blocks of ``size`` items, each in an order of its own; the last may be shorter.

    Block j has the order ``Permutation(size, derive(seed, "block", *path).nth(j))``.

    Args:
        inner: what it takes items from.
        size: of a block.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: a size or seed that is none.
    """

    def __init__(
        self, inner: Indexed, *, size: int, seed: int = 0, path: tuple[str | int, ...] = ()
    ) -> None:
        whole("size", size, 1, MAX_SIZE)
        self._order = BlockPermutation(seed_key(seed, "block", *path), size, inner.length)
        super().__init__(inner, inner.length)

    def where(self, positions: Indices) -> Indices:
        """Permuted within the block."""
        return self._order.at(positions)


class OverlapShuffle(Reordering):
    """Two block shuffles, one after another, with blocks that overlap by half.

    Blocks have 2 ``size`` items; those of the second begin in the middle of those of the
    first, so that there are no borders that no item crosses. An item moves by less than
    3 ``size`` places, on average by 1.08 ``size`` (a reservoir of that size: by 0.73).

    Args:
        inner: what it takes items from.
        size: half of that of a block.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: a size or seed that is none.
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
        """Permuted within the outer block, then within the inner."""
        return self._inner_order.at(self._outer_order.at(positions))


class ReservoirShuffle(Counting):
    """Items pass through a reservoir: each pushes a random one out and takes its place.

    The shuffle of the Kaldi toolkit, but for where randomness comes from: item k goes into
    ``below(key, k, B)``, so that the state is only the number of items given. When the
    items end, what is left comes out in the order ``Permutation(B, key.child("flush"))``.
    A reservoir larger than the inner stage is as large as that.

    Args:
        inner: what it takes items from, by position.
        size: B, of the reservoir.
        seed: from 0 to 2**63 - 1.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: an inner stage without positions, or a size or seed that is none.
    """

    def __init__(
        self, inner: Stage, *, size: int, seed: int = 0, path: tuple[str | int, ...] = ()
    ) -> None:
        whole("size", size, 1, MAX_SIZE)
        if isinstance(inner, Sequential):
            raise PipelineError(
                "a reservoir after a stage that is read in order only",
                field="kind",
                hint="Put the shuffle before the stage that made it so.",
            )
        self.inner = inner
        n = inner.length
        self._end = MAX_ITEMS if n is None else n
        self._size = min(size, self._end)
        self._last_exchange = self._end - self._size
        key = seed_key(seed, "reservoir", *path)
        self._key = key.words
        self._flush = Permutation(self._size, key.child("flush"))
        self._spare: ReusePool[tuple[int, Indices]] = ReusePool(_KEPT)

    @property
    def schema(self) -> Schema:
        """That of the inner stage."""
        return self.inner.schema

    @property
    def initial(self) -> State:
        """No items given."""
        return (0,)

    @property
    def endless(self) -> bool:
        """Whether the inner stage has no end."""
        return self.inner.length is None

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """The next items.

        Raises:
            StateError: a number of items that the inner stage does not have.
        """
        check_state(state, self.initial)
        emitted = state[0]
        if emitted > self._end:
            raise StateError(f"{emitted} items given of {self._end}")
        stop = min(emitted + count, self._end)
        return self.inner.at(self._where(emitted, stop)), (stop,)

    def skip(self, state: State, count: int) -> State:
        """Further on, without a look at the items."""
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
        """What the reservoir holds when so many items have been given."""
        spare = self._spare.take(lambda candidate: candidate[0] == emitted)
        if spare is not None:
            return spare[1]
        slots = np.empty(self._size, np.int64)
        refill(self._key, emitted, slots)
        return slots
