"""Records and codes shared by the kernels and their Python callers, data only."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ...arrays import Array, Floats, Indices, Octets, Rows

Record = Rows
"""One record, shape (1,), so that kernels can write to it."""
Words = npt.NDArray[np.int32]
Sidx = npt.NDArray[np.int32]
Bits = Array
"""int32 or int64: bit patterns of losses."""
Losses = Array
"""float32 or float64."""
Ranks = Indices
Flags = Octets

ZERO = cast("int", np.int64(0))
"""For arguments: a literal 0 would compile what takes it a second time."""

# What a kernel says when it returns.
OK = 0
MORE = 1
"""The window ends inside a block."""
FULL = 2
"""A table has no room for the next block; ``needed`` in STATE says how many rows."""
GROW_SEEN = 3
"""The next event id lies in a page of the seen-events bitmap that does not exist yet."""
GROW_LOG = 4
"""The log of the event's block ids is full."""
FAULT = 5
"""The stream is wrong; the ``fault`` fields of STATE say how and where."""
EVENT_DONE = 6
"""The next block belongs to another event (reader only)."""
ARENA_FULL = 7
"""The ledger's memory has no room for the next block; ``needed`` in STATE says how many words."""

# What a fault is.
FAULT_EVENT_ID = 1
FAULT_BLOCK_ID = 2
FAULT_EXPOSURE = 3
FAULT_RANGE = 4
FAULT_REPEATED = 5
FAULT_ORDER = 6
FAULT_NOT_FINITE = 7
FAULT_NEGATIVE = 8
FAULT_TERMINATOR = 9
FAULT_REOPENED = 10
FAULT_EVENT_ORDER = 11
FAULT_BLOCK_REPEATED = 12
FAULT_ITEM_UNKNOWN = 13

# What to do with a loss that is NaN or infinite.
NAN_ERROR = 0
NAN_ZERO = 1
NAN_DROP = 2

LANES = 64
"""Partial sums a total is split into. Elementwise sums of this many lanes vectorise
without reassociation, so a result is the same to the last bit on any machine."""

SEEN_PAGE_BITS = 12
"""log2 of the event ids in one page of the seen-events bitmap."""
SEEN_PAGE_BYTES = (1 << SEEN_PAGE_BITS) // 8

LEDGER_STRETCHES = 1
"""The losses of each block are copied."""
LEDGER_REFERENCES = 2
"""The place of each block in its stream is noted."""

RULES = np.dtype(
    [
        ("samples", "i8"),  # len_sample
        ("width", "i8"),  # bytes of a loss
        ("summary", "i8"),  # 1: blocks carry an exposure
        ("nan", "i8"),
        ("keep_negative", "i8"),
        ("any_order", "i8"),  # 1: sidx may come in any order within a block
        ("ascending", "i8"),  # 1: event ids must ascend
        ("events", "i8"),  # requested tables
        ("selt", "i8"),
        ("melt", "i8"),
        ("qelt", "i8"),
        ("mplt", "i8"),
        ("qplt", "i8"),
        ("ledger", "i8"),  # LEDGER_...: what of a block goes to the ledger
        ("stream", "i8"),  # index of the stream, for references to blocks
    ]
)
"""What the caller asked for; constant over a stream."""

STATE = np.dtype(
    [
        ("at", "i8"),  # word of the window at which the next block begins
        ("probe", "i8"),  # words after `at` known to hold no block end
        ("base", "i8"),  # byte offset in the stream of word 0 of the window
        ("event", "i8"),  # open event, 0 if none
        ("event_offset", "i8"),  # byte offset of its first block
        ("last_event", "i8"),  # the event opened last, 0 at the start
        ("closed_event", "i8"),  # the event before the open one, 0 if there is none
        ("event_blocks", "i8"),
        ("rate", "f8"),  # event rate of the open event
        ("events", "i8"),  # counts over the stream
        ("unplaced", "i8"),  # events without occurrence
        ("unexposed", "i8"),  # blocks with losses that MELT or QELT lack: their exposure is 0
        ("blocks", "i8"),
        ("pairs", "i8"),
        ("ascending", "i8"),  # 1 while every event id was above the one before
        ("serial", "i8"),  # stamp of the open event in the block table
        ("logged", "i8"),  # block ids of the open event in the log
        ("mean_sum", "f8"),  # totals of the open event
        ("max_sum", "f8"),
        ("has_max", "i8"),
        ("exposure_sum", "f8"),
        ("has_exposure", "i8"),
        ("selt_rows", "i8"),  # rows waiting in the tables
        ("melt_rows", "i8"),
        ("qelt_rows", "i8"),
        ("mplt_rows", "i8"),
        ("qplt_rows", "i8"),
        ("events_rows", "i8"),
        ("ledger_words", "i8"),  # words of stretches in the ledger's memory
        ("needed", "i8"),
        ("fault", "i8"),
        ("fault_offset", "i8"),
        ("fault_event", "i8"),
        ("fault_block", "i8"),
        ("fault_sidx", "i8"),
        ("fault_value", "f8"),
    ]
)
"""Where a pass over a stream stands; owned by the caller."""

