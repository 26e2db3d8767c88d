"""Range and conditional requests on content of a known length (RFC 9110, sections 13-14)."""

from __future__ import annotations

import re
from typing import Protocol

from app.errors import DataChangedError, RangeError

_TAG = re.compile(r'(?:W/)?"[^"]*"')
"""An entity tag; it may hold commas."""
_ONE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


class Fields(Protocol):
    """Request headers; names are case-insensitive."""

    def get(self, key: str) -> str | None:
        """Return the value of a header; None if it is absent."""


def requested_range(headers: Fields, length: int, etag: str) -> tuple[int, int] | None:
    """Return the requested (start, stop) in bytes; None for the whole content.

    As the standard demands, a malformed Range, several ranges, or an If-Range with another
    tag select the whole content.

    Raises:
        RangeError: the range does not overlap the content.
    """
    text = headers.get("range")
    if text is None or headers.get("if-range") not in {None, etag}:
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


def not_modified(headers: Fields, etag: str) -> bool:
    """Evaluate the conditions of a request before its Range: whether the client's copy is current.

    Raises:
        DataChangedError: the content is no version that If-Match allows.
    """
    wanted = headers.get("if-match")
    if wanted is not None and wanted.strip() != "*" and etag not in _TAG.findall(wanted):
        raise DataChangedError(
            "the content is another version than If-Match allows",
            hint="Without If-Match the answer is the present version, and names it in ETag",
            etag=etag,
        )
    known = headers.get("if-none-match")
    if known is None:
        return False
    return known.strip() == "*" or etag in {t.removeprefix("W/") for t in _TAG.findall(known)}
