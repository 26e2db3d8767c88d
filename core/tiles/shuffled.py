"""All positions in random order, sorted window by window in bounded memory.

The order is that of a random key of each position: the SplitMix64 finaliser (Steele et al., 2014)
of (position + 1) * increment + seed. It permutes the words, so no two positions have one key, and a
key tells its position: keys can be sorted alone. To sort a hundred million keys takes gigabytes, so
only those of a window of the order are sorted. As the upper bits of the keys are counted once, it
is known between which keys the window lies, and a pass over all positions collects those::

    keys by their upper bits      | 4096 | 4101 | 4090 | ........ | 4099 |
    windows of about 2**20        |------ 0 ------|------ 1 ------|- ... |

A pass takes a nanosecond or two a position, so a reader keeps the windows that it has last
used, and the order those that anybody has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .._jit import kernel, subkernel
from ..arrays import Array, Indices, Words
from ..budget import Scope, current
from ..rng.kernels import U

WINDOW = 1 << 20
"""Positions that are sorted at once."""
_SLICE = 1 << 22
"""Positions that are looked at between two looks at the budget."""
_KEY_BITS = 64
_BUCKET_BITS = 14
_KEPT = 2
"""Windows that are kept: the reader of a tile has the next one prepared, which may lie in the next
window."""
_HELD = 8 + 4 * 2 * _KEPT
"""Bytes of a position of a window: its key, and in the windows kept by reader and order."""

Window = npt.NDArray[np.int32]
_Windows = tuple[tuple[int, Window], ...]


class _Order:
    """The order of positions ``low`` to ``high`` by a seed; for any number of threads."""

    def __init__(self, seed: int, low: int, high: int) -> None:
        self.seed = np.uint64(seed)
        self.low = low
        self.high = high
        self.recent: _Windows = ()

    @cached_property
    def windows(self) -> tuple[Indices, list[int]]:
        """The place of each window in the order; the least key of each, and the end of all."""
        size = self.high - self.low
        if size <= WINDOW:
            return np.zeros(1, np.int64), [0, 1 << _KEY_BITS]
        shift = _KEY_BITS - _BUCKET_BITS
        counts = np.zeros(1 << _BUCKET_BITS, np.int64)
        for first, stop in self._slices():
            count_keys(self.seed, first, stop, np.uint64(shift), counts)
        before = np.cumsum(counts) - counts
        edges = np.unique(np.searchsorted(before, np.arange(0, size, WINDOW)))
        edges = edges[edges < len(before)]
        return before[edges], [edge << shift for edge in [*edges.tolist(), len(before)]]

    def window(self, number: int) -> Window:
        """Sort the positions of a window."""
        places, keys = self.windows
        begin, end = [*places.tolist(), self.high - self.low][number : number + 2]
        least, most = np.uint64(keys[number]), np.uint64(keys[number + 1] - 1)
        with Scope("shuffle", _HELD * (end - begin)):
            found, count = np.empty(end - begin + 1, np.uint64), 0
            for first, stop in self._slices():
                count = collect_keys(self.seed, first, stop, least, most, found, count)
            found = found[:count]
            found.sort()
            window = np.empty(count, np.int32)
            find_positions(self.seed, found, window)
        self.recent = _kept(self.recent, number, window)
        return window

    def _slices(self) -> Iterator[tuple[int, int]]:
        for first in range(self.low, self.high, _SLICE):
            current().check("shuffle")
            yield first, min(first + _SLICE, self.high)


class Shuffled:
    """Positions ``low`` to ``high`` in random order, along a single axis.

    Args:
        order: the order, which may be shared.
    """

    def __init__(self, order: _Order) -> None:
        self._order = order
        self._recent: _Windows = ()

    @classmethod
    def of(cls, seed: int, low: int, high: int) -> Shuffled:
        """Shuffle the positions from ``low`` to ``high`` - 1, at most ``MAX_SELECTED``."""
        return cls(_Order(seed, low, high))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions, as a shape with one axis."""
        return (self._order.high - self._order.low,)

    def box(self, low: tuple[int, ...], high: tuple[int, ...]) -> Indices:
        """Return the positions at places ``low`` to ``high`` of the order."""
        (begin,), (end,) = low, high
        places = self._order.windows[0]
        first, last = np.searchsorted(places, (begin, end - 1), side="right").tolist()
        out = np.empty(end - begin, np.int64)
        for number in range(first - 1, last):
            window, at = self._window(number), int(places[number])
            part = window[max(begin - at, 0) : end - at]
            skip = max(at - begin, 0)
            out[skip : skip + len(part)] = part
        return out

    def _window(self, number: int) -> Window:
        window = _find(self._recent, number)
        if window is None:
            window = _find(self._order.recent, number)
            if window is None:
                window = self._order.window(number)
            self._recent = _kept(self._recent, number, window)
        return window

    def extremes(self) -> tuple[int, int]:
        """Return the lowest and highest position."""
        return self._order.low, self._order.high - 1

    def within(self, low: int, high: int) -> Shuffled | None:
        """Return those from ``low`` to ``high`` - 1, in the same order; None if there are none."""
        order = self._order
        low, high = max(low, order.low), min(high, order.high)
        return Shuffled(_Order(int(order.seed), low, high)) if low < high else None

    def for_reader(self) -> Shuffled:
        """Return the same positions with windows of its own."""
        return Shuffled(self._order)

    @property
    def nbytes(self) -> int:
        """Memory of the windows and of what is known of all of them, at most, in bytes."""
        return min(self.shape[0], WINDOW) * _KEPT * 4 + (16 << _BUCKET_BITS)