BLOCK = np.dtype(
    [
        ("event", "i8"),
        ("id", "i8"),
        ("exposure", "f8"),
        ("next", "i8"),  # word of the window after the block
        ("pairs", "i8"),  # pairs in scratch, in the order they came
        ("first", "i8"),  # first sample in scratch
        ("count", "i8"),  # samples in scratch
        ("negatives", "i8"),  # samples below zero, -0.0 included
        ("positives", "i8"),  # samples above zero
        ("mean", "f8"),  # sidx -1, 0 if absent
        ("max_loss", "f8"),  # sidx -5, 0 if absent
        ("has_max", "i8"),
        ("tiv", "f8"),  # sidx -3, 0 if absent
        ("has_tiv", "i8"),
    ]
)
"""The block last read, its pairs unpacked into scratch."""


def scratch_size(samples: int) -> int:
    """Pairs of scratch that a block of ``samples`` samples needs.

    As received and again as samples only, with a lane group to spare because
    unpacking works in groups.
    """
    return 2 * (samples + 6) + LANES


class Scratch(NamedTuple):
    """Memory that means nothing between two blocks."""

    block: Record
    """The block last read."""
    sidx: Sidx
    """Sample ids of the block, shape (scratch_size(len_sample),)."""
    bits: Bits
    """Losses of the block as integers, same shape."""
    losses: Losses
    """The same memory as ``bits``, as floats."""
    limits: Bits
    """Bit pattern of infinity, mask of all bits but the sign, and 0; shape (3,)."""
    marks: Flags
    """All zero, shape (len_sample + 1,)."""
    work: Losses
    """For reordering, shape (2 * len_sample,)."""
    work_bits: Bits
    """The same memory as integers."""
    buckets: npt.NDArray[np.int32]
    """Where values belong, shape (len_sample,)."""
    counts: npt.NDArray[np.int32]
    """Values in each bucket, and which buckets are chosen."""
    lanes: Floats
    """Partial sums, shape (LANES,)."""
    ranks: Ranks
    """Shape (requested ranks,)."""
    picked: Losses
    """Shape (requested ranks,)."""
    stack: Ranks
    """For selection, shape (4 * STACK,)."""


class Seen(NamedTuple):
    """Which events the stream had, and which blocks the open event."""

    directory: npt.NDArray[np.int32]
    """Page number of each range of event ids, 0 where none exists."""
    pages: Flags
    """Bitmap, shape (pages, SEEN_PAGE_BYTES); row 0 is unused."""
    log: npt.NDArray[np.int32]
    """Block ids of the open event in the order they came."""
    table: Ranks
    """The same ids hashed, twice as long, stamped with the event's serial."""


class Totals(NamedTuple):
    """The open event's total per sample over its blocks."""

    sums: Floats
    """Total of sample s at s - 1, padded to whole pages of LANES."""
    touched: Flags
    """1 for each page that a sample was added to."""


class Parameters(NamedTuple):
    """What the reports need besides the stream; constant over it."""

    rate_ids: npt.NDArray[np.int32]
    """Events with a rate, ascending; may be empty."""
    rates: Floats
    """Of these, and of every other event; shape (events + 1,)."""
    quantiles: npt.NDArray[np.float32]
    """Requested quantiles, in the order they are printed; may be empty."""
    positions: Ranks
    """Index in ``ranks`` of the order statistics below and above each quantile,
    shape (quantiles, 2)."""
    fractions: Losses
    """How far each quantile lies between the two, in the stream's float type."""
    ranks: Ranks
    """Requested ranks of the sorted samples, 0-based, ascending."""
    occurring: npt.NDArray[np.int32]
    """Events that have occurrences, ascending; empty without a file of them."""


class Tables(NamedTuple):
    """Room for rows, by the report they are for; empty where they are not needed.

    Rows for reports of periods are those of an event that happens once.
    """

    selt: Rows
    selt_words: Words
    """The same memory as ``selt``, as words."""
    melt: Rows
    qelt: Rows
    mplt: Rows
    qplt: Rows
    events: Rows
