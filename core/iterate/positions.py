"""Stages that only choose which positions of the inner stage come, and in which order."""

from __future__ import annotations

from abc import abstractmethod

from ..arrays import Indices
from ..errors import PipelineError
from ..rng import MAX_LENGTH
from .base import Block, Indexed, Schema
from .blocks import BlockPermutation
from .columns import check_positions
from .options import bounded, one_of, seed_key, whole
from .sources import MAX_ITEMS

_SHARD_MODES = ("contiguous", "stride")
_MAX_SHARDS = 2**31


class Reordering(Indexed):
    """A stage whose item k is item ``where(k)`` of the inner stage.

    Args:
        inner: what it takes items from.
        length: number of items; None for no end.
    """

    def __init__(self, inner: Indexed, length: int | None) -> None:
        self.inner = inner
        self._length = length

    @property
    def schema(self) -> Schema:
        """That of the inner stage."""
        return self.inner.schema

    @property
    def length(self) -> int | None:
        """Number of items; None for no end."""
        return self._length

    @abstractmethod
    def where(self, positions: Indices) -> Indices:
        """Positions in the inner stage of these positions, which are known to be inside."""

    def at(self, positions: Indices) -> Block:
        """The items at these positions."""
        return self.inner.at(self.where(check_positions(positions, self._length)))


class Range(Reordering):
    """Items start to stop - 1 of the inner stage.

    Args:
        inner: what it takes items from.
        start: first position.
        stop: position after the last; None for all the rest.

    Raises:
        PipelineError: a range that is not within the inner stage.
    """

    def __init__(self, inner: Indexed, *, start: int = 0, stop: int | None = None) -> None:
        end = MAX_ITEMS if inner.length is None else inner.length
        self._start = whole("start", start, 0, end)
        if stop is None:
            length = None if inner.length is None else inner.length - start
        else:
            length = whole("stop", stop, start, end) - start
        super().__init__(inner, length)

    def where(self, positions: Indices) -> Indices:
        """Shifted by the start."""
        return positions + self._start


class Shard(Reordering):
    """One of ``of`` parts of the inner stage.

    ``contiguous`` parts lie one after another, and sizes differ by at most 1 with the
    larger ones first; ``stride`` gives items index, index + of, index + 2 of, ...

    Args:
        inner: what it takes items from.
        of: number of parts.
        index: which part.
        mode: one of the two.

    Raises:
        PipelineError: an index that is no part, or contiguous parts of what has no end.
    """

    def __init__(self, inner: Indexed, *, of: int, index: int, mode: str = "contiguous") -> None:
        whole("of", of, 1, _MAX_SHARDS)
        whole("index", index, 0, of - 1)
        one_of("mode", mode, _SHARD_MODES)
        n = inner.length
        length: int | None
        if mode == "stride":
            self._start, self._step = index, of
            length = None if n is None else max(0, -(-(n - index) // of))
        elif n is None:
            raise PipelineError(
                "a contiguous part of items without end",
                field="mode",
                hint="Use mode stride, or put the shard before what repeats.",
            )
        else:
            share, more = divmod(n, of)
            self._start, self._step = index * share + min(index, more), 1
            length = share + (index < more)
        super().__init__(inner, length)

    def where(self, positions: Indices) -> Indices:
        """Start and step."""
        return positions * self._step + self._start


def _pass_length(inner: Indexed, epochs: object) -> tuple[int, int | None]:
    """Items of one pass over the inner stage, and of all of them."""
    n = inner.length
    if n is None:
        raise PipelineError(
            "passes over items without end",
            field="epochs",
            hint="Items without end have no epochs: leave this stage out.",
        )
    if epochs is None:
        if n == 0:
            raise PipelineError("epochs without end of no items", field="epochs")
        return n, None
    count = whole("epochs", epochs, 0, MAX_ITEMS)
    return n, bounded("epochs", n * count)


class Repeat(Reordering):
    """The inner stage several times, one pass after the other.

    Args:
        inner: what it takes items from; it must end.
        epochs: number of passes; None for no end.

    Raises:
        PipelineError: an inner stage without end, or passes without end over no items.
    """

    def __init__(self, inner: Indexed, *, epochs: int | None = None) -> None:
        self._n, length = _pass_length(inner, epochs)
        super().__init__(inner, length)

    @property
    def epoch_length(self) -> int:
        """Items of one pass."""
        return self._n

    def where(self, positions: Indices) -> Indices:
        """The position within the pass."""
        return positions % self._n


class Permute(Reordering):
    """Every item of the inner stage once per epoch, in an order of its own for each epoch.

    Epoch e has the order ``Permutation(n, derive(seed, "permute", *path).nth(e))``.

    Args:
        inner: what it takes items from; it must end, with at most 2**48 items.
        seed: from 0 to 2**63 - 1.
        epochs: number of passes; None for no end.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: an inner stage without end or too long, epochs without end over no
            items, or a seed that is none.
    """

    def __init__(
        self,
        inner: Indexed,
        *,
        seed: int = 0,
        epochs: int | None = 1,
        path: tuple[str | int, ...] = (),
    ) -> None:
        key = seed_key(seed, "permute", *path)
        self._n, length = _pass_length(inner, epochs)
        if self._n > MAX_LENGTH:
            raise PipelineError(
                f"a permutation of {self._n} items", field="epochs", hint="At most 2**48."
            )
        self._order = BlockPermutation(key, max(self._n, 1), None)
        super().__init__(inner, length)

    @property
    def epoch_length(self) -> int:
        """Items of one epoch."""
        return self._n

    def where(self, positions: Indices) -> Indices:
        """The position within the epoch, permuted."""
        return self._order.at(positions, absolute=False)
