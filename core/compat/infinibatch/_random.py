"""Random numbers in two orders, each with a place that is one integer.

* ``mersenne``: the numbers of ``random.Random(seed)``, as in infinibatch. The place is the
  number of 32-bit words drawn. Going there draws them again, in large pieces: a few
  nanoseconds a word, a second for some 10**8 items.
* ``counter``: random numbers by counter (:mod:`core.rng`). Going anywhere takes no time.
"""

from __future__ import annotations

import random
import secrets
from typing import Any, Literal, get_args

import numpy as np

from ...rng import Key, bits, derive
from ..checkpoints import BEGINNING, Saved, whole
from ..errors import ArgumentError, CheckpointError

Order = Literal["mersenne", "counter"]
_SKIPPED_AT_ONCE = 1 << 14
_WORD = 32
_MAX_SEED = 2**63 - 1


class CountedRandom(random.Random):
    """``random.Random`` that counts the 32-bit words it draws.

    It returns the numbers of ``random.Random``. It refuses new seeds and states, because its
    place belongs to the checkpoint of an iterator.
    """

    _seeded = False

    def __init__(self, seed: int) -> None:
        self.words = 0
        super().__init__(seed)
        self._seeded = True

    def seed(self, a: Any = None, version: int = 2) -> None:  # noqa: ANN401 - as the base
        """Refuse, except for the first seeding."""
        if self._seeded:
            raise TypeError("the state of this generator belongs to its iterator")
        super().seed(a, version)

    def setstate(self, state: tuple[Any, ...]) -> None:
        """Refuse: the state belongs to the iterator."""
        del state
        raise TypeError("the state of this generator belongs to its iterator")

    def random(self) -> float:
        """A number in [0, 1), from two words."""
        self.words += 2
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        """An integer of ``k`` random bits, from one word for every 32."""
        self.words += -(-k // _WORD)
        return super().getrandbits(k)

    def shuffle(self, x: Any) -> None:  # noqa: ANN401 - as the base
        """Shuffle in place with the draws of ``random.Random.shuffle``, but faster."""
        draw, words = super().getrandbits, 0
        for last in range(len(x) - 1, 0, -1):
            width = (last + 1).bit_length()
            place = draw(width)
            words += 1
            while place > last:
                place = draw(width)
                words += 1
            x[last], x[place] = x[place], x[last]
        self.words += words

    def skip(self, words: int) -> None:
        """Skip some words."""
        self.words += words
        while words:
            step = min(words, _SKIPPED_AT_ONCE)
            super().getrandbits(step * _WORD)
            words -= step


def order_of(order: str) -> Order:
    """Check the name of an order.

    Raises:
        ArgumentError: there is no such order.
    """
    if order not in get_args(Order):
        raise ArgumentError(f"order is {order!r}", hint="It is 'mersenne' or 'counter'.")
    return "mersenne" if order == "mersenne" else "counter"


class Seed:
    """The seed of an iterator, drawn if none is given.

    The checkpoint holds a drawn seed, so that another iterator without a seed continues
    like the first.
    """

    def __init__(self, seed: int | None, order: Order) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise ArgumentError(f"seed has to be an integer or None, not {seed!r}")
        if order == "counter" and seed is not None and not 0 <= seed <= _MAX_SEED:
            raise ArgumentError(
                f"seed is {seed}", hint="In counter order it is from 0 to 2**63 - 1."
            )
        self._fixed = seed
        self.order = order
        self._initial = secrets.randbits(62) if seed is None else seed
        self.value = self._initial

    def reset(self) -> None:
        """Return to the seed of the constructor."""
        self.value = self._initial

    def save(self) -> list[Any]:
        """The order and the seed, with which every saved place begins."""
        return [self.order, self.value]

    def load(self, saved: object, length: int) -> list[Any]:
        """Check a saved place of ``length`` values; return those after order and seed.

        Raises:
            CheckpointError: it is malformed, or of another order or seed.
        """
        if not isinstance(saved, list | tuple) or len(saved) != length:
            raise CheckpointError(f"the random place of a checkpoint is {saved!r}")
        order, seed = saved[:2]
        if order != self.order:
            raise CheckpointError(f"a checkpoint of order {order!r}, not {self.order!r}")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise CheckpointError(f"the seed of a checkpoint is {seed!r}")
        if self._fixed is not None and seed != self._fixed:
            raise CheckpointError(f"a checkpoint of seed {seed}, not {self._fixed}")
        self.value = seed
        return list(saved[2:])

    def load_count(self, saved: Saved, label: str) -> int:
        """Go to the place of an iterator that saves one number after order and seed; return it.

        Raises:
            CheckpointError: it is malformed, or of another order or seed.
        """
        self.reset()
        return 0 if saved is BEGINNING else whole(self.load(saved["random"], 3)[0], label)

    def key(self, name: str) -> Key:
        """The key of the counter order for the iterator of this name."""
        return derive(self.value, "infinibatch", name)


class MersenneDraws:
    """One generator for all turns, as in infinibatch; a place is [order, seed, words, gauss]."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._random = CountedRandom(seed.value)

    def turn(self) -> random.Random:
        """The generator for the next turn."""
        return self._random

    def save(self) -> list[Any]:
        """The current place."""
        pending: float | None = self._random.gauss_next  # type: ignore[attr-defined]
        return [*self._seed.save(), self._random.words, pending]

    def load(self, saved: object) -> None:
        """Go to a place, or with None to the beginning.

        Raises:
            CheckpointError: it is no place.
        """
        self._seed.reset()
        words, pending = (0, None) if saved is None else self._seed.load(saved, 4)
        words = whole(words, "the number of words drawn")
        if pending is not None and not isinstance(pending, float):
            raise CheckpointError(f"the pending normal number of a checkpoint is {pending!r}")
        self._random = CountedRandom(self._seed.value)
        self._random.skip(words)
        self._random.gauss_next = pending  # type: ignore[attr-defined]


class CounterDraws:
    """A new generator for every turn; a place is [order, seed, turn]."""

    def __init__(self, seed: Seed, name: str) -> None:
        self._seed = seed
        self._name = name
        self._turn = 0
        self._key = seed.key(name)

    def turn(self) -> random.Random:
        """The generator for the next turn."""
        indices = np.array([2 * self._turn, 2 * self._turn + 1], np.uint64)
        first, second = bits(self._key, indices).tolist()
        self._turn += 1
        return random.Random(first << 64 | second)  # noqa: S311 - order, not secrets

    def save(self) -> list[Any]:
        """The current place."""
        return [*self._seed.save(), self._turn]

    def load(self, saved: object) -> None:
        """Go to a place, or with None to the beginning.

        Raises:
            CheckpointError: it is no place.
        """
        self._seed.reset()
        (turn,) = (0,) if saved is None else self._seed.load(saved, 3)
        self._turn = whole(turn, "the number of turns")
        self._key = self._seed.key(self._name)


Draws = MersenneDraws | CounterDraws


def draws(seed: int | None, order: str, name: str) -> Draws:
    """Random generators, one turn after another, for the iterator of this name.

    Raises:
        ArgumentError: the seed or the order is invalid.
    """
    own_seed = Seed(seed, order_of(order))
    return MersenneDraws(own_seed) if own_seed.order == "mersenne" else CounterDraws(own_seed, name)
