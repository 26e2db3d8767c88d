"""Records and scratch memory of kernels, built from a header and a policy."""

from __future__ import annotations

import numpy as np

from ._kernels import layout
from ._kernels.layout import Record, Scratch
from ._kernels.quantiles import BUCKETS, STACK, TALLIES
from .events import StreamHeader
from .format import LOSS_DTYPES, Kind
from .policy import Policy

_NAN_CODES = {"error": layout.NAN_ERROR, "zero": layout.NAN_ZERO, "drop": layout.NAN_DROP}


def make_scratch(samples: int, float_width: int, ranks: int = 0) -> Scratch:
    """Allocate scratch memory for blocks of up to ``samples`` samples."""
    losses = np.zeros(layout.scratch_size(samples), LOSS_DTYPES[float_width])
    bits = losses.view(f"i{float_width}")
    work = np.zeros(2 * samples + layout.LANES, losses.dtype)
    # Both take more than all else that a small stream needs.
    buckets, stack = (BUCKETS, STACK) if ranks else (0, 1)
    infinity = np.array([np.inf], losses.dtype).view(bits.dtype)[0]
    return Scratch(
        block=np.zeros(1, layout.BLOCK),
        sidx=np.zeros(len(losses), np.int32),
        bits=bits,
        losses=losses,
        limits=np.array([infinity, np.iinfo(bits.dtype).max, 0], bits.dtype),
        marks=np.zeros(samples + 1, np.uint8),
        work=work,
        work_bits=work.view(bits.dtype),
        buckets=np.zeros(samples, np.int32),
        counts=np.zeros((TALLIES + 1) * buckets, np.int32),
        lanes=np.zeros(layout.LANES),
        ranks=np.zeros(ranks, np.int64),
        picked=np.zeros(ranks, losses.dtype),
        stack=np.zeros(4 * stack, np.int64),
    )


def scratch_bytes(samples: int, float_width: int) -> int:
    """About the bytes of scratch memory, without those of order statistics."""
    return samples * (9 + 3 * float_width)


def make_rules(header: StreamHeader, policy: Policy) -> Record:
    """The RULES record of a stream, with no report requested yet."""
    rules = np.zeros(1, layout.RULES)
    rules["samples"] = header.len_sample
    rules["width"] = header.float_width
    rules["summary"] = header.kind is Kind.SUMMARY
    rules["nan"] = _NAN_CODES[policy.nan]
    rules["keep_negative"] = policy.negative == "keep"
    rules["any_order"] = policy.sample_order == "any"
    rules["ascending"] = policy.event_order == "ascending"
    return rules
