"""Reading one block: find its end, unpack its pairs into scratch, check every one.

A block is a short header, pairs in any number, and a pair whose sidx is 0; nothing
says beforehand how long it is. As 32-bit words (an 8-byte loss takes two)::

    event  id  [exposure]  sidx loss  sidx loss  ...  0 0
    |- header_words ----|  |- pairs, stride words each -| end

So a block is read in two passes over memory that stays in the first-level cache.
Each is simple enough to be done in vectors; one loop that did both would not be:

1. ``find_and_unpack`` looks for the terminator and separates the interleaved pairs
   before it, 32 at a time: sidx into one array, the bits of the losses into another.
   Scratch holds those bits as integers and, as a second view of the same memory, as
   floats. The rest of a window, and a block that was cut, are left to ``find_end``
   and ``unpack``.
2. ``_accept_clean`` reads the special pairs, which come first in every clean block,
   and ``_summarise`` reduces the samples to a handful of flags: do they ascend, is
   one not finite, how many are positive, how many negative.

Nearly every block of a real stream is clean, and costs nothing more. Any other is
walked pair by pair: ``_find_pair_fault`` names the first pair that breaks a rule,
and if none does, because the caller's policy allows samples in any order or losses
that are not finite, ``_accept_repaired`` brings the block into the clean form.
Consumers therefore see one layout of scratch: the pairs as received in
``[0, pairs)``, the samples alone and contiguous in ``[first, first + count)``.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inlined, kernel, subkernel
from ..format import SIDX_LOWEST, SIDX_MAX_LOSS, SIDX_MEAN, SIDX_TIV, SPECIALS
from . import layout
from .layout import Bits, Flags, Losses, Record, Scratch, Sidx, Words
from .unpacking import LOW_WORD, find_and_unpack, find_end, unpack


@inlined
def is_unordered(sidx: Sidx) -> int:
    """Whether one of the sample ids is not above the one before."""
    unordered = np.int32(0)
    for i in range(1, len(sidx)):
        unordered = np.int32(unordered | np.int32(sidx[i] <= sidx[i - 1]))
    return int(unordered)


@subkernel
def _count_negatives(bits: Bits) -> int:
    negatives = layout.ZERO
    for i in range(len(bits)):
        negatives += int(bits[i] < 0)
    return negatives


@inlined
def _summarise(first: int, last: int, scratch: Scratch) -> tuple[int, int]:
    """Count samples [first, last) by sign; return whether one does not ascend, is not finite.

    Losses are compared as integers, which order like the floats they encode if none is
    negative. Every result is cast back to the type of the bits: the compiler would add up
    32 bits in 64, and so handle half as many at a time. The second result is not right if
    losses are negative, which is counted.
    """
    bits = scratch.bits[first:last]
    least = scratch.limits[2]
    largest = scratch.limits[2]
    positives = scratch.limits[2]
    for i in range(len(bits)):
        b = bits[i]
        least = min(least, b)
        largest = max(largest, b)
        positives = bits.dtype.type(positives + bits.dtype.type(b > 0))
    block = scratch.block[0]
    block["positives"] = positives
    block["negatives"] = _count_negatives(bits) if least < 0 else 0
    return is_unordered(scratch.sidx[first:last]), int(largest >= scratch.limits[0])


@subkernel
def report_fault(
    state: Record, code: int, offset: int, event: int, ident: int, sidx: int, value: float
) -> int:
    """Write a fault down for the caller; always returns FAULT."""
    s = state[0]
    s["fault"] = code
    s["fault_offset"] = offset
    s["fault_event"] = event
    s["fault_block"] = ident
    s["fault_sidx"] = sidx
    s["fault_value"] = value
    return layout.FAULT


@subkernel
def _pair_fault(
    i: int, sidx: Sidx, losses: Losses, rules: Record, marks: Flags, specials: int, last: int
) -> int:
    """What is wrong with pair ``i``, given the special ids and the sample before it."""
    r = rules[0]
    s = sidx[i]
    if s < SIDX_LOWEST or s > r["samples"]:
        return layout.FAULT_RANGE
    if s < 0:
        if specials & (1 << -s):
            return layout.FAULT_REPEATED
        if last > 0 and not r["any_order"]:
            return layout.FAULT_ORDER
    elif marks[s]:
        return layout.FAULT_REPEATED
    elif s < last and not r["any_order"]:
        return layout.FAULT_ORDER
    x = losses[i]
    if not (abs(x) < np.inf):
        return layout.FAULT_NOT_FINITE if r["nan"] == layout.NAN_ERROR else 0
    if x < 0 and not r["keep_negative"]:
        return layout.FAULT_NEGATIVE
    return 0


@subkernel
def _first_fault(
    n: int, sidx: Sidx, losses: Losses, rules: Record, marks: Flags
) -> tuple[int, int]:
    """Walk the pairs; return (pair, fault) of the first that is wrong, or (n, 0)."""
    specials = 0
    last = 0
    code = 0
    i = layout.ZERO
    while i < n:
        code = _pair_fault(i, sidx, losses, rules, marks, specials, last)
        if code:
            break
        s = int(sidx[i])
        if s < 0:
            specials |= 1 << -s
        else:
            marks[s] = 1
            last = s
        i += 1
    for j in range(i):
        if sidx[j] > 0:
            marks[sidx[j]] = 0
    return i, code


@subkernel
def _repair(n: int, sidx: Sidx, bits: Bits, losses: Losses, drop: bool) -> int:
    """Zero or drop the losses that are not finite; return the pairs that remain."""
    k = 0
    for i in range(n):
        finite = abs(losses[i]) < np.inf
        if not finite and drop:
            continue
        sidx[k] = sidx[i]
        bits[k] = bits[i] if finite else 0
        k += 1
    return k


@inlined
def _take_special(sidx: int, loss: float, block: Record) -> None:
    """Note a special pair in the block record."""
    b = block[0]
    if sidx == SIDX_MEAN:
        b["mean"] = loss
    elif sidx == SIDX_MAX_LOSS:
        b["max_loss"] = loss
        b["has_max"] = 1
    elif sidx == SIDX_TIV:
        b["tiv"] = loss
        b["has_tiv"] = 1


@inlined
def _clear_specials(block: Record) -> None:
    b = block[0]
    b["mean"] = 0.0
    b["max_loss"] = 0.0
    b["has_max"] = 0
    b["tiv"] = 0.0
    b["has_tiv"] = 0


@inlined
def _accept_clean(n: int, rules: Record, scratch: Scratch) -> bool:
    """Fill the block record if nothing about the n pairs is unusual."""
    b = scratch.block[0]
    sidx = scratch.sidx
    _clear_specials(scratch.block)
    specials = 0
    k = 0
    while k < n and sidx[k] < 0:
        s = int(sidx[k])
        x = np.float64(scratch.losses[k])
        if s < SIDX_LOWEST or specials & (1 << -s) or not (0.0 <= x < np.inf):
            return False
        specials |= 1 << -s
        _take_special(s, x, scratch.block)
        k += 1
    b["pairs"] = n
    b["first"] = k
    b["count"] = n - k
    unordered, odd = _summarise(k, n, scratch)
    beyond = n > k and sidx[n - 1] > rules[0]["samples"]
    return not (unordered or odd or beyond or b["negatives"] > 0)


@subkernel
def _accept_repaired(n: int, rules: Record, scratch: Scratch) -> None:
    """Fill the block record from n pairs that the policies allow, in any order."""
    b = scratch.block[0]
    sidx = scratch.sidx
    bits = scratch.bits
    if rules[0]["nan"] != layout.NAN_ERROR:
        n = _repair(n, sidx, bits, scratch.losses, rules[0]["nan"] == layout.NAN_DROP)
    _clear_specials(scratch.block)
    # The samples again, after the pairs as received, so that they are contiguous.
    k = n
    for i in range(n):
        if sidx[i] > 0:
            sidx[k] = sidx[i]
            bits[k] = bits[i]
            k += 1
        else:
            _take_special(int(sidx[i]), np.float64(scratch.losses[i]), scratch.block)
    b["pairs"] = n
    b["first"] = n
    b["count"] = k - n
    _summarise(n, k, scratch)


@inlined
def _read_header(words: Words, rules: Record, state: Record, scratch: Scratch) -> int:
    """Read and check a block's ids and exposure; OK or FAULT."""
    r = rules[0]
    b = scratch.block[0]
    at = state[0]["at"]
    offset = state[0]["base"] + 4 * at
    event = int(words[at])
    ident = int(words[at + 1])
    b["event"] = event
    b["id"] = ident
    b["exposure"] = np.nan
    if event < 1:
        return report_fault(state, layout.FAULT_EVENT_ID, offset, event, ident, 0, 0.0)
    if ident < 1:
        return report_fault(state, layout.FAULT_BLOCK_ID, offset + 4, event, ident, 0, 0.0)
    if r["summary"]:
        if r["width"] == 4:
            scratch.bits[0] = words[at + 2]
        else:
            low = np.int64(words[at + 2]) & LOW_WORD
            scratch.bits[0] = (np.int64(words[at + 3]) << 32) | low
        exposure = np.float64(scratch.losses[0])
        b["exposure"] = exposure
        if not (0.0 <= exposure < np.inf):
            return report_fault(state, layout.FAULT_EXPOSURE, offset + 8, event, ident, 0, exposure)
    return layout.OK


