"""Stages that choose items of an inner stage, reorder them or group them in windows, by position.

A range, a shard, a repetition, a permutation and a block shuffle differ only in one function:
the one that maps a position to a position of the inner stage. So a chain of them composes
functions of integers, evaluated for a whole array at once, and the data is read only at the
end::

    Shard(of=2, index=1, "stride")   k -> 2 k + 1
      Permute(seed=7)                k -> order of epoch k // n, at k % n
        Range(start=100)             k -> k + 100
          source.at(...)             reads the items

Since no stage here has a state, item k of epoch e can be read without those before it, and
resuming means asking for the next position.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np

from ..arrays import Indices
from ..budget import current
from ..rng import MAX_LENGTH
from .base import MAX_ITEMS, Block, Column, Indexed, Ragged
from .blocks import BlockPermutation
from .columns import block_bytes, check_positions, offsets_of, take_block, values_of
from .options import bounded, one_of, refuse, seed_key, whole

_FEW_BYTES = 1 << 20
"""Bytes of positions that no budget needs to know of."""
_SHARD_MODES = ("contiguous", "stride")
_MAX_SHARDS = 2**31


class Reordering(Indexed):
    """A stage whose item k is item ``where(k)`` of the inner stage.

    Args:
        inner: stage the items come from.
        length: number of items; None if endless.
    """

    def __init__(self, inner: Indexed, length: int | None) -> None:
        self.inner = inner
        self.length = length
        self.schema = self.inner.schema

    @abstractmethod
    def where(self, positions: Indices) -> Indices:
        """Map positions, all in range, to positions of the inner stage."""

    def at(self, positions: Indices) -> Block:
        """Read the items of the inner stage that the positions map to.

        Raises:
            WorkStoppedError: the positions alone exceed the budget.
        """
        inner = self.where(check_positions(positions, self.length))
        if inner.nbytes > _FEW_BYTES:
            current().hold("positions", inner.nbytes)
        return self.inner.at(inner)


class Range(Reordering):
    """Items start to stop - 1 of the inner stage.

    Args:
        inner: stage the items come from.
        start: first position.
        stop: position after the last; None for the end of the inner stage.

    Raises:
        PipelineError: the range is not within the inner stage.
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
        """Add the start."""
        return positions + self._start


class Shard(Reordering):
    """One of ``of`` parts of the inner stage.

    Parts that are ``contiguous`` follow one another; their sizes differ by at most 1, and
    the larger ones come first. With ``stride`` a part has the items index, index + of,
    index + 2 of, ...

    Args:
        inner: stage the items come from.
        of: number of parts.
        index: of this part, from 0.
        mode: ``contiguous`` or ``stride``.

    Raises:
        PipelineError: there is no such part, or the inner stage is endless and the parts
            are contiguous.
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
            hint = "Use mode stride, or put the shard before the stage that repeats."
            raise refuse("a contiguous part of an endless stage", hint, "mode")
        else:
            share, more = divmod(n, of)
            self._start, self._step = index * share + min(index, more), 1
            length = share + (index < more)
        super().__init__(inner, length)

    def where(self, positions: Indices) -> Indices:
        """Multiply by the step, add the start."""
        return positions * self._step + self._start


def _pass_length(inner: Indexed, epochs: object) -> tuple[int, int | None]:
    """Items of one pass over the inner stage, and of all passes."""
    n = inner.length
    if n is None:
        hint = "An endless stage has no epochs. Remove this stage."
        raise refuse("epochs of an endless stage", hint, "epochs")
    if epochs is None:
        if n == 0:
            raise refuse("endless epochs of no items", option="epochs")
        return n, None
    count = whole("epochs", epochs, 0, MAX_ITEMS)
    return n, bounded("epochs", n * count)


class Repeat(Reordering):
    """Repeats the inner stage.

    Args:
        inner: stage the items come from; it must end.
        epochs: number of passes; None for no end.

    Raises:
        PipelineError: the inner stage is endless, or empty with endless passes.
    """

    def __init__(self, inner: Indexed, *, epochs: int | None = None) -> None:
        self._n, length = _pass_length(inner, epochs)
        super().__init__(inner, length)

    def where(self, positions: Indices) -> Indices:
        """Reduce positions to positions within a pass."""
        return positions % self._n


class Permute(Reordering):
    """Every item of the inner stage once per epoch, each epoch in another order.

    Epoch e has the order ``Permutation(n, derive(seed, "permute", *path).nth(e))``.

    Args:
        inner: stage the items come from; it must end, with at most 2**48 items.
        seed: from 0 to 2**63 - 1.
        epochs: number of passes; None for no end.
        path: further steps of the key, for stages that share a seed.

    Raises:
        PipelineError: the inner stage is endless, too long, or empty with endless epochs,
            or the seed is invalid.
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
            raise refuse(f"a permutation of {self._n} items", "At most 2**48.", "epochs")
        self._order = BlockPermutation(key, max(self._n, 1), None)
        super().__init__(inner, length)

    def where(self, positions: Indices) -> Indices:
        """Permute positions within their epoch."""
        return self._order.at(positions, absolute=False)


