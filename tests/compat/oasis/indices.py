"""Indices of summary streams, computed from the stream."""

from __future__ import annotations

import struct

import numpy as np

_HEADER_WORDS = 3


def true_index(stream: bytes) -> bytes:
    """(summary id i4, offset i8) of every block of a stream of 4-byte losses."""
    words = np.frombuffer(stream, "<i4")
    index = b""
    at = _HEADER_WORDS
    while at < len(words):
        index += struct.pack("<iq", int(words[at + 1]), 4 * at)
        at += 3
        at += 2 * (int(np.flatnonzero(words[at::2] == 0)[0]) + 1)
    return index
