"""Reading again the blocks that a ledger only refers to (``_kernels/references``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ...arrays import Indices
from ...errors import InputError
from .._kernels.layout import LEDGER_STRETCHES, STATE, Record, Scratch, Words
from .._kernels.references import originals_size, read_originals
from .._kernels.stretches import HEAD, OFFSET_BITS, Arena
from ..events import StreamHeader
from .memory import make_arena

_SPARE = 4
"""An arena is larger than needed by this part of it, so that it is large enough for others."""


class Streams(Protocol):
    """Streams that can be read at any place."""

    def words(self, stream: int) -> Words:
        """All words of a stream, by its index.

        Raises:
            InputError: it is not as long as it was.
        """

    def check(self, stream: int) -> None:
        """Check that what was read since ``words`` was there.

        Raises:
            InputError: it was not.
        """

    def name(self, stream: int) -> str:
        """What errors call it."""


class Originals:
    """The blocks of streams to which references refer.

    Args:
        streams: that have been passed over.
        header: of all of them.
        rules: RULES record of the pass.
        make_scratch: makes memory for a block.
    """

    def __init__(
        self,
        streams: Streams,
        header: StreamHeader,
        rules: Record,
        make_scratch: Callable[[], Scratch],
    ) -> None:
        self._streams = streams
        self._header = header
        self._rules = rules.copy()
        self._rules["ledger"] = LEDGER_STRETCHES
        self._make_scratch = make_scratch
        self._free: list[Arena] = []

    def read(self, references: Arena, places: Indices) -> tuple[Arena, Indices]:
        """Read blocks as stretches; several threads may do so at once.

        Args:
            references: where the references are.
            places: words of them, in any order, repeated where a block has several occurrences.

        Returns:
            The stretches, to be given back with :meth:`reuse`, and the word of each, in the order
            of ``places``.

        Raises:
            InputError: a stream has changed since the pass.
        """
        unique, order = np.unique(places, return_inverse=True)
        header = self._header
        sizes = (header.len_sample, header.float_width)
        arena = self._take(originals_size(references.words, unique, *sizes))
        scratch = self._make_scratch()
        state = np.zeros(1, STATE)
        moved = np.zeros(len(unique), np.int64)
        for stream in np.unique(references.longs[(unique + HEAD) >> 1] >> OFFSET_BITS).tolist():
            words = self._streams.words(stream)
            count = read_originals(
                references, unique, stream, words, self._rules, state, scratch, arena, moved
            )
            self._streams.check(stream)
            if count != len(unique):
                raise InputError("it changed while it was read", source=self._streams.name(stream))
        return arena, moved[order.ravel()]

    def _take(self, words: int) -> Arena:
        """An arena that nobody uses."""
        try:
            # Taking from a list is atomic.
            arena = self._free.pop()
        except IndexError:
            return make_arena(words)
        return arena if len(arena.words) >= words else make_arena(words + words // _SPARE)

    def reuse(self, arena: Arena) -> None:
        """Take the memory of stretches back."""
        self._free.append(arena)