@inlined
def header_words(rules: Record) -> int:
    """Words of a block before its first pair."""
    r = rules[0]
    return int(2 + (r["width"] >> 2) * r["summary"])


@subkernel
def _find_pair_fault(n: int, rules: Record, state: Record, scratch: Scratch) -> int:
    """Report the first of n pairs that is wrong: FAULT, or OK if none is."""
    i, code = _first_fault(n, scratch.sidx, scratch.losses, rules, scratch.marks)
    if code == 0:
        return layout.OK
    offset = state[0]["base"] + 4 * (state[0]["at"] + header_words(rules))
    offset += i * (4 + rules[0]["width"])
    if code == layout.FAULT_NOT_FINITE or code == layout.FAULT_NEGATIVE:
        offset += 4
    b = scratch.block[0]
    loss = np.float64(scratch.losses[i])
    return report_fault(state, code, offset, b["event"], b["id"], int(scratch.sidx[i]), loss)


@inlined
def _check_end(words: Words, at: int, rules: Record, state: Record, block: Record) -> int:
    """Check that the pair at word ``at``, whose sidx is 0, has no loss."""
    dirty = words[at + 1] != 0
    if rules[0]["width"] == 8:
        dirty = dirty or words[at + 2] != 0
    if not dirty:
        return layout.OK
    offset = state[0]["base"] + 4 * at + 4
    event = block[0]["event"]
    return report_fault(state, layout.FAULT_TERMINATOR, offset, event, block[0]["id"], 0, 0.0)


