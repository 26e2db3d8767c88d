"""Finding the end of a block and separating its pairs: sidx into one array, losses into another."""

from __future__ import annotations

import numpy as np

from ..._jit import inlined
from ..._vectors import GROUP, separate
from .layout import Bits, Scratch, Sidx, Words

# Unsigned indices spare the compiler numpy's wrap-around of negative ones, which
# is what lets the loops over interleaved pairs vectorise.
_U = np.uintp
_U1 = np.uintp(1)
_U2 = np.uintp(2)
_U3 = np.uintp(3)
LOW_WORD = np.int64(0xFFFFFFFF)


@inlined
def _unpack4(words: Words, sidx: Sidx, bits: Bits) -> None:
    """Deinterleave four-byte pairs."""
    for i in range(len(words) >> 1):
        sidx[i] = words[_U2 * _U(i)]
        bits[i] = words[_U2 * _U(i) + _U1]


@inlined
def _unpack8(words: Words, sidx: Sidx, bits: Bits) -> None:
    """Deinterleave eight-byte pairs."""
    for i in range(len(words) // 3):
        low = np.int64(words[_U3 * _U(i) + _U1]) & LOW_WORD
        sidx[i] = words[_U3 * _U(i)]
        bits[i] = (np.int64(words[_U3 * _U(i) + _U2]) << 32) | low


@inlined
def unpack(words: Words, begin: int, end: int, width: int, sidx: Sidx, bits: Bits) -> None:
    """Put the pairs of words [begin, end) into scratch."""
    if width == 4:
        _unpack4(words[begin:end], sidx, bits)
    else:
        _unpack8(words[begin:end], sidx, bits)


@inlined
def find_end(words: Words, begin: int, stop: int, stride: int) -> int:
    """Word of the first pair in [begin, stop) whose sidx is 0; if none, the first not whole.

    Eight pairs at a time: a branch for each would cost more than the comparison.
    """
    at = _U(begin)
    last = _U(stop)
    s = _U(stride)
    leap = _U(8) * s
    while at + leap <= last:
        if (
            (words[at] == 0)
            | (words[at + s] == 0)
            | (words[at + _U2 * s] == 0)
            | (words[at + _U3 * s] == 0)
            | (words[at + _U(4) * s] == 0)
            | (words[at + _U(5) * s] == 0)
            | (words[at + _U(6) * s] == 0)
            | (words[at + _U(7) * s] == 0)
        ):
            break
        at += leap
    while at + s <= last and words[at] != 0:
        at += s
    # Signed: with an unsigned number numba would compute in floats.
    return int(np.int64(at))


@inlined
def find_and_unpack(words: Words, begin: int, stop: int, width: int, scratch: Scratch) -> int:
    """Find the end as :func:`find_end`, and put the pairs before it into scratch."""
    stride = (4 + width) >> 2
    at = begin
    k = 0
    while at + stride * GROUP <= stop:
        pairs = separate(words, at, scratch.sidx, scratch.bits, k)
        at += stride * pairs
        k += pairs
        if pairs < GROUP:
            return at
    end = find_end(words, at, stop, stride)
    unpack(words, at, end, width, scratch.sidx[k:], scratch.bits[k:])
    return end
