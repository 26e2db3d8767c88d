"""Cut the items of a pipeline into batches, one step at a time, from any state.

A step is a pure function: a state goes in, one batch and the next state come out. The caller
holds the state, so any thread, rank or server can carry on where another one stopped.

How far a state must reach depends on the stages:

* :class:`.reading.IndexedStepper` asks for items by position, so batch b of an epoch is
  simply the items from b * size on. The state is the number of the batch, skipping is addition,
  and a rank reads only its own rows, unless padding needs the longest item of the batch.
* :class:`SequentialStepper` reads items in order. Its state is the number of the batch, the
  epoch and the state of the stage, which starts over in every epoch::

      (0, 0, *s0) --batch 0--> (1, 0, *s1) --batch 1--> (2, 0, *s2) --batch 2--> (3, 1, *s0)
                                                              last batch of epoch 0

  Only reading the next batch shows whether a full batch is the last of its epoch. Batches that
  have been read go into a small pool, where the next step and the other ranks find them.

The last batch of an epoch may be short. With 10 items and size 4, ``last`` makes of it::

    keep   0 1 2 3 | 4 5 6 7 | 8 9
    drop   0 1 2 3 | 4 5 6 7
    pad    0 1 2 3 | 4 5 6 7 | 8 9 . .    zeros, and ragged items without values
    wrap   0 1 2 3 | 4 5 6 7 | 8 9 0 1    from the beginning of the same epoch
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..budget import Scope, current
from ..errors import CancelledError, CoreError, LimitError, PipelineError, PositionError, StateError
from ..iterate.base import Block, Column, Ragged, Schema, Sequential, State
from ..iterate.batching import BucketBatch
from ..iterate.columns import (
    ReusePool,
    block_bytes,
    block_length,
    concatenate,
    empty_block,
    slice_block,
)
from .stage import Batching, StageSpec

MAX_SKIPPED = 1 << 24
"""Most items that skipping may read in a sequential pipeline."""
_KEPT_BATCHES = 4
"""Batches in the pool: ranks share the current one, and the next is read ahead."""


@dataclass(slots=True, eq=False)  # frozen, it would take five times as long to make
class Step:
    """One batch, or one rank's rows of it; nothing changes it."""

    block: Block
    """This rank's rows."""
    state: State
    """State after the batch; the same for all ranks."""
    sequence: int
    """Number of the global batch; counts from 0 across epochs."""
    epoch: int
    count: int
    """Rows of the global batch that hold new items: neither padding nor wrapped."""
    rows: tuple[int, int]
    """First row of this rank in the global batch, and the row after its last."""
    ends_epoch: bool
    data_finished: bool
    """Whether the data ends here, even if a limit ends the pipeline at the same batch."""


Rows = Callable[[int], tuple[int, int]]
"""First row of a rank and the row after its last, given the rows of the global batch."""


class Stepper(ABC):
    """Produces the batches of a pipeline from states."""

    initial: State
    """The state before the first batch; every state begins with the batch number."""
    batches_per_epoch: int | None = None
    """Batches of a natural epoch, a short last one as ``last`` has it; None if unknown until they
    are read, or if the items never end."""
    _chain: Callable[[int], object]

    def __init__(self, batching: Batching, schema: Schema) -> None:
        self.batching = batching
        self.schema = schema
        padding = batching.padding
        self._whole = padding is not None and padding.length is None

    @property
    def first(self) -> object:
        """The stages of the first epoch."""
        return self._chain(0)

    @abstractmethod
    def check(self, state: State) -> None:
        """Check the values of a state whose form has been checked.

        Raises:
            StateError: no step leads to this state.
        """

    @abstractmethod
    def step(self, state: State, rows: Rows) -> Step | None:
        """The batch after a state; None at the end.

        Args:
            state: as :meth:`check` accepts it.
            rows: chooses the rows to return.
        """

    @abstractmethod
    def skip(self, state: State, count: int) -> State:
        """The state ``count`` batches further on.

        Raises:
            PositionError: fewer batches remain.
        """

    def fate(self) -> tuple[int | None, int]:
        """If there is no batch: items read for the first one, None if unknown; and those left."""
        return None, 0

    def _rank_block(
        self, read: Callable[[int, int], Block], low: int, high: int, total: int
    ) -> Block:
        """Rows low to high - 1 of ``total``, padded to the same width on every rank."""
        if not self._whole:
            return self.batching.collate(read(low, high))
        # The longest item sets the width, and it may belong to another rank.
        return slice_block(self.batching.collate(read(0, total)), low, high)


Batch = tuple[Block, State]


