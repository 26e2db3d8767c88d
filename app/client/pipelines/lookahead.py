"""Which batch to ask for next, where batches are asked for one by one."""

from __future__ import annotations

from dataclasses import dataclass

from .batch import Batch
from .selection import Position


@dataclass(frozen=True, slots=True)
class Question:
    """One batch to ask for.

    Attributes:
        index: rank among the questions, from 0.
        token: after which it is.
        offset: batches to pass over from there.
        number: its number among all batches, if known.
    """

    index: int
    token: str | None
    offset: int
    number: int | None


class Lookahead:
    """Which batch to ask for next, while others are on their way.

    Each is asked for by the newest token that is known, so that however far a reader has
    come, a service that cannot jump has few batches to pass over.

    Args:
        position: where to begin.
        every: only one of so many.
        limit: number of batches; None for all.
        batches: number of all batches of the pipeline; None if unknown.
    """

    def __init__(
        self, position: Position, every: int, limit: int | None, batches: int | None
    ) -> None:
        self._position = position
        self._every = every
        self._limit = limit
        self._asked = 0
        self._known: tuple[int, Batch] | None = None
        self._last = False
        self._batches = batches

    @property
    def finished(self) -> bool:
        """Whether it is known that no batch is left to ask for."""
        if self._last:
            return True
        number, batches = self._number(), self._batches
        return number is not None and batches is not None and number >= batches

    def _number(self) -> int | None:
        """Number of the batch to ask for next, if known."""
        if self._known is not None:
            index, batch = self._known
            return batch.sequence + (self._asked - index) * self._every
        if self._position.token is None:
            return self._position.skip + self._asked * self._every
        return None

    def next(self) -> Question | None:
        """What to ask for next; None at the limit or the end."""
        if self._asked == self._limit or self.finished:
            return None
        index, number = self._asked, self._number()
        token, offset = self._position.token, self._position.skip + index * self._every
        if self._known is not None:
            known, batch = self._known
            token, offset = batch.token, (index - known) * self._every - 1
        self._asked += 1
        return Question(index, token, offset, number)

    def answered(self, question: Question, batch: Batch, *, last: bool) -> None:
        """Take note of an answer, in any order; perhaps the last batch there is."""
        self._last = self._last or last
        if self._known is None or self._known[0] < question.index:
            # Without its values, which nobody needs here.
            self._known = (question.index, batch.bare())
