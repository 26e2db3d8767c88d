"""Batches of a built pipeline, one step after the other, from any state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..errors import CoreError, LimitError, PipelineError, PositionError, StateError
from ..iterate.base import Block, Column, Indexed, Ragged, Schema, Sequential, State
from ..iterate.batching import BucketBatch
from ..iterate.collate import collate
from ..iterate.columns import block_length, concatenate, empty_block, slice_block
from ..iterate.reuse import ReusePool
from .batching import Batching

MOST_SKIPPED = 1 << 24
"""Items that skipping may read where a stage is sequential."""
_KEPT_BATCHES = 4
"""Batches a sequential course keeps: ranks ask for the same one, and the next is looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One batch, or one rank's rows of it."""

    block: Block
    """This rank's rows."""
    state: State
    """Behind the batch; the same for all ranks."""
    sequence: int
    """Number of the global batch, from 0."""
    epoch: int
    count: int
    """Rows of the global batch that are new in the epoch: neither padding nor wrapped."""
    rows: tuple[int, int]
    """First row of this rank in the global batch, and the one after its last."""
    ends_epoch: bool
    data_finished: bool
    """Whether nothing follows because the data ends, even if a limit ends there too."""


Rows = Callable[[int], tuple[int, int]]
"""The rows of a rank, given how many there are in the global batch."""


class Course(ABC):
    """Where the batches of a pipeline come from."""

    def __init__(self, batching: Batching, schema: Schema) -> None:
        self.batching = batching
        self.schema = schema
        padding = batching.padding
        self._whole = padding is not None and padding.length is None

    @property
    @abstractmethod
    def first(self) -> object:
        """The stages of the first epoch."""

    @property
    @abstractmethod
    def initial(self) -> State:
        """The state before the first batch; the number of the batch comes first."""

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int | None:
        """In a natural epoch; None if that is not known or there are none."""

    @abstractmethod
    def check(self, state: State) -> None:
        """Refuse what cannot be a state, though it has the integers of one.

        Raises:
            StateError: it cannot be.
        """

    @abstractmethod
    def step(self, state: State, rows: Rows) -> Step | None:
        """The batch after a state, None at the end of the data."""

    @abstractmethod
    def skip(self, state: State, count: int) -> State:
        """The state so many batches further.

        Raises:
            PositionError: there are not so many.
        """

    def _rank_block(self, read: Callable[[int, int], Block], low: int, high: int, n: int) -> Block:
        """Rows low to high - 1 of n, padded as all ranks are."""
        padding = self.batching.padding
        if padding is None:
            return read(low, high)
        if not self._whole:
            return collate(read(low, high), padding)
        # The longest item of the batch may be another rank's.
        return slice_block(collate(read(0, n), padding), low, high)