class SequentialStepper(Stepper):
    """Batches of items that are read in order.

    A state is the batch number, the epoch, and the state of the stage.

    Args:
        chain: returns the items of an epoch, given its number.
        batching: how items become batches, unless the stage makes batches itself.
        last: the last stage that drops items, or else the one that makes batches.
    """

    _chain: Callable[[int], Sequential | BucketBatch]

    def __init__(
        self, chain: Callable[[int], Sequential | BucketBatch], batching: Batching, last: StageSpec
    ) -> None:
        first = chain(0)
        super().__init__(batching, first.schema)
        self._chain = chain
        self._first = first.initial
        self.initial = (0, 0, *self._first)
        self._last = last
        self._makes_batches = isinstance(first, BucketBatch)
        self._pool: ReusePool[tuple[tuple[int, State], Batch]] = ReusePool(_KEPT_BATCHES)

    def check(self, state: State) -> None:
        """Check the batch number and the epoch against the limit and each other."""
        epochs, limit = self.batching.epochs, self.batching.limit
        if epochs is not None and state[1] >= epochs and state[1:] != (epochs, *self._first):
            raise StateError(f"the state is in epoch {state[1]}, but there are {epochs}")
        if state[1] > state[0]:
            raise StateError(f"the state is in epoch {state[1]} after only {state[0]} batches")
        if limit is not None and state[0] > limit:
            raise StateError(f"the state is at batch {state[0]}, but the limit is {limit}")

    def step(self, state: State, rows: Rows) -> Step | None:
        """Read the whole batch, of which the rank keeps its rows."""
        advanced = self._advance(state)
        if advanced is None:
            return None
        block, after, ends = advanced
        sequence, epoch = state[:2]
        count = block_length(block)
        size = self.batching.size
        total = count if self.batching.last == "keep" or self._makes_batches else size
        low, high = rows(total)
        whole = self._fill_up(block, epoch, total) if total > count else block
        return Step(
            block=self._rank_block(lambda a, b: slice_block(whole, a, b), low, high, total),
            state=after,
            sequence=sequence,
            epoch=epoch,
            count=count,
            rows=(low, high),
            ends_epoch=ends,
            data_finished=ends and epoch + 1 == self.batching.epochs,
        )

    def skip(self, state: State, count: int) -> State:
        """Read the batches in between.

        Raises:
            PositionError: fewer batches remain.
            LimitError: they have more than ``MAX_SKIPPED`` items.
        """
        most = max(MAX_SKIPPED // self.batching.size, 1)
        if count > most:
            raise LimitError(
                f"{count} batches are too many to skip, since each must be read",
                limit="skipped",
                allowed=most,
                hint="This pipeline is read in order. Continue from a later state.",
            )
        for index in range(count):
            with Scope():
                advanced = self._advance(state)
            if advanced is None:
                raise PositionError(f"the pipeline ends after {index} of {count} batches")
            state = advanced[1]
        return state

    def _advance(self, state: State) -> tuple[Block, State, bool] | None:
        """The whole batch, the state after it, and whether it ends its epoch."""
        sequence, epoch = state[:2]
        current().hold("batch", sum(block_bytes(batch[0]) for _, batch in self._pool.kept()))
        if epoch == self.batching.epochs or sequence == self.batching.limit:
            return None
        batch = self._batch(epoch, state[2:])
        if batch is None:
            if self.batching.epochs != 1:
                left = block_length(self._items(epoch, self._first)[0])
                few = f"{left:,} items, too few for one, and last is drop" if left else "no item"
                raise PipelineError(
                    f"epoch {epoch} has no batch: {self._last.described} leaves {few}",
                    stage=self._last.place,
                    hint="Each of several epochs needs a batch: let more items pass, or make "
                    "batches smaller.",
                )
            return None
        block, after = batch
        if self._ends(epoch, block, after):
            return block, (sequence + 1, epoch + 1, *self._first), True
        return block, (sequence + 1, epoch, *after), False

    def _ends(self, epoch: int, block: Block, after: State) -> bool:
        if not self._makes_batches and block_length(block) < self.batching.size:
            return True
        try:
            return self._batch(epoch, after) is None
        except CancelledError:
            raise
        except CoreError:
            return False  # the next step meets the error again and raises it

    def fate(self) -> tuple[int | None, int]:
        """As :class:`Stepper` says; the state of a stage ends with the position of its source."""
        stage = self._chain(0)
        if isinstance(stage, BucketBatch):
            block, after = stage.inner.take(stage.inner.initial, 1)
        else:
            block, after = self._items(0, self._first)
        return after[-1], block_length(block)

    def _batch(self, epoch: int, state: State) -> Batch | None:
        """The items of one batch; None if there are none, or too few and ``last`` is drop."""
        batch = self._items(epoch, state)
        count = block_length(batch[0])
        dropped = self.batching.last == "drop" and count < self.batching.size
        return None if count == 0 or (dropped and not self._makes_batches) else batch

    def _items(self, epoch: int, state: State) -> Batch:
        key = (epoch, state)
        entry = self._pool.take(lambda candidate: candidate[0] == key)
        if entry is None:
            entry = (key, self._read(epoch, state, self.batching.size))
        self._pool.give(entry)
        return entry[1]

    def _read(self, epoch: int, state: State, count: int) -> Batch:
        # A window of a bucketed stage has up to a million batches, which look at no item.
        current().check("batch")
        stage = self._chain(epoch)
        if isinstance(stage, BucketBatch):
            return stage.next_batch(state) or (empty_block(self.schema), state)
        return stage.take(state, count)

    def _fill_up(self, block: Block, epoch: int, total: int) -> Block:
        """A short last block with padding, or with the first items of its epoch again."""
        if self.batching.last == "pad":
            return pad_rows(block, total)
        blocks, missing = [block], total - block_length(block)
        state = self._first
        while missing:
            more, state = self._read(epoch, state, missing)
            if block_length(more) == 0:
                state = self._first
                continue
            blocks.append(more)
            missing -= block_length(more)
        return concatenate(blocks, self.schema)


def pad_rows(block: Block, count: int) -> Block:
    """Append zeros, and empty ragged items, until a block has ``count`` items.

    Raises:
        BudgetExceededError: the result does not fit into the budget.
    """
    return {name: _padded(column, count) for name, column in block.items()}


def _padded(column: Column, count: int) -> Column:
    missing = count - len(column)
    if isinstance(column, Ragged):
        end = np.full(missing, column.offsets[-1], np.int64)
        return Ragged(column.values, np.concatenate([column.offsets, end]))
    shape = (count, *column.shape[1:])
    current().hold("batch", math.prod(shape) * column.itemsize)
    out = np.zeros(shape, column.dtype)
    out[: len(column)] = column
    return out
