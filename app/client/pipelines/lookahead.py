"""Where a reader of batches is, and what it asks for next. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..transport.retry import Backoff
from .batch import Batch, EpochEnd
from .requests import BatchRequests, Place, Share
from .stream import OneBatch

_CONNECTIONS = 4
"""As many as wait for the next request."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which batches are wanted, and how they are to be fetched.

    Attributes:
        share: which rows of each.
        most: batches; None for all.
        every: only one of so many.
        by_epoch: pause where an epoch ends.
        ahead: batches to ask for before they are wanted; 0 to stream them.
        connections: to ask with.

    Raises:
        ValueError: a number cannot be.
    """

    share: Share = field(default_factory=Share)
    most: int | None = None
    every: int = 1
    by_epoch: bool = False
    ahead: int = 0
    connections: int = 1

    @classmethod
    def of(  # noqa: PLR0913 - each is a choice of the caller
        cls,
        *,
        rank: int,
        world: int,
        max_batches: int | None,
        every: int,
        epoch: bool,
        prefetch: int,
        parallel: int | None,
    ) -> Wanted:
        """What the arguments of ``Pipeline.batches`` say.

        Raises:
            ValueError: one of them cannot be.
        """
        numbers = {"max_batches": max_batches, "prefetch": prefetch, "parallel": parallel}
        for name, number in numbers.items():
            if number is not None and number < 0:
                raise ValueError(f"{name} cannot be {number}")
        if every < 1:
            raise ValueError(f"every cannot be {every}")
        ahead = max(prefetch, parallel or 0)
        connections = max(parallel or min(ahead, _CONNECTIONS), 1)
        return cls(Share(rank, world), max_batches, every, epoch, ahead, connections)


class Cursor:
    """Where a reader of batches is: behind the last one that was handed out.

    Args:
        place: where it begins.
        wanted: which batches.
    """

    def __init__(self, place: Place, wanted: Wanted) -> None:
        self.place = place
        self.wanted = wanted
        self.left = wanted.most
        self.paused = False
        self.held: Batch | None = None
        self._epoch: int | None = None

    @property
    def streams(self) -> bool:
        """Whether batches are streamed, and not asked for one by one."""
        return not self.wanted.ahead and self.wanted.every == 1 and not self.place.skip

    def resume(self) -> None:
        """Go on with the next epoch, if the last one has ended."""
        if self.paused:
            self.paused, self._epoch = False, None

    def drop_held(self) -> bool:
        """Forget the batch that is held back, if there is one: it comes again."""
        held, self.held = self.held, None
        return held is not None

    def take(self, item: Batch | EpochEnd) -> Batch | None:
        """Take what has come next; the batch to hand out, if any."""
        if isinstance(item, EpochEnd):
            # Behind a cut the end of an epoch that is known already may come again.
            self.paused = self.wanted.by_epoch and self._epoch is not None
            return None
        if self.wanted.by_epoch and self._epoch not in {None, item.epoch}:
            self.held, self.paused = item, True
            return None
        self.held = None
        self._epoch = item.epoch
        self.place = Place(item.token, self.wanted.every - 1)
        if self.left is not None:
            self.left -= 1
        return item


@dataclass(frozen=True, slots=True)
class Question:
    """One batch to ask for.

    Attributes:
        index: its place among those that are asked for.
        token: behind which.
        offset: batches to pass over from there.
        following: its number among all batches, if known.
    """

    index: int
    token: str | None
    offset: int
    following: int | None


class Lookahead:
    """Which batch to ask for next, while others are on their way.

    Each is asked for by the newest token that is known, so that however far a reader
    goes, a service that cannot jump has little to pass over.

    Args:
        requests: builds what to send.
        place: where to begin.
        every: only one of so many.
        most: batches wanted; None for all.
    """

    def __init__(self, requests: BatchRequests, place: Place, every: int, most: int | None) -> None:
        self._requests = requests
        self._place = place
        self._every = every
        self._most = most
        self._asked = 0
        self._known: tuple[int, Batch] | None = None
        self._last = False
        self._batches = requests.batches(place.token)

    @property
    def finished(self) -> bool:
        """Whether it is known that no batch is left to ask for."""
        if self._last:
            return True
        following, batches = self._following(), self._batches
        return following is not None and batches is not None and following >= batches

    def _following(self) -> int | None:
        if self._known is not None:
            index, batch = self._known
            return batch.sequence + (self._asked - index) * self._every
        if self._place.token is None:
            return self._place.skip + self._asked * self._every
        return None

    def next(self) -> Question | None:
        """What to ask for; None if nothing is wanted or left."""
        if self._asked == self._most or self.finished:
            return None
        index, following = self._asked, self._following()
        token, offset = self._place.token, self._place.skip + index * self._every
        if self._known is not None:
            known, batch = self._known
            token, offset = batch.token, (index - known) * self._every - 1
        self._asked += 1
        return Question(index, token, offset, following)

    def answered(self, index: int, batch: Batch, *, last: bool) -> None:
        """A batch that was asked for has come; perhaps the last there is."""
        self._last = self._last or last
        if self._known is None or self._known[0] < index:
            # Its values would be kept without need.
            self._known = (index, batch.bare())

    def one(self, question: Question, backoff: Backoff) -> OneBatch:
        """What asks for it."""
        return OneBatch(
            self._requests,
            question.token,
            question.offset,
            question.following,
            self._batches,
            backoff,
        )
