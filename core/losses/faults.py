"""From a kernel's fault record to the error a person can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
    message: Callable[[Fault, StreamHeader], str]
    hint: str | None = None


def _loss(fault: Fault) -> str:
    return f"the loss of sidx {fault.sidx} is {fault.value:g}"


_RULES: dict[int, _Rule] = {
    layout.FAULT_EVENT_ID: _Rule(
        errors.EventIdError,
        lambda f, _h: f"a block begins with event id {f.event}, but ids begin at 1",
        "Either the bytes from here on are not part of the stream, or an earlier block is damaged",
    ),
    layout.FAULT_BLOCK_ID: _Rule(
        errors.BlockIdError,
        lambda f, h: f"the {h.kind.block_noun} id is {f.block}, but ids begin at 1",
    ),
    layout.FAULT_EXPOSURE: _Rule(
        errors.ExposureError,
        lambda f, _h: f"the exposure is {f.value:g}, but must be finite and not negative",
    ),
    layout.FAULT_RANGE: _Rule(
        errors.SampleRangeError,
        lambda f, h: f"sidx {f.sidx} is outside {SIDX_LOWEST} to {h.len_sample}",
    ),
    layout.FAULT_REPEATED: _Rule(
        errors.SampleRepeatedError, lambda f, _h: f"sidx {f.sidx} comes twice in one block"
    ),
    layout.FAULT_ORDER: _Rule(
        errors.SampleOrderError,
        lambda f, _h: f"sidx {f.sidx} comes after a higher one",
        "If its writer does not sort samples, read the stream with sample_order=any",
    ),
    layout.FAULT_NOT_FINITE: _Rule(
        errors.LossNotFiniteError,
        lambda f, _h: _loss(f),
        "Repair the source, or read such losses as 0 with nan=zero or as absent with nan=drop",
    ),
    layout.FAULT_NEGATIVE: _Rule(
        errors.LossNegativeError,
        lambda f, _h: _loss(f),
        "If negative losses are meant, read the stream with negative=keep",
    ),
    layout.FAULT_TERMINATOR: _Rule(
        errors.TerminatorError,
        lambda _f, _h: "the pair that ends the block (sidx 0) carries a loss",
        "An end is all zeros; the bytes before it may be damaged",
    ),
    layout.FAULT_REOPENED: _Rule(
        errors.EventReopenedError,
        lambda f, _h: f"event {f.event} begins again after it has ended",
        "An event must be one run of blocks in one stream: its totals would be wrong otherwise",
    ),
    layout.FAULT_EVENT_ORDER: _Rule(
        errors.EventOrderError,
        lambda f, _h: f"event {f.event} comes after a higher one, but event order was asked for",
        "Ask for the order received, or sort the stream",
    ),
    layout.FAULT_BLOCK_REPEATED: _Rule(
        errors.BlockRepeatedError,
        lambda f, h: f"{h.kind.block_noun} {f.block} comes twice in event {f.event}",
    ),
    layout.FAULT_ITEM_UNKNOWN: _Rule(
        errors.ItemUnknownError,
        lambda f, h: f"{h.kind.block_noun} {f.block} has no summary in set {f.sidx}",
        "The summary xref is of another perspective or portfolio, or lacks the item",
    ),
}

WIDTH_SENSITIVE = range(layout.FAULT_EVENT_ID, layout.FAULT_TERMINATOR + 1)
"""Faults that reading with the wrong float width can look like."""


def fault_error(
    fault: Fault, header: StreamHeader, source: str | None, hint: str | None = None
) -> errors.StreamError:
    """The error for a fault; ``hint`` replaces the usual one."""
    rule = _RULES[fault.code]
    details: dict[str, Any] = {"hint": hint or rule.hint, "source": source}
    return rule.error(
        rule.message(fault, header),
        offset=fault.offset,
        event=fault.event if fault.event > 0 else None,
        block=fault.block if fault.block > 0 and fault.event > 0 else None,
        **details,
    )
