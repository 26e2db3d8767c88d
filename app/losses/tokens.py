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
from typing import Any

from app.errors import TokenForeignError, TokenMalformedError
from app.tokens import KIND_LOSSES, KeyRing, Token
from core.losses.events import Position, StreamHeader
from core.losses.format import FLOAT_WIDTHS, ID_MAX, TYPES, Kind

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
        token = self.keys.verify(text, KIND_LOSSES).token
        if token.identity != self.identity:
            raise TokenForeignError(
                "the token belongs to a request with other reports, inputs or options",
                hint="Post with the same query; only format, duplex, over_bound and"
                " declarations (expect_…) may differ",
            )
        return read_mark(token)


def encode_position(position: Position) -> tuple[list[int], int | None, list[int]]:
    """Return a position as numbers: four of the header, its summary set, and the place.

    Before the header has been read, its numbers are 0.
    """
    header = position.header
    fields, summary_set = [0, 0, 0, 0], None
    if header is not None:
        fields = [header.source, header.aggregation, header.float_width, header.len_sample]
        summary_set = header.summary_set
    place = [position.offset, position.last_event, int(position.ascending), position.events]
    return fields, summary_set, place


def decode_position(values: Any) -> Position:  # noqa: ANN401 - numbers, or JSON
    """Return the position that was encoded as these numbers.

    Raises:
        TypeError, ValueError: they are not those of a position; says which.
    """
    source, aggregation, width, samples, summary_set, *place = values
    offset, last_event, ascending, events = place
    header = None
    if source:
        kind = TYPES.get((source, aggregation))
        if kind is None or width not in FLOAT_WIDTHS or samples < 1:
            raise ValueError("stream header")
        summary_set = summary_set if kind is Kind.SUMMARY else None
        header = StreamHeader(kind, aggregation, source, samples, summary_set, width)
    if not (0 <= last_event <= ID_MAX and min(offset, events) >= 0 and 0 <= ascending <= 1) or (
        header is None and offset
    ):
        raise ValueError("position")
    return Position(header, offset, last_event, bool(ascending), events)


def _state(mark: Mark) -> tuple[int, ...]:
    fields, summary_set, place = encode_position(mark.position)
    return (*fields, (summary_set or 0) & 0xFFFFFFFF, *place, mark.tail)


def read_mark(token: Token) -> Mark:
    """Return the mark in a verified token of a loss stream.

    Raises:
        TokenMalformedError: the state of the token is not a valid position.
    """
    if len(token.state) != _FIELDS:
        raise TokenMalformedError("the token does not hold a position in a loss stream")
    if max(token.state) > _MAX_NUMBER:
        raise TokenMalformedError("the token holds an impossible position")
    *fields, summary_set, offset, last_event, ascending, events, tail = token.state
    summary_set -= 2 * (summary_set & _SIGN_BIT)
    try:
        position = decode_position([*fields, summary_set, offset, last_event, ascending, events])
    except ValueError as e:
        raise TokenMalformedError(f"the token holds an impossible {e}") from e
    return Mark(position, tail, int.from_bytes(token.fingerprint, "little"))


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