class IndexedCourse(Course):
    """Batches of items that can be asked for by position: the state is the batch number.

    Args:
        chain: the items of an epoch, by its number.
        batching: how they become batches.
    """

    def __init__(self, chain: Callable[[int], Indexed], batching: Batching) -> None:
        first = chain(0)
        super().__init__(batching, first.schema)
        self._chain = chain
        self._length = first.length
        size = batching.size
        self._per_epoch: int | None = None
        if self._length is not None:
            dropped = batching.last == "drop"
            self._per_epoch = self._length // size if dropped else -(-self._length // size)

    @property
    def initial(self) -> State:
        """The first batch."""
        return (0,)

    @property
    def first(self) -> object:
        """The stages of the first epoch."""
        return self._chain(0)

    @property
    def batches_per_epoch(self) -> int | None:
        """Whole ones and the last as it is wanted; None for items without end."""
        return self._per_epoch

    @property
    def data_batches(self) -> int | None:
        """In all, without a limit."""
        if self._per_epoch is None or self.batching.epochs is None:
            return None
        return self._per_epoch * self.batching.epochs

    @property
    def end(self) -> int | None:
        """Number of batches in all; None for no end."""
        ends = [each for each in (self.data_batches, self.batching.limit) if each is not None]
        return min(ends) if ends else None

    def check(self, state: State) -> None:
        """A state is at most the number of the batches."""
        end = self.end
        if end is not None and state[0] > end:
            raise StateError(f"the state is batch {state[0]} of a pipeline of {end}")

    def step(self, state: State, rows: Rows) -> Step | None:
        """The batch of that number."""
        sequence = state[0]
        if sequence == self.end:
            return None
        epoch, batch = (
            (0, sequence) if self._per_epoch is None else divmod(sequence, self._per_epoch)
        )
        size, length = self.batching.size, self._length
        start = batch * size
        own = size if length is None else min(size, length - start)
        n = own if self.batching.last == "keep" else size
        low, high = rows(n)
        chain = self._chain(epoch)

        def read(low: int, high: int) -> Block:
            return self._read(chain, start, own, low, high)

        return Step(
            block=self._rank_block(read, low, high, n),
            state=(sequence + 1,),
            sequence=sequence,
            epoch=epoch,
            count=own,
            rows=(low, high),
            ends_epoch=self._per_epoch is not None and batch + 1 == self._per_epoch,
            data_finished=sequence + 1 == self.data_batches,
        )

    def _read(self, chain: Indexed, start: int, own: int, low: int, high: int) -> Block:
        if self.batching.last != "pad" or high <= own:
            positions = np.arange(start + low, start + high, dtype=np.int64)
            if high > own and self._length is not None:
                positions %= self._length
            return chain.at(positions)
        block = chain.at(np.arange(start + min(low, own), start + own, dtype=np.int64))
        return filled(block, high - low)

    def skip(self, state: State, count: int) -> State:
        """By addition."""
        end = self.end
        if end is not None and state[0] + count > end:
            raise PositionError(
                f"batch {state[0] + count} is beyond the {end} of the pipeline",
            )
        return (state[0] + count,)


Batch = tuple[Block, State]


