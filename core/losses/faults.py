"""From a kernel's fault record to the error a person can act on."""

from __future__ import annotations

from typing import NamedTuple

from .. import errors
from ._kernels import layout
from .events import StreamHeader
from .format import SIDX_LOWEST


class Fault(NamedTuple):
    """What a kernel wrote down about the first thing that is wrong."""

    code: int
    offset: int
    event: int
    block: int
    sidx: int
    value: float


class _Rule(NamedTuple):
    error: type[errors.StreamError]
    message: str
    """With fields of the fault f and the header h in braces."""
    hint: str | None = None


_RULES: dict[int, _Rule] = {
    layout.FAULT_EVENT_ID: _Rule(
        errors.EventIdError,
        "a block begins with event id {f.event}, but ids begin at 1",
        "Either the bytes from here on are not part of the stream, or an earlier block is damaged",
    ),
    layout.FAULT_BLOCK_ID: _Rule(
        errors.BlockIdError,
        "the {h.kind.block_noun} id is {f.block}, but ids begin at 1",
    ),
    layout.FAULT_EXPOSURE: _Rule(
        errors.ExposureError,
        "the exposure is {f.value:g}, but must be finite and not negative",
    ),
    layout.FAULT_RANGE: _Rule(
        errors.SampleRangeError,
        "sidx {f.sidx} is outside {lowest} to {h.len_sample}",
    ),
    layout.FAULT_REPEATED: _Rule(
        errors.SampleRepeatedError, "sidx {f.sidx} comes twice in one block"
    ),
    layout.FAULT_ORDER: _Rule(
        errors.SampleOrderError,
        "sidx {f.sidx} comes after a higher one",
        "If its writer does not sort samples, read the stream with sample_order=any",
    ),
    layout.FAULT_NOT_FINITE: _Rule(
        errors.LossNotFiniteError,
        "the loss of sidx {f.sidx} is {f.value:g}",
        "Repair the source, or read such losses as 0 with nan=zero or as absent with nan=drop",
    ),
    layout.FAULT_NEGATIVE: _Rule(
        errors.LossNegativeError,
        "the loss of sidx {f.sidx} is {f.value:g}",
        "If negative losses are meant, read the stream with negative=keep",
    ),
    layout.FAULT_TERMINATOR: _Rule(
        errors.TerminatorError,
        "the pair that ends the block (sidx 0) carries a loss",
        "An end is all zeros; the bytes before it may be damaged",
    ),
    layout.FAULT_REOPENED: _Rule(
        errors.EventReopenedError,
        "event {f.event} begins again after it has ended",
        "An event must be one run of blocks in one stream: its totals would be wrong otherwise",
    ),
    layout.FAULT_EVENT_ORDER: _Rule(
        errors.EventOrderError,
        "event {f.event} comes after a higher one, but event order was asked for",
        "Ask for the order received, or sort the stream",
    ),
    layout.FAULT_BLOCK_REPEATED: _Rule(
        errors.BlockRepeatedError,
        "{h.kind.block_noun} {f.block} comes twice in event {f.event}",
    ),
    layout.FAULT_ITEM_UNKNOWN: _Rule(
        errors.ItemUnknownError,
        "{h.kind.block_noun} {f.block} has no summary in set {f.sidx}",
        "The summary xref is of another perspective or portfolio, or lacks the item",
    ),
}

WIDTH_SENSITIVE = range(layout.FAULT_EVENT_ID, layout.FAULT_TERMINATOR + 1)
"""Faults that reading with the wrong float width can look like."""


def second_stream(offset: int, source: str | None) -> errors.ConcatenatedError:
    """The error for the header of a stream in the place of a block."""
    return errors.ConcatenatedError(
        "a second stream begins",
        offset=offset,
        hint="Streams joined by cat are not one stream: give each as its own input or partition",
        source=source,
    )


def fault_error(
    fault: Fault, header: StreamHeader, source: str | None, hint: str | None = None
) -> errors.StreamError:
    """The error for a fault; ``hint`` replaces the usual one."""
    rule = _RULES[fault.code]
    return rule.error(
        rule.message.format(f=fault, h=header, lowest=SIDX_LOWEST),
        offset=fault.offset,
        event=fault.event if fault.event > 0 else None,
        block=fault.block if fault.block > 0 and fault.event > 0 else None,
        hint=hint or rule.hint,
        source=source,
    )
