"""Positions in loss streams as tokens, and back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.errors import TokenForeignError, TokenMalformedError
from app.tokens import KIND_LOSSES, KeyRing, Token
from core.losses.events import StreamHeader
from core.losses.format import FLOAT_WIDTHS, ID_MAX, TYPES
from core.losses.position import Position

from .spool import Mark

NO_TAIL = Mark(Position())
_FIELDS = 10
_SIGN_BIT = 1 << 31


def identity_of(parts: tuple[bytes, ...]) -> bytes:
    """Digest of what makes two requests the same analysis, 8 bytes."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Makes and reads the tokens of one analysis."""

    keys: KeyRing
    identity: bytes

    def token(self, mark: Mark) -> str:
        """The token that goes on at a mark."""
        fingerprint = mark.digest.to_bytes(8, "little")
        return self.keys.sign(Token(KIND_LOSSES, self.identity, fingerprint, _state(mark)))

    def read(self, text: str) -> Mark:
        """The mark a token stands for.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: it is of a request for something else.
        """
        token = self.keys.verify(text).token
        if token.kind != KIND_LOSSES:
            raise TokenForeignError("the token is not of a loss stream")
        if token.identity != self.identity:
            raise TokenForeignError(
                "the token is of a request with other reports, inputs or options",
                hint="Post with the same query, except format, duplex and what is expected",
            )
        return read_mark(token)


def _state(mark: Mark) -> tuple[int, ...]:
    place = mark.position
    header = place.header
    if header is None:
        described: tuple[int, ...] = (0, 0, 0, 0, 0)
    else:
        summary_set = 0 if header.summary_set is None else header.summary_set & 0xFFFFFFFF
        described = (
            header.source,
            header.aggregation,
            header.float_width,
            header.len_sample,
            summary_set,
        )
    return (
        *described,
        place.offset,
        place.last_event,
        int(place.ascending),
        place.events,
        mark.tail,
    )


def read_mark(token: Token) -> Mark:
    """The mark in a verified token of a loss stream.

    Raises:
        TokenMalformedError: it holds something else.
    """
    if len(token.state) != _FIELDS:
        raise TokenMalformedError("the token does not hold a position in a loss stream")
    *described, offset, last_event, ascending, events, tail = token.state
    header = _header(*described)
    if (header is None and offset) or last_event > ID_MAX or ascending > 1:
        raise TokenMalformedError("the token holds a position that cannot be")
    position = Position(header, offset, last_event, bool(ascending), events)
    return Mark(position, tail, int.from_bytes(token.fingerprint, "little"))


def _header(
    source: int, aggregation: int, width: int, samples: int, summary_set: int
) -> StreamHeader | None:
    if source == 0:
        return None
    kind = TYPES.get((source, aggregation))
    if kind is None or width not in FLOAT_WIDTHS or samples < 1:
        raise TokenMalformedError("the token holds a stream header that cannot be")
    chosen = None
    if kind.value == "summary":
        chosen = summary_set - 2 * (summary_set & _SIGN_BIT)
    return StreamHeader(kind, aggregation, source, samples, chosen, width)


def describe(token: Token) -> dict[str, object]:
    """Describe the position in a verified token of a loss stream.

    Raises:
        TokenMalformedError: it holds something else.
    """
    mark = read_mark(token)
    place = mark.position
    return {
        "kind": "losses",
        "stream": None if place.header is None else place.header.describe(),
        "offset": place.offset,
        "last_event": place.last_event or None,
        "ascending": place.ascending,
        "events": place.events,
        "unfinished_bytes": mark.tail,
    }
