"""A writer of loss streams, the inverse of the reader: blocks in, bytes out."""

from __future__ import annotations

from math import inf
from operator import index

import numpy as np
import numpy.typing as npt

from ..errors import OptionError
from .events import StreamHeader
from .format import ID_MAX, LOSS_DTYPES, SIDX_END, SIDX_LOWEST, Kind, beyond
from .header import header_bytes


class LossWriter:
    """Encodes the blocks of one loss stream.

    It refuses invalid ids, sidx and exposures, and losses that their width does not hold. The
    caller sees to it that samples ascend without repetition, that losses are finite, and that the
    blocks of an event follow one another.

    Args:
        header: of the stream; its ``float_width`` is the width of losses.
    """

    def __init__(self, header: StreamHeader) -> None:
        self.header = header
        loss = LOSS_DTYPES[header.float_width]
        self._pair = np.dtype([("sidx", "<i4"), ("loss", loss)])
        fields: list[tuple[str, npt.DTypeLike]] = [("event", "<i4"), ("id", "<i4")]
        if header.kind is Kind.SUMMARY:
            fields.append(("exposure", loss))
        self._head = np.dtype(fields)

    def begin(self) -> bytes:
        """The encoded header."""
        return header_bytes(self.header)

    def block(
        self,
        event: int,
        ident: int,
        sidx: npt.ArrayLike,
        losses: npt.ArrayLike,
        exposure: float | None = None,
    ) -> bytes:
        """Encode one block, its end included.

        Args:
            event: event id, at least 1.
            ident: item, coverage or summary id, at least 1.
            sidx: sample ids, special ones first, shape (n,).
            losses: shape (n,).
            exposure: of a summary; None in other kinds of streams.

        Raises:
            OptionError: an id or sidx is out of range, the numbers of losses and sidx
                differ, or the exposure is invalid, missing or does not belong there.
            LimitError: an amount is beyond the width of losses.
            TypeError: an id is no whole number.
        """
        ids = np.asarray(sidx)
        if ids.size and ids.dtype.kind not in "iu":
            raise OptionError(f"sidx are whole numbers, not {ids.dtype}")
        ids = ids.astype(np.int64)
        event, ident = index(event), index(ident)
        if not (1 <= event <= ID_MAX and 1 <= ident <= ID_MAX):
            raise OptionError(f"ids are 1 to {ID_MAX}, but event is {event} and block is {ident}")
        if ids.shape != np.shape(losses):
            raise OptionError(f"there are {np.size(losses)} losses for {ids.size} sidx")
        if (exposure is None) is (self.header.kind is Kind.SUMMARY):
            raise OptionError("blocks of summary streams, and only those, have an exposure")
        if np.any((ids < SIDX_LOWEST) | (ids > self.header.len_sample) | (ids == SIDX_END)):
            last = self.header.len_sample
            raise OptionError(f"sidx must be {SIDX_LOWEST} to -1 or 1 to {last}, none of them 0")
        if exposure is not None and not 0 <= exposure < inf:
            raise OptionError(f"the exposure is {exposure}: it must be finite, and not negative")
        head = np.zeros(1, self._head)
        head["event"], head["id"] = event, ident
        pairs = np.zeros(len(ids) + 1, self._pair)
        pairs["sidx"][:-1] = ids
        try:
            with np.errstate(over="raise"):
                if exposure is not None:
                    head["exposure"] = exposure
                pairs["loss"][:-1] = losses
        except FloatingPointError as e:
            raise beyond("a loss is", self.header.float_width, event=event, block=ident) from e
        return head.tobytes() + pairs.tobytes()
