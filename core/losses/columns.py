"""Part of a stream as columns: all its events, blocks and pairs in a few arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Indices
from ._kernels.indexing import gather
from ._kernels.layout import Words
from .buffer import as_octets, is_aligned
from .events import Position, StreamHeader
from .format import LOSS_DTYPES, block_header_size, pair_size
from .policy import Policy
from .scanner import Scanner


class LossColumns(NamedTuple):
    """Whole blocks of a stream, one after the other."""

    event_ids: npt.NDArray[np.int32]
    """Shape (events,)."""
    firsts: Indices
    """First block of each event, and the number of blocks; shape (events + 1,)."""
    block_ids: npt.NDArray[np.int32]
    """Item, coverage or summary ids, shape (blocks,)."""
    exposures: Floats
    """Exposure of each summary, shape (blocks,); NaN in item streams."""
    starts: Indices
    """First pair of each block, and the number of pairs; shape (blocks + 1,)."""
    sidx: npt.NDArray[np.int32]
    """Sample ids, special ones included, shape (pairs,)."""
    losses: npt.NDArray[np.floating[Any]]
    """Losses in the width of the stream, shape (pairs,)."""
    sizes: Indices
    """Bytes of each block in the stream, shape (blocks,)."""


def read_columns(
    data: bytes | memoryview,
    policy: Policy,
    header: StreamHeader,
    offset: int,
    *,
    name: str | None = None,
) -> LossColumns:
    """Check and copy whole blocks; takes up to four times their bytes.

    Args:
        data: bytes of a stream, from the first byte of a block on.
        policy: what to accept.
        header: of the stream.
        offset: of ``data`` in the stream.
        name: of the stream, for errors.

    Raises:
        TruncatedError: the bytes end inside a block.
        StreamError: a block is wrong.
    """
    octets = as_octets(data)
    if not is_aligned(octets):
        octets = octets.copy()
    pair = pair_size(header.float_width)
    fixed = block_header_size(header.kind, header.float_width) + pair
    blocks, pairs = len(octets) // fixed, len(octets) // pair
    events, firsts = np.zeros(blocks, np.int32), np.zeros(blocks + 1, np.int64)
    idents, exposures = np.zeros(blocks, np.int32), np.zeros(blocks)
    starts = np.zeros(blocks + 1, np.int64)
    sidx, losses = np.zeros(pairs, np.int32), np.zeros(pairs, LOSS_DTYPES[header.float_width])
    scanner = Scanner(policy, name)
    scanner.resume(Position(header, offset))

    def step(words: Words, stop: int) -> int:
        stream = (words, stop, scanner.rules, scanner.state, scanner.scratch, scanner.seen)
        return gather(*stream, events, firsts, idents, exposures, starts, sidx, losses)

    consumed, _ = scanner.run(octets, step)
    end = scanner.finish(octets[consumed:])
    starts = starts[: end.blocks + 1]
    return LossColumns(
        events[: end.events],
        firsts[: end.events + 1],
        idents[: end.blocks],
        exposures[: end.blocks],
        starts,
        sidx[: end.pairs],
        losses[: end.pairs],
        np.diff(starts) * pair + fixed,
    )
