"""Tokens of loss streams: convert marks to tokens, and back.

The state of a token is ten numbers:

    source, aggregation, float_width, len_sample, summary_set,      the stream's header
    offset, last_event, ascending, events,                          the position
    tail                                                            bytes seen after it

The header is all zeros before it has been read. The digest of the tail takes the place of
the data fingerprint, because a posted stream has no other. See :mod:`.posting` for the
proof that they serve.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.errors import TokenForeignError, TokenMalformedError
from app.tokens import KIND_LOSSES, KeyRing, Token
from core.losses.events import Position, StreamHeader
from core.losses.format import FLOAT_WIDTHS, ID_MAX, TYPES

from .spool import Mark

_FIELDS = 10
_SIGN_BIT = 1 << 31
_MAX_NUMBER = 2**62
"""Largest offset and count: the engine adds to them in integers of 64 bits."""


def identity_of(parts: tuple[bytes, ...]) -> bytes:
    """Return a digest, 8 bytes, of the parts that define an analysis."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Creates and reads the tokens of one analysis.

    Args:
        keys: sign and verify.
        identity: digest of the analysis, 8 bytes.
    """

    keys: KeyRing
    identity: bytes

    def token(self, mark: Mark) -> str:
        """Return the token that resumes at a mark."""
        fingerprint = mark.digest.to_bytes(8, "little")
        return self.keys.sign(Token(KIND_LOSSES, self.identity, fingerprint, _state(mark)))

    def read(self, text: str) -> Mark:
        """Return the mark in a token.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: the token belongs to another analysis.
        """
        token = self.keys.verify(text).token
        if token.kind != KIND_LOSSES:
            raise TokenForeignError("the token does not belong to a loss stream")
        if token.identity != self.identity:
            raise TokenForeignError(
                "the token belongs to a request with other reports, inputs or options",
                hint="Post with the same query; only format, duplex, over_bound and"
                " declarations (expect_…) may differ",
            )
        return read_mark(token)


def _state(mark: Mark) -> tuple[int, ...]:
    position = mark.position
    header = position.header
    if header is None:
        fields: tuple[int, ...] = (0, 0, 0, 0, 0)
    else:
        summary_set = 0 if header.summary_set is None else header.summary_set & 0xFFFFFFFF
        fields = (
            header.source,
            header.aggregation,
            header.float_width,
            header.len_sample,
            summary_set,
        )
    return (
        *fields,
        position.offset,
        position.last_event,
        int(position.ascending),
        position.events,
        mark.tail,
    )


def read_mark(token: Token) -> Mark:
    """Return the mark in a verified token of a loss stream.

    Raises:
        TokenMalformedError: the state of the token is not a valid position.
    """
    if len(token.state) != _FIELDS:
        raise TokenMalformedError("the token does not hold a position in a loss stream")
    if max(token.state) > _MAX_NUMBER:
        raise TokenMalformedError("the token holds an impossible position")
    *fields, offset, last_event, ascending, events, tail = token.state
    header = _header(*fields)
    if (header is None and offset) or last_event > ID_MAX or ascending > 1:
        raise TokenMalformedError("the token holds an impossible position")
    position = Position(header, offset, last_event, bool(ascending), events)
    return Mark(position, tail, int.from_bytes(token.fingerprint, "little"))


def _header(
    source: int, aggregation: int, width: int, samples: int, summary_set: int
) -> StreamHeader | None:
    if source == 0:
        return None
    kind = TYPES.get((source, aggregation))
    if kind is None or width not in FLOAT_WIDTHS or samples < 1:
        raise TokenMalformedError("the token holds an impossible stream header")
    signed_set = None
    if kind.value == "summary":
        signed_set = summary_set - 2 * (summary_set & _SIGN_BIT)
    return StreamHeader(kind, aggregation, source, samples, signed_set, width)


def describe(token: Token) -> dict[str, object]:
    """Describe the position in a verified token, as ``/v1/tokens/inspect`` answers it.

    Raises:
        TokenMalformedError: the state of the token is not a valid position.
    """
    mark = read_mark(token)
    position = mark.position
    return {
        "kind": "losses",
        "stream": None if position.header is None else position.header.describe(),
        "offset": position.offset,
        "last_event": position.last_event or None,
        "ascending": position.ascending,
        "events": position.events,
        "unfinished_bytes": mark.tail,
    }
