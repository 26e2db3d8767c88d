"""What requests ask of answers: format and coding, conditions and ranges (RFC 9110, 12 to 14)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from starlette.datastructures import Headers as Headers  # noqa: PLC0414 - for those who ask for them

from app.errors import DataChangedError, NotAcceptableError, RangeError

from .compression import CODINGS
from .media_types import MEDIA_TYPES, PICTURE_TYPES

_FORMAT_OF = {
    **{media.partition(";")[0]: name for name, media in (MEDIA_TYPES | PICTURE_TYPES).items()},
    **dict.fromkeys(("application/ndjson", "application/jsonl"), "ndjson"),
}

_TAG = re.compile(r'(?<![^\s,])(?:\*|(?:W/)?"[^"]*")(?![^\s,])')
"""A member of a list of entity tags: ``*``, or a tag, which may hold commas."""
_ONE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII | re.IGNORECASE)


def joined(headers: Headers, name: str) -> str | None:
    """Return a header with its lines joined by commas; None if it is absent."""
    return ", ".join(headers.getlist(name)) if name in headers else None


def _preferences(header: str) -> Iterable[tuple[str, float]]:
    """Return (name, quality) pairs, best quality first."""
    pairs = []
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if name:
            pairs.append((name, quality))
    return sorted(pairs, key=lambda pair: -pair[1])


def choose_format(accept: str | None, formats: Sequence[str]) -> str:
    """Return the format that a client prefers.

    Args:
        accept: the Accept header, None if absent.
        formats: names of the available formats, the default first.

    Raises:
        NotAcceptableError: the client accepts none of them.
    """
    if not accept:
        return formats[0]
    refused = {_FORMAT_OF.get(name) for name, quality in _preferences(accept) if quality <= 0}
    for name, quality in _preferences(accept):
        if quality <= 0:
            continue
        known = _FORMAT_OF.get(name)
        if known in formats:
            return str(known)
        if name.endswith("/*"):
            family = name[:-1] if name != "*/*" else ""
            fits = {form for media, form in _FORMAT_OF.items() if media.startswith(family)}
            for form in formats:
                if form in fits - refused:
                    return form
    raise NotAcceptableError(
        f"none of the media types in Accept, {accept[:200]!r}, is available",
        hint=f"Choose from the formats {', '.join(formats)}; format=… overrides Accept",
    )


def choose_coding(accept_encoding: str | None, codings: Sequence[str]) -> str | None:
    """Return the content coding that a client prefers, None for identity.

    Args:
        accept_encoding: the Accept-Encoding header, None if absent.
        codings: the available codings, best first.
    """
    if not accept_encoding:
        return None
    accepted = dict(_preferences(accept_encoding))
    anything = accepted.get("*", 0.0)
    qualities = {name: accepted.get(name, anything) for name in codings}
    best = max(codings, key=lambda name: qualities[name])
    # On a tie with identity compression wins: the client offered it.
    if qualities[best] <= 0 or qualities[best] < accepted.get("identity", 0.0):
        return None
    return best


def answer_coding(headers: Headers) -> str | None:
    """Return the content coding of the answer to a request, None for identity."""
    return choose_coding(joined(headers, "accept-encoding"), CODINGS)


def requested_range(
    headers: Headers, length: int, etag: str, *, body: bool = True
) -> tuple[int, int] | None:
    """Return the requested (start, stop) in bytes; None for the whole content.

    As the standard demands, a malformed Range, several ranges, an If-Range with another tag, or
    a method other than GET, whose answers alone have a body, select the whole content.

    Raises:
        RangeError: the range does not overlap the content.
    """
    text = joined(headers, "range")
    if not body or text is None or joined(headers, "if-range") not in {None, etag}:
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
