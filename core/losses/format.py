"""Byte layout of Oasis LMF loss streams: sizes, ids and dtypes.

All streams are little endian and packed::

    gul, loss    type(4) len_sample(i4)                block*
    summary      type(4) len_sample(i4) set_id(i4)     block*

    block        event_id(i4) item_or_summary_id(i4) [exposure(f)] pair* end
    pair         sidx(i4) loss(f)
    end          0(i4) 0(f)

Only summary streams have ``exposure``. ``f`` is four or eight bytes wide, which the stream
does not say. The first three bytes of the type are the aggregation type, the fourth is the
source type.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ..errors import LimitError


class Kind(enum.Enum):
    """Kind of a loss stream."""

    GUL = "gul"
    LOSS = "loss"
    SUMMARY = "summary"

    @property
    def block_noun(self) -> str:
        """What the second id of a block names: ``summary`` or ``item``."""
        return "summary" if self is Kind.SUMMARY else "item"


SOURCE_CDF = 0
SOURCE_GUL = 1
SOURCE_LOSS = 2
SOURCE_SUMMARY = 3

TYPES: dict[tuple[int, int], Kind] = {
    (SOURCE_GUL, 1): Kind.GUL,
    (SOURCE_GUL, 2): Kind.GUL,
    (SOURCE_LOSS, 1): Kind.LOSS,
    (SOURCE_SUMMARY, 1): Kind.SUMMARY,
}
"""(source type, aggregation type) to kind; gul aggregation 2 is by coverage."""
BEGINNINGS = {aggregation.to_bytes(3, "little") + bytes([kind]) for kind, aggregation in TYPES}
"""First bytes of streams."""

ID_MAX = 2**31 - 1
"""Highest event, item and summary id; the lowest is 1."""

SIDX_END = 0
SIDX_MEAN = -1
SIDX_STD_DEV = -2
SIDX_TIV = -3
SIDX_CHANCE = -4
"""Chance of loss in gul and loss streams, number of affected risks in summary streams."""
SIDX_MAX_LOSS = -5
SIDX_LOWEST = -5

SPECIALS = 5
"""Number of special sidx, -5 to -1."""

TYPE_SIZE = 4
ITEM_HEADER_SIZE = 8
SUMMARY_HEADER_SIZE = 12

FLOAT_WIDTHS = (4, 8)

LOSS_DTYPES: dict[int, np.dtype[np.floating]] = {4: np.dtype("<f4"), 8: np.dtype("<f8")}

MAX_SAMPLES = 1_000_000
"""Default limit of len_sample, 125 times the largest sample count seen in practice. It
keeps a block below 8 MB, or 12 MB with losses of eight bytes."""
MAX_BLOCKS = 1 << 24
"""Default limit of the blocks of one event."""


def header_size(kind: Kind) -> int:
    """Bytes before the first block."""
    return SUMMARY_HEADER_SIZE if kind is Kind.SUMMARY else ITEM_HEADER_SIZE


def pair_size(float_width: int) -> int:
    """Bytes of one (sidx, loss) pair."""
    return 4 + float_width


def block_header_size(kind: Kind, float_width: int) -> int:
    """Bytes of a block before its first pair."""
    return 8 + (float_width if kind is Kind.SUMMARY else 0)


def beyond(subject: str, width: int, **place: Any) -> LimitError:  # noqa: ANN401 - of LimitError
    """The error of a number that a loss of so many bytes does not hold."""
    unit = "Have amounts in a larger unit, such as millions"
    return LimitError(
        f"{subject} more than a loss of {width} bytes holds",
        limit="loss",
        allowed=float(np.finfo(LOSS_DTYPES[width]).max),
        hint=unit if width == max(LOSS_DTYPES) else f"{unit}, or losses of 8 bytes (float_width)",
        **place,
    )
