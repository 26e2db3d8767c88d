"""Batches of items with random access, and how batches are read in order: small ones in runs.

A trip through the stages costs the same for one row as for a thousand. Batches of a few kilobytes
are therefore read in runs, each of which is cut into the batches that a step would have made::

    state   (7,)          (8,)                                (12,)
    step    ─ batch 7 ─▶  ─ run: rows of batches 8 to 11 ─▶   cut, cut, cut, cut

What batches contain does not depend on it. The first batch after any state is read alone, and runs
grow only while the rows of one are there in a moment: nobody waits for batches that come later. A
run that fails is read again batch by batch, so that those before the failure are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..errors import CoreError, PositionError, StateError
from ..iterate.base import MAX_ITEMS, Block, Indexed, State
from ..iterate.columns import slice_block
from ..iterate.limits import Clock
from .stage import Batching
from .stepping import Rows, Step, Stepper, pad_rows

RUN_BYTES = 4 << 20
"""Bytes of the blocks that all stages hold for a run: a third of it and less are batches."""
_MOST = 64
"""Batches of a run."""
_SECONDS = 0.01
"""Time that a run may take."""


class IndexedStepper(Stepper):
    """Batches of items with random access; the state is the batch number.

    Args:
        chain: returns the items of an epoch, given its number.
        batching: how items become batches.
    """

    initial = (0,)
    _chain: Callable[[int], Indexed]

    def __init__(self, chain: Callable[[int], Indexed], batching: Batching) -> None:
        first = chain(0)
        super().__init__(batching, first.schema)
        self._chain = chain
        self._length = first.length
        size = batching.size
        self._data_batches: int | None = None
        if self._length is not None:
            drop = batching.last == "drop"
            self.batches_per_epoch = self._length // size if drop else -(-self._length // size)
            if batching.epochs is not None:
                self._data_batches = self.batches_per_epoch * batching.epochs
        ends = [end for end in (self._data_batches, batching.limit) if end is not None]
        self.end = min(ends, default=None)
        """Number of batches, the limit included; None if endless."""

    def check(self, state: State) -> None:
        """Check that the batch number is at most the number of batches."""
        end = self.end
        if end is not None and state[0] > end:
            raise StateError(f"the state is at batch {state[0]}, but the pipeline has {end}")

    def step(self, state: State, rows: Rows) -> Step | None:
        """Read the rows of the batch that the state numbers."""
        sequence = state[0]
        if sequence == self.end:
            return None
        epoch, batch = self._place(sequence)
        size, length = self.batching.size, self._length
        start = batch * size
        count = size if length is None else min(size, length - start)
        total = count if self.batching.last == "keep" else size
        low, high = rows(total)
        chain = self._chain(epoch)

        def read(low: int, high: int) -> Block:
            return self._read(chain, start, count, low, high)

        block = self._rank_block(read, low, high, total)
        return self._numbered(block, sequence, epoch, count, (low, high))

    def run(self, sequence: int, count: int, rows: Rows, every: int = 1) -> list[Step]:
        """Up to ``count`` full batches of one epoch, read at once; none if they must be alone.

        Args:
            sequence: number of the first one.
            count: how many to read.
            rows: chooses the rows to return.
            every: distance from one to the next.
        """
        if self._whole:
            return []
        size = self.batching.size
        epoch, batch = self._place(sequence)
        if self._length is not None:
            count = min(count, -(-(self._length // size - batch) // every))
        if self.end is not None:
            count = min(count, -(-(self.end - sequence) // every))
        if count < 1:
            return []
        low, high = rows(size)
        starts = (batch + every * np.arange(count, dtype=np.int64)[:, None]) * size
        own = high - low
        block = self._chain(epoch).at((starts + np.arange(low, high)).reshape(-1))
        blocks = (slice_block(block, k * own, (k + 1) * own) for k in range(count))
        return [
            self._numbered(
                self.batching.collate(each), sequence + every * k, epoch, size, (low, high)
            )
            for k, each in enumerate(blocks)
        ]

    def _place(self, sequence: int) -> tuple[int, int]:
        """Epoch of a batch, and its number in the epoch."""
        per_epoch = self.batches_per_epoch
        return (0, sequence) if per_epoch is None else divmod(sequence, per_epoch)

    def _numbered(
        self, block: Block, sequence: int, epoch: int, count: int, rows: tuple[int, int]
    ) -> Step:
        per_epoch = self.batches_per_epoch
        return Step(
            block=block,
            state=(sequence + 1,),
            sequence=sequence,
            epoch=epoch,
            count=count,
            rows=rows,
            ends_epoch=per_epoch is not None and (sequence + 1) % per_epoch == 0,
            data_finished=sequence + 1 == self._data_batches,
        )

    def _read(self, chain: Indexed, start: int, count: int, low: int, high: int) -> Block:
        if self.batching.last != "pad" or high <= count:
            positions = np.arange(start + low, start + high, dtype=np.int64)
            if high > count and self._length is not None:
                positions %= self._length
            return chain.at(positions)
        block = chain.at(np.arange(start + min(low, count), start + count, dtype=np.int64))
        return pad_rows(block, high - low)

    def skip(self, state: State, count: int) -> State:
        """Add to the batch number."""
        end = self.end
        if end is None:  # as far as positions count
            per_epoch, length = self.batches_per_epoch or 1, self._length or self.batching.size
            end = MAX_ITEMS // length * per_epoch - 1
        if state[0] + count > end:
            raise PositionError(f"batch {state[0] + count} of a pipeline of {end} batches")
        return (state[0] + count,)


class BatchReader:
    """Reads the batches that follow each other; for one thread at a time.

    Args:
        stepper: makes them.
        rows: chooses those of a rank.
        most: batches of a run at most.
        every: distance from each batch to the next one that is asked for.
        clock: measures how long batches take; without one, each is read alone.
    """

    def __init__(
        self, stepper: Stepper, rows: Rows, most: int, every: int, clock: Clock | None
    ) -> None:
        self._stepper = stepper
        self._rows = rows
        self._most = 1 if clock is None else min(most, _MOST)
        self._clock = clock or float
        self._every = every
        self._size = 1
        self._next: int | None = None
        """Number of the batch that is due after the last one."""
        self._run: Sequence[Step] = ()
        self._at = 0

    def step(self, state: State) -> Step | None:
        """The batch after a state, which has been checked; None at the end.

        Raises:
            CoreError: it cannot be read.
        """
        if state[0] != self._next:
            self._run, self._at, self._size = (), 0, 1
        if self._at == len(self._run):
            self._run, self._at = self._read(state), 0
            if not self._run:
                return None
        step = self._run[self._at]
        self._at += 1
        self._next = step.sequence + self._every
        size = self._stepper.batching.epoch_size
        if size is None:
            return step
        ends = (step.sequence + 1) % size == 0 or step.data_finished
        return replace(step, epoch=step.sequence // size, ends_epoch=ends)

    def _read(self, state: State) -> Sequence[Step]:
        begin = self._clock()
        steps: Sequence[Step] = ()
        if self._size > 1 and isinstance(self._stepper, IndexedStepper):
            try:
                steps = self._stepper.run(state[0], self._size, self._rows, self._every)
            except CoreError:
                self._size = 1
        if not steps:
            step = self._stepper.step(state, self._rows)
            steps = () if step is None else (step,)
        if steps:
            each = (self._clock() - begin) / len(steps)
            self._size = max(min(2 * self._size, self._most, int(_SECONDS / max(each, 1e-9))), 1)
        return steps
