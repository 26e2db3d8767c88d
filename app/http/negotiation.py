"""What a client accepts, out of its headers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from app.errors import NotAcceptableError

from .compression import CODINGS

_FORMAT_OF = {
    "text/csv": "csv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "application/octet-stream": "bin",
    "application/vnd.thalweg.frames": "frames",
}


class Headers(Protocol):
    """Headers of a request, names in any case."""

    def __contains__(self, name: object, /) -> bool:
        """Whether a header is there."""

    def getlist(self, key: str) -> list[str]:
        """Return the values of all lines of a header."""

    def get(self, key: str) -> str | None:
        """Return the value of the first line of a header; None if it is absent."""


def joined(headers: Headers, name: str) -> str | None:
    """A header, which may come in several lines; None if it is absent."""
    return ", ".join(headers.getlist(name)) if name in headers else None


def _preferences(header: str) -> Iterable[tuple[str, float]]:
    """Names and their quality, the most wanted first."""
    found = []
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
            found.append((name, quality))
    return sorted(found, key=lambda pair: -pair[1])


def choose_format(accept: str | None, formats: Sequence[str]) -> str:
    """The format a client likes best.

    Args:
        accept: the Accept header, None if absent.
        formats: what can be made, the default first.

    Raises:
        NotAcceptableError: none of them.
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
            for media, made in _FORMAT_OF.items():
                fits = media.startswith(family) and made in formats and made not in refused
                if fits and (family or made == formats[0]):
                    return made
    raise NotAcceptableError(
        f"none of the formats in Accept, {accept[:200]!r}, can be made here",
        hint=f"There are {', '.join(formats)}; format=… overrides Accept",
    )


def choose_coding(accept_encoding: str | None, codings: Sequence[str]) -> str | None:
    """The compression a client likes best, None for none.

    Args:
        accept_encoding: the header, None if absent.
        codings: what can be made, the best first.
    """
    if not accept_encoding:
        return None
    wanted = dict(_preferences(accept_encoding))
    anything = wanted.get("*", 0.0)
    qualities = {name: wanted.get(name, anything) for name in codings}
    best = max(codings, key=lambda name: qualities[name])
    # On a tie with no compression at all, compression it is: the client asked for it.
    if qualities[best] <= 0 or qualities[best] < wanted.get("identity", 0.0):
        return None
    return best


def answer_coding(headers: Headers) -> str | None:
    """The compression of the answer to a request with these headers, None for none."""
    return choose_coding(joined(headers, "accept-encoding"), CODINGS)