MAX_WIDTH = 2**20
_INDEX_BYTES = 8


class Window(Indexed):
    """Windows of ``width`` items, ``stride`` items apart.

    Every field gets a leading axis of length ``width``. If partial windows are kept, the
    last ones are shorter, so the fields are ragged instead.

    Args:
        inner: stage the items come from; none of its fields is ragged.
        width: items of a window.
        stride: items from the beginning of one window to the next.
        partial: ``drop`` or ``keep`` windows that reach past the end.

    Raises:
        PipelineError: an option is invalid, a whole window is wider than the inner stage, or a
            field is ragged.
    """

    def __init__(
        self, inner: Indexed, *, width: int, stride: int = 1, partial: str = "drop"
    ) -> None:
        self._width = whole("width", width, 1, MAX_WIDTH)
        self._stride = whole("stride", stride, 1, MAX_ITEMS)
        self._keep = one_of("partial", partial, ("drop", "keep")) == "keep"
        n = inner.length
        if n is not None and width > n and not self._keep:
            hint = "Make it at most as wide as the stage it moves over, or keep partial windows."
            raise refuse(f"a window of {width} items over {n} items", hint, "width")
        if ragged := [field.name for field in inner.schema if field.ragged]:
            hint = "Choose other fields before it: windows are of items of one length."
            raise refuse(f"{', '.join(ragged)} is ragged", hint, "width")
        self.inner = inner
        fields = inner.schema
        if self._keep:
            # Those at the end may be cut short.
            self.schema = tuple(replace(field, ragged=True) for field in fields)
            self.length = None if n is None else -(-n // stride)
        else:
            self.schema = tuple(replace(field, shape=(width, *field.shape)) for field in fields)
            self.length = None if n is None else (n - width) // stride + 1

    def at(self, positions: Indices) -> Block:
        """Read windows; overlapping windows read the items they share once."""
        positions = check_positions(positions, self.length)
        starts = positions * self._stride
        n = self.inner.length
        # Positions, and their distances from the first.
        current().hold("window", 2 * _INDEX_BYTES * self._width * len(positions))
        if not self._keep or n is None:
            indices = (starts[:, None] + np.arange(self._width)).reshape(-1)
            block = self._read(indices)
            shape = (len(positions), self._width)
            return {name: self._windows(block[name], shape, starts) for name in block}
        lengths = np.minimum(self._width, n - starts)
        offsets = offsets_of(lengths)
        indices = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        block = self._read(indices)
        return {name: Ragged(values_of(column), offsets) for name, column in block.items()}

    def _windows(self, column: Column, shape: tuple[int, int], starts: Indices) -> Column:
        values = values_of(column)
        if self._keep:  # no window of an endless stage is cut
            return Ragged(values, np.arange(len(starts) + 1, dtype=np.int64) * self._width)
        return values.reshape(*shape, *values.shape[1:])

    def _read(self, indices: Indices) -> Block:
        if not len(indices):
            return self.inner.at(indices)
        low, high = int(indices.min()), int(indices.max())
        if high - low < len(indices):
            block = self.inner.at(np.arange(low, high + 1))
            current().hold("window", block_bytes(block) // max(high + 1 - low, 1) * len(indices))
            return take_block(block, indices - low)
        return self.inner.at(indices)
