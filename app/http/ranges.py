"""Range requests on something of a known length (RFC 9110, section 14)."""

from __future__ import annotations

import re
from typing import Protocol

from app.errors import RangeError

_ONE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


class Fields(Protocol):
    """Headers of a request, names in any case."""

    def get(self, key: str) -> str | None:
        """Return the value of a header; None if it is absent."""


def requested_range(headers: Fields, length: int, etag: str) -> tuple[int, int] | None:
    """(start, stop) that a request asks for; None for everything.

    A form that is not understood, several ranges, or an If-Range that does not fit, ask
    for everything: that is what the standard says.

    Raises:
        RangeError: nothing of it is there.
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
        raise RangeError(f"bytes from {start} of {length}", length=length)
    return start, stop


def not_modified(headers: Fields, etag: str) -> bool:
    """Whether the client has it already."""
    known = headers.get("if-none-match")
    if known is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return "*" in tags or etag in tags