class SequentialCourse(Course):
    """Batches of items that come one after the other.

    A state is the batch number, the epoch, and the state of the stage.

    Args:
        chain: the items of an epoch, by its number.
        batching: how they become batches, unless the stage makes batches itself.
    """

    def __init__(
        self, chain: Callable[[int], Sequential | BucketBatch], batching: Batching
    ) -> None:
        first = chain(0)
        super().__init__(batching, first.schema)
        self._chain = chain
        self._first = first.initial
        self._own_batches = isinstance(first, BucketBatch)
        self._kept: ReusePool[tuple[tuple[int, State], Batch]] = ReusePool(_KEPT_BATCHES)

    @property
    def initial(self) -> State:
        """The first batch of the first epoch."""
        return (0, 0, *self._first)

    @property
    def first(self) -> object:
        """The stages of the first epoch."""
        return self._chain(0)

    @property
    def batches_per_epoch(self) -> int | None:
        """Not known before they are read."""
        return None

    def check(self, state: State) -> None:
        """A state has a batch and an epoch that can be."""
        epochs, limit = self.batching.epochs, self.batching.limit
        if epochs is not None and state[1] >= epochs and state[1:] != (epochs, *self._first):
            raise StateError(f"the state is of epoch {state[1]} of {epochs}")
        if state[1] > state[0]:
            raise StateError(f"the state is of epoch {state[1]} after {state[0]} batches")
        if limit is not None and state[0] > limit:
            raise StateError(f"the state is batch {state[0]} of a pipeline of {limit}")

    def step(self, state: State, rows: Rows) -> Step | None:
        """The batch after that state."""
        made = self._advance(state)
        if made is None:
            return None
        block, after, ends = made
        sequence, epoch = state[:2]
        own = block_length(block)
        size = self.batching.size
        n = own if self.batching.last == "keep" or self._own_batches else size
        low, high = rows(n)
        whole = self._completed(block, epoch, n) if n > own else block
        return Step(
            block=self._rank_block(lambda a, b: slice_block(whole, a, b), low, high, n),
            state=after,
            sequence=sequence,
            epoch=epoch,
            count=own,
            rows=(low, high),
            ends_epoch=ends,
            data_finished=ends and epoch + 1 == self.batching.epochs,
        )

    def skip(self, state: State, count: int) -> State:
        """By reading what lies between, if it is not too much.

        Raises:
            LimitError: it is.
        """
        if count > max(MOST_SKIPPED // self.batching.size, 1):
            raise LimitError(
                f"{count} batches would have to be read to skip them",
                hint="This pipeline is read in order: go on from a later state.",
            )
        for done in range(count):
            made = self._advance(state)
            if made is None:
                raise PositionError(f"the pipeline ends after {done} of {count} batches")
            state = made[1]
        return state

    def _advance(self, state: State) -> tuple[Block, State, bool] | None:
        """The batch of all ranks, the state after it, and whether it ends its epoch."""
        sequence, epoch = state[:2]
        if epoch == self.batching.epochs or sequence == self.batching.limit:
            return None
        batch = self._batch(epoch, state[2:])
        if batch is None:
            if self.batching.epochs != 1:
                raise PipelineError(
                    f"epoch {epoch} has no batch", hint="Without batches no epoch ends."
                )
            return None
        block, after = batch
        if self._ends(epoch, block, after):
            return block, (sequence + 1, epoch + 1, *self._first), True
        return block, (sequence + 1, epoch, *after), False

    def _ends(self, epoch: int, block: Block, after: State) -> bool:
        if not self._own_batches and block_length(block) < self.batching.size:
            return True
        try:
            return self._batch(epoch, after) is None
        except CoreError:
            return False  # it belongs to the next step, which meets it again

    def _batch(self, epoch: int, state: State) -> Batch | None:
        """The items of one batch; None if there are none, or too few of them."""
        key = (epoch, state)
        kept = self._kept.take(lambda entry: entry[0] == key)
        if kept is None:
            kept = (key, self._read(epoch, state, self.batching.size))
        self._kept.give(kept)
        got = block_length(kept[1][0])
        short = self.batching.last == "drop" and got < self.batching.size
        return None if got == 0 or (short and not self._own_batches) else kept[1]

    def _read(self, epoch: int, state: State, count: int) -> Batch:
        stage = self._chain(epoch)
        if isinstance(stage, BucketBatch):
            return stage.next_batch(state) or (empty_block(self.schema), state)
        return stage.take(state, count)

    def _completed(self, block: Block, epoch: int, n: int) -> Block:
        """The block with the rows that follow it: nothing, or the first ones of the epoch again."""
        if self.batching.last == "pad":
            return filled(block, n)
        blocks, missing = [block], n - block_length(block)
        state = self._first
        while missing:
            more, state = self._read(epoch, state, missing)
            if block_length(more) == 0:
                state = self._first
                continue
            blocks.append(more)
            missing -= block_length(more)
        return concatenate(blocks, self.schema)


def filled(block: Block, n: int) -> Block:
    """A block of n items: its own come first, then zeros and ragged items without values."""
    return {name: _filled(column, n) for name, column in block.items()}


def _filled(column: Column, n: int) -> Column:
    missing = n - len(column)
    if isinstance(column, Ragged):
        end = np.full(missing, column.offsets[-1], np.int64)
        return Ragged(column.values, np.concatenate([column.offsets, end]))
    zeros = np.zeros((missing, *column.shape[1:]), column.dtype)
    return np.concatenate([column, zeros])


def numbered(step: Step, epoch_size: int | None) -> Step:
    """The step with its epoch where epochs are so many batches."""
    if epoch_size is None:
        return step
    return replace(
        step,
        epoch=step.sequence // epoch_size,
        ends_epoch=(step.sequence + 1) % epoch_size == 0 or step.data_finished,
    )
