"""Tokens of the rows of runs: convert places in its streams to tokens, and back.

The state of a token is five numbers: partition, offset, last event, whether events ascended, and
events. The digest of the stream's id takes the place of the data fingerprint: a partition that
was uploaded again has another stream, whose rows must not follow those of the first.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.errors import TokenForeignError, TokenMalformedError
from app.losses.spool import Mark
from app.tokens import KIND_ROWS, KeyRing, Token
from core.losses.format import ID_MAX
from core.losses.position import Position

from ..records import MAX_PARTITION

_FIELDS = 5
_MAX_NUMBER = 2**62


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A place between two events of a stream of a run."""

    partition: int
    fingerprint: bytes
    """Of the stream."""
    offset: int = 0
    last_event: int = 0
    ascending: bool = True
    events: int = 0


def place_of(stream: str, partition: int, position: Position) -> RowPlace:
    """Return the place at a position in a stream."""
    return RowPlace(
        partition,
        fingerprint_of(stream),
        position.offset,
        position.last_event,
        position.ascending,
        position.events,
    )


def fingerprint_of(stream: str) -> bytes:
    """Return the digest of the id of a stream, 8 bytes."""
    return hashlib.blake2b(stream.encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class RowTokens:
    """Creates and reads the tokens of one report of one run.

    Args:
        keys: sign and verify.
        identity: digest of the run and of the request, 8 bytes.
    """

    keys: KeyRing
    identity: bytes

    def token(self, mark: Mark) -> str:
        """Return the token that resumes at a mark, whose origin names stream and partition."""
        origin, position = mark.origin or {}, mark.position
        partition = origin["partition"]
        assert isinstance(partition, int)  # noqa: S101 - marks are made here
        state = (
            partition,
            position.offset,
            position.last_event,
            int(position.ascending),
            position.events,
        )
        fingerprint = fingerprint_of(str(origin["stream"]))
        return self.keys.sign(Token(KIND_ROWS, self.identity, fingerprint, state))

    def read(self, text: str) -> RowPlace:
        """Return the place in a token.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: the token belongs to another run, report or set of options.
        """
        token = self.keys.verify(text).token
        if token.kind != KIND_ROWS:
            raise TokenForeignError("the token does not belong to the rows of a run")
        if token.identity != self.identity:
            raise TokenForeignError(
                "the token belongs to another run, or to another report of it",
                hint="Ask for the same report of the same run",
            )
        return read_place(token)


def read_place(token: Token) -> RowPlace:
    """Return the place in a verified token of rows.

    Raises:
        TokenMalformedError: its state is not a valid place.
    """
    if len(token.state) != _FIELDS or max(token.state) > _MAX_NUMBER:
        raise TokenMalformedError("the token does not hold a place in the rows of a run")
    partition, offset, last_event, ascending, events = token.state
    if not 1 <= partition <= MAX_PARTITION or last_event > ID_MAX or ascending > 1:
        raise TokenMalformedError("the token holds an impossible place")
    return RowPlace(partition, token.fingerprint, offset, last_event, bool(ascending), events)


def describe(token: Token) -> dict[str, object]:
    """Describe the place in a verified token, as ``/v1/tokens/inspect`` answers it.

    Raises:
        TokenMalformedError: its state is not a valid place.
    """
    place = read_place(token)
    return {
        "kind": "rows",
        "partition": place.partition,
        "offset": place.offset,
        "last_event": place.last_event or None,
        "ascending": place.ascending,
        "events": place.events,
    }
