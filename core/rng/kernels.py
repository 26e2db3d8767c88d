"""Random numbers and permutations as functions of a key and an index.

Everything here is order version 1: what it gives for a key never changes.

``mix`` is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", 2014) started at the first word of the key, with the second word brought in
before one more multiply and shift, so that two keys are never windows into one sequence.

The permutation of a large range is an unbalanced Feistel network in mixed radix: an index
is a pair (l, r) of digits to the bases a = ceil(sqrt n) and b = ceil(n / a), six rounds
add in turn a keyed function of one digit to the other, and what falls outside the range
(less than one in sqrt n) goes through again, which is cycle walking (Black, Rogaway,
"Ciphers with arbitrary finite domains", 2002).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._jit import kernel, subkernel
from ..arrays import Floats, Indices, Words

Table = npt.NDArray[np.uint16]

U = np.uint64
"""Mixed with a signed integer, an unsigned one becomes a float: constants are unsigned."""

ROUNDS = 6
ROUND_WORDS = 2 * ROUNDS
_CHUNK = 2048

_GAMMA = U(0x9E3779B97F4A7C15)
_M1 = U(0xBF58476D1CE4E5B9)
_M2 = U(0x94D049BB133111EB)
_M3 = U(0xD6E8FEB86659FD93)
_0, _1, _11, _24 = U(0), U(1), U(11), U(24)
_27, _29, _30, _31, _32, _40 = U(27), U(29), U(30), U(31), U(32), U(40)
_LOW = U(0xFFFFFFFF)
_UNIT = 2.0**-53


@subkernel
def mix(index: U, first: U, second: U) -> U:
    """The 64 random bits of an index under the two words of a key."""
    z = index * _GAMMA + first
    z = (z ^ (z >> _30)) * _M1
    z = (z ^ (z >> _27)) * _M2
    z = z ^ (z >> _31) ^ second
    z = (z ^ (z >> _32)) * _M3
    return z ^ (z >> _29)


@subkernel
def scale(bits: U, n: U) -> U:
    """From 64 random bits to 0..n-1: the high word of their product with n.

    A value's probability is off by less than n / 2**64 of itself.
    """
    low, high = bits & _LOW, bits >> _32
    n_low, n_high = n & _LOW, n >> _32
    middle = high * n_low + ((low * n_low) >> _32)
    other = low * n_high + (middle & _LOW)
    return high * n_high + (middle >> _32) + (other >> _32)


@kernel
def fill_bits(key: Words, indices: Words, out: Words) -> None:
    """Random bits of every index."""
    first, second = key[0], key[1]
    for i in range(len(indices)):
        out[i] = mix(indices[i], first, second)


@kernel
def fill_uniform(key: Words, indices: Words, out: Floats) -> None:
    """A number in [0, 1) for every index: its upper 53 bits."""
    first, second = key[0], key[1]
    for i in range(len(indices)):
        out[i] = np.float64(np.int64(mix(indices[i], first, second) >> _11)) * _UNIT


@kernel
def fill_below(key: Words, indices: Words, n: U, out: Indices) -> None:
    """A number in 0..n-1 for every index."""
    first, second = key[0], key[1]
    for i in range(len(indices)):
        out[i] = np.int64(scale(mix(indices[i], first, second), n))


@kernel
def shuffle(first: U, second: U, table: Table) -> None:
    """Fill a table with a random order of its indices (Fisher-Yates, inside out)."""
    for i in range(len(table)):
        j = np.int64(scale(mix(U(i), first, second), U(i + 1)))
        table[i] = table[j]
        table[j] = i


@kernel
def invert(table: Table, out: Table) -> None:
    """The inverse of a permutation."""
    for i in range(len(table)):
        out[table[i]] = i


@kernel
def fill_rounds(first: U, second: U, rounds: Words) -> None:
    """Two words for every round of the network."""
    for i in range(len(rounds)):
        rounds[i] = mix(U(i), first, second)


@subkernel
def step(digit: U, first: U, second: U, base: U) -> U:
    """The keyed function of a round, from 0 to base - 1.

    The base is at most 2**24, so its product with 40 bits fits a word.
    """
    z = (digit ^ first) * _M1
    z = ((z ^ (z >> _29)) + second) * _M2
    z = z ^ (z >> _32)
    return (((z * _M3) >> _24) * base) >> _40


@subkernel
def encipher(index: U, a: U, b: U, rounds: Words) -> U:
    """Through the network once, by itself; the result is below a * b.

    Args:
        index: below a * b, which is at most about 2**48.
        a: base of the left digit.
        b: base of the right digit.
        rounds: two words for each round.
    """
    left = index // b
    right = index - left * b
    for i in range(0, ROUND_WORDS, 4):
        left += step(right, rounds[i], rounds[i + 1], a)
        left -= a if left >= a else _0
        right += step(left, rounds[i + 2], rounds[i + 3], b)
        right -= b if right >= b else _0
    return left * b + right


@subkernel
def decipher(value: U, a: U, b: U, rounds: Words) -> U:
    """Back through the network."""
    left = value // b
    right = value - left * b
    for i in range(ROUND_WORDS - 4, -1, -4):
        back = step(left, rounds[i + 2], rounds[i + 3], b)
        right = right - back if right >= back else right + b - back
        back = step(right, rounds[i], rounds[i + 1], a)
        left = left - back if left >= back else left + a - back
    return left * b + right


@subkernel
def left_base(n: U) -> U:
    """ceil(sqrt n) for 1 <= n <= 2**48."""
    a = U(np.int64(np.sqrt(np.float64(np.int64(n)))))
    while a * a < n:
        a += _1
    while a > _1 and (a - _1) * (a - _1) >= n:
        a -= _1
    return a


@kernel
def network(n: U, rounds: Words, low: int, indices: Indices, out: Indices) -> None:
    """Images of indices from ``low`` to ``low + n - 1``, less ``low``, counted from 0.

    A round at a time over a few thousand indices, both digits in the halves of a word of
    ``out``: such loops are vectorised (12 times as fast as index by index, measured).
    """
    a = left_base(n)
    b = (n + a - _1) // a
    reciprocal = 1.0 / np.float64(np.int64(b))
    for begin in range(0, len(indices), _CHUNK):
        wanted = indices[begin : begin + _CHUNK]
        words = out[begin : begin + _CHUNK]
        for i in range(len(wanted)):
            index = wanted[i] - low
            high = np.int64(np.float64(index) * reciprocal)
            rest = index - high * np.int64(b)
            high += np.int64(rest >= np.int64(b)) - np.int64(rest < 0)
            words[i] = (high << np.int64(32)) | (index - high * np.int64(b))
        for k in range(0, ROUND_WORDS, 4):
            one, two, three, four = rounds[k], rounds[k + 1], rounds[k + 2], rounds[k + 3]
            for i in range(len(words)):
                word = U(words[i])
                left, right = word >> _32, word & _LOW
                left += step(right, one, two, a)
                left = left - a if left >= a else left
                right += step(left, three, four, b)
                right = right - b if right >= b else right
                words[i] = np.int64((left << _32) | right)
        for i in range(len(words)):
            word = U(words[i])
            words[i] = np.int64((word >> _32) * b + (word & _LOW))
    for i in range(len(indices)):
        while U(out[i]) >= n:
            out[i] = np.int64(encipher(U(out[i]), a, b, rounds))


@kernel
def unpermute_large(n: U, rounds: Words, values: Indices, out: Indices) -> None:
    """The inverse of :func:`network` from 0."""
    a = left_base(n)
    b = (n + a - _1) // a
    for i in range(len(values)):
        index = decipher(U(values[i]), a, b, rounds)
        while index >= n:
            index = decipher(index, a, b, rounds)
        out[i] = np.int64(index)