@inlined
def take_block(words: Words, stop: int, rules: Record, state: Record, scratch: Scratch) -> int:
    """Read and check the block at the cursor, without moving the cursor.

    Args:
        words: the window, int32.
        stop: words of the window that hold data.
        rules: RULES record.
        state: STATE record; changed only when a fault is found or bytes are missing.
        scratch: receives the block.

    Returns:
        OK, MORE or FAULT.
    """
    s = state[0]
    at = s["at"]
    body = at + header_words(rules)
    if body > stop:
        return layout.MORE
    if _read_header(words, rules, state, scratch) == layout.FAULT:
        return layout.FAULT
    width = rules[0]["width"]
    stride = (4 + width) >> 2
    # A block that was cut is searched for its end from where the last search
    # stopped, so that feeding it in small pieces stays linear.
    limit = body + (rules[0]["samples"] + SPECIALS + 1) * stride
    last = min(stop, limit)
    if s["probe"] == 0:
        end = find_and_unpack(words, body, last, width, scratch)
    else:
        end = find_end(words, max(body, at + s["probe"]), last, stride)
        unpack(words, body, end, width, scratch.sidx, scratch.bits)
    n = (end - body) // stride
    if end == limit:
        # More pairs than there are ids: one of them must be wrong.
        return _find_pair_fault(n, rules, state, scratch)
    if end + stride > stop:
        s["probe"] = end - at
        return layout.MORE
    block = scratch.block
    block[0]["next"] = end + stride
    if not _accept_clean(n, rules, scratch):
        if _find_pair_fault(n, rules, state, scratch) == layout.FAULT:
            return layout.FAULT
        _accept_repaired(n, rules, scratch)
    return _check_end(words, end, rules, state, block)


@kernel
def read_block(words: Words, stop: int, rules: Record, state: Record, scratch: Scratch) -> int:
    """Read a block as :func:`take_block`, called from Python."""
    return take_block(words, stop, rules, state, scratch)


@kernel
def inspect_tail(words: Words, stop: int, rules: Record, state: Record, scratch: Scratch) -> int:
    """Look for a fault in the part of a block that is there at the end of a stream.

    Returns -FAULT, or the number of whole pairs after the block's header (0 if not
    even the header is whole); the ids are in the block record then.
    """
    at = state[0]["at"]
    body = at + header_words(rules)
    if body > stop:
        return 0
    if _read_header(words, rules, state, scratch) == layout.FAULT:
        return -layout.FAULT
    stride = (4 + rules[0]["width"]) >> 2
    n = min((stop - body) // stride, rules[0]["samples"] + SPECIALS + 1)
    end = body + n * stride
    unpack(words, body, end, rules[0]["width"], scratch.sidx, scratch.bits)
    if _find_pair_fault(n, rules, state, scratch) == layout.FAULT:
        return -layout.FAULT
    return int(n)
