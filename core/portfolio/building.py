"""From the events of a summary stream to the rows of a loss set.

A stream is read once, some whole events at a time, in any order. Their rows are handed on as they
come, and of their blocks only the ids are kept, as each may be there once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import Indices
from ..budget import current
from ..errors import InputError
from ..losses.format import SIDX_MEAN
from ..losses.indexing import LossColumns
from ..sorting import order_of, starts_of
from .losses import Int32s

_BLOCK_BYTES = 64
"""Memory for a block: its ids, place and count, and what sorting them takes."""
_TIGHT = 16
"""Bytes of a block that are held until all are known."""


class Part(NamedTuple):
    """Rows of some whole blocks, in the order of the stream."""

    event_ids: Int32s
    """Event of each block with a row, shape (blocks,)."""
    summary_ids: Int32s
    """Shape (blocks,)."""
    counts: Int32s
    """Rows of each block, shape (blocks,)."""
    samples: Int32s
    """0 for the numerical mean, ascending within a block; shape (rows,)."""
    losses: npt.NDArray[np.floating[Any]]
    """In the width of the stream, above 0; shape (rows,)."""


class TableBuilder:
    """Makes parts of a loss set of events, and checks at the end that none is there twice.

    Args:
        samples: len_sample of the stream.
        source: name of the stream, for messages.
    """

    def __init__(self, samples: int, source: str | None = None) -> None:
        self._samples = samples
        self._source = source
        self._blocks: list[Indices] = []

    def take(self, columns: LossColumns) -> Part:
        """Return the rows above 0 of some whole events.

        Raises:
            InputError: a loss is negative or not finite, or a sample is beyond ``len_sample``.
            WorkStoppedError: the index does not fit, or nobody waits for the result.
        """
        part = self._rows(columns)
        current().hold("index", _TIGHT * len(part.counts))
        if len(part.counts):
            self._blocks.append(part.event_ids.astype(np.int64) << 32 | part.summary_ids)
        return part

    def _rows(self, columns: LossColumns) -> Part:
        starts, sidx, losses = columns.starts, columns.sidx, columns.losses
        usable = (losses >= 0) & np.isfinite(losses) & (sidx <= self._samples)
        if not usable.all():
            self._refuse(columns, int(np.flatnonzero(~usable)[0]))
        kept = np.flatnonzero(((sidx > 0) | (sidx == SIDX_MEAN)) & (losses > 0))
        places = np.searchsorted(kept, starts)
        counts = np.diff(places)
        samples = np.maximum(sidx[kept], 0)
        owners = np.repeat(np.arange(len(counts)), counts)
        if ((np.diff(samples) <= 0) & (np.diff(owners) == 0)).any():
            order = np.lexsort((samples, owners))
            samples, kept = samples[order], kept[order]
        chosen = np.flatnonzero(counts)
        events = np.repeat(columns.event_ids, np.diff(columns.firsts))
        return Part(
            events[chosen],
            columns.block_ids[chosen],
            counts[chosen].astype(np.int32),
            samples,
            losses[kept],
        )

    def _refuse(self, columns: LossColumns, pair: int) -> None:
        block = int(np.searchsorted(columns.starts, pair, side="right")) - 1
        event = int(np.searchsorted(columns.firsts, block, side="right")) - 1
        raise InputError(
            f"sample {columns.sidx[pair]} has the loss {columns.losses[pair]}, which a loss set"
            " cannot hold",
            event=int(columns.event_ids[event]),
            block=int(columns.block_ids[block]),
            hint="Its losses are finite and not negative, of samples up to len_sample; read the"
            " stream with a policy that refuses others",
            source=self._source,
        )

    def finish(self) -> Int32s:
        """Return the events of all rows, ascending.

        Raises:
            InputError: there is no loss, or a summary of an event comes twice.
            WorkStoppedError: the ids do not fit, or nobody waits for the result.
        """
        if not self._blocks:
            raise InputError(
                "no loss is above 0",
                hint="A loss set needs one: check the financial terms and the summary set",
                source=self._source,
            )
        current().hold("index", (_BLOCK_BYTES - _TIGHT) * sum(map(len, self._blocks)))
        keys, _ = order_of(np.concatenate(self._blocks), "index")
        current().check("index")
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            raise InputError(
                "a summary comes twice in an event",
                event=int(keys[twice[0]] >> 32),
                block=int(keys[twice[0]] & _ID),
                hint="Give the stream of one summary set, with each event once",
                source=self._source,
            )
        current().check("index")
        events = keys >> 32
        return events[starts_of(events)[:-1]].astype(np.int32)


_ID = 0x7FFFFFFF
"""Bits of a summary id in a key."""
