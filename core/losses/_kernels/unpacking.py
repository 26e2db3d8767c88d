"""Separating the interleaved pairs of a block: sidx into one array, bits of losses into another."""

from __future__ import annotations

import numpy as np

from ..._jit import inlined
from .layout import Bits, Sidx, Words

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
