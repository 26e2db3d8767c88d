"""Range and conditional requests on content of a known length (RFC 9110, sections 13-14)."""

from __future__ import annotations

import re

from app.errors import DataChangedError, RangeError

from .negotiation import Headers, joined

_TAG = re.compile(r'(?<![^\s,])(?:\*|(?:W/)?"[^"]*")(?![^\s,])')
"""A member of a list of entity tags: ``*``, or a tag, which may hold commas."""
_ONE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


def requested_range(headers: Headers, length: int, etag: str) -> tuple[int, int] | None:
    """Return the requested (start, stop) in bytes; None for the whole content.

    As the standard demands, a malformed Range, several ranges, or an If-Range with another
    tag select the whole content.

    Raises:
        RangeError: the range does not overlap the content.
    """
    text = joined(headers, "range")
    if text is None or joined(headers, "if-range") not in {None, etag}:
        return None
    match = _ONE.fullmatch(text.strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        start, stop = max(length - int(match[2][:20]), 0), length
    else:
        start = int(match[1][:20])
        stop = length if match[2] == "" else min(int(match[2][:20]) + 1, length)
        if match[2] != "" and int(match[2][:20]) < start:
            return None
    if start >= stop:
        raise RangeError(
            f"the range starts at byte {start}, but there are {length} bytes", length=length
        )
    return start, stop


def not_modified(headers: Headers, etag: str) -> bool:
    """Evaluate the conditions of a request before its Range: whether the client's copy is current.

    The lines of a header are one list. Only strong tags match If-Match; for If-None-Match a
    weak tag is as good (RFC 9110, section 8.8.3.2).

    Raises:
        DataChangedError: the content is no version that If-Match allows.
    """
    wanted = joined(headers, "if-match")
    if wanted is not None and not {"*", etag} & set(_TAG.findall(wanted)):
        raise DataChangedError(
            "the content is another version than If-Match allows",
            hint="Without If-Match the answer is the present version, and names it in ETag",
            etag=etag,
        )
    known = _TAG.findall(joined(headers, "if-none-match") or "")
    return not {"*", etag}.isdisjoint(tag.removeprefix("W/") for tag in known)