def _find(recent: _Windows, number: int) -> Window | None:
    return next((window for known, window in recent if known == number), None)


def _kept(recent: _Windows, number: int, window: Window) -> _Windows:
    return ((number, window), *recent[: _KEPT - 1])


_WORDS = 2**64
_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_GAMMA, _M1, _M2 = U(_FACTORS[0]), U(_FACTORS[1]), U(_FACTORS[2])
_UNDO_GAMMA, _UNDO_M1, _UNDO_M2 = (
    U(pow(_FACTORS[0], -1, _WORDS)),
    U(pow(_FACTORS[1], -1, _WORDS)),
    U(pow(_FACTORS[2], -1, _WORDS)),
)
_1, _27, _30, _31, _54, _60, _62 = U(1), U(27), U(30), U(31), U(54), U(60), U(62)


@subkernel
def _key(position: int, seed: U) -> U:
    z = (U(position) + _1) * _GAMMA + seed
    z = (z ^ (z >> _30)) * _M1
    z = (z ^ (z >> _27)) * _M2
    return z ^ (z >> _31)


@kernel
def count_keys(seed: U, first: int, stop: int, shift: U, counts: Indices) -> None:
    """Count the keys of positions ``first`` to ``stop`` by their upper bits.

    Args:
        seed: of the order.
        first: first position.
        stop: position after the last.
        shift: number of lower bits that do not count.
        counts: the counts, which grow.
    """
    for position in range(first, stop):
        counts[_key(position, seed) >> shift] += 1


@kernel
def collect_keys(seed: U, first: int, stop: int, least: U, most: U, keys: Words, count: int) -> int:
    """Append the keys of positions ``first`` to ``stop`` that lie between two others.

    Args:
        seed: of the order.
        first: first position.
        stop: position after the last.
        least: least key.
        most: greatest key.
        keys: the keys, with room for one more than there are.
        count: how many are there already.

    Returns:
        How many are there now.
    """
    for position in range(first, stop):
        key = _key(position, seed)
        # Written in any case, so that nothing has to be predicted.
        keys[count] = key
        count += int((key >= least) & (key <= most))
    return count


@kernel
def find_positions(seed: U, keys: Words, positions: Array) -> None:
    """Fill ``positions``, int32, with those that have these keys."""
    for i in range(len(keys)):
        z = keys[i]
        z = (z ^ (z >> _31) ^ (z >> _62)) * _UNDO_M2
        z = (z ^ (z >> _27) ^ (z >> _54)) * _UNDO_M1
        z = z ^ (z >> _30) ^ (z >> _60)
        positions[i] = (z - seed) * _UNDO_GAMMA - _1
