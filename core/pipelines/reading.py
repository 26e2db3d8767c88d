"""Read batches in order, several small ones at a time.

A trip through the stages costs the same for one row as for a thousand. Batches of a few kilobytes
are therefore read in runs, each of which is cut into the batches that a step would have made::

    state   (7,)          (8,)                                (12,)
    step    ─ batch 7 ─▶  ─ run: rows of batches 8 to 11 ─▶   cut, cut, cut, cut

What batches contain does not depend on it. The first batch after any state is read alone, and runs
grow only while the rows of one are there in a moment: nobody waits for batches that come later. A
run that fails is read again batch by batch, so that those before the failure are returned.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CoreError
from ..iterate.base import State
from ..iterate.limits import Clock
from .indexed_stepping import IndexedStepper
from .stepping import Rows, Step, Stepper, with_fixed_epochs

RUN_BYTES = 1 << 20
"""Bytes of the blocks that all stages hold for a run."""
_MOST = 64
"""Batches of a run."""
_SECONDS = 0.01
"""Time that a run may take."""


class BatchReader:
    """Reads the batches that follow each other; for one thread at a time.

    Args:
        stepper: makes them.
        rows: chooses those of a rank.
        most: batches of a run at most.
        epoch_size: batches of an epoch, if fixed.
        every: distance from each batch to the next one that is asked for.
        clock: measures how long batches take; without one, each is read alone.
    """

    def __init__(  # noqa: PLR0913 - each is independent
        self,
        stepper: Stepper,
        rows: Rows,
        most: int,
        epoch_size: int | None,
        *,
        every: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self._stepper = stepper
        self._rows = rows
        self._most = 1 if clock is None else min(most, _MOST)
        self._clock = clock or float
        self._epoch_size = epoch_size
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
        return with_fixed_epochs(step, self._epoch_size)

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
