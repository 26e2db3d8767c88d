"""Tokens of the rows of runs: convert places in its streams to tokens, and back.

The state of a token is six numbers: partition, offset, last event, whether events ascended, events,
and a digest of the streams before, whose rows were all given; 0 for a token of one stream alone.
The data fingerprint is a digest of the stream's id and of the appends up to the offset. So the rows
of a stream that was uploaded again, or continued otherwise after a backup was restored, never
follow those of the first. Earlier tokens have no sixth number, and a digest of the id alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from app.errors import TokenForeignError, TokenMalformedError
from app.losses.spool import Mark
from app.tokens import KIND_ROWS, KeyRing, Token
from core.losses.events import Position
from core.losses.format import ID_MAX

from ..records import MAX_PARTITION, StreamRecord

_FIELDS = (5, 6)
_MAX_NUMBER = 2**62
ALONE = 0
"""Digest of the streams before where one stream alone is read."""
NONE_PASSED = 1
"""Digest of no streams, where all are read."""


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A place between two events of a stream of a run."""

    partition: int
    fingerprint: bytes
    """Fingerprint of the stream up to the offset; see ``fits``."""
    position: Position
    """In the stream; its header is not looked at."""
    passed: int | None
    """Digest of the streams before; None if the token does not say what it covers."""

    def fits(self, stream: StreamRecord) -> bool:
        """Whether a stream has the bytes before the place."""
        if self.passed is None:
            return self.fingerprint == _digest(stream.id)
        return self.fingerprint == fingerprint_of(stream, self.position.offset)


@dataclass(slots=True)
class RowMark(Mark):
    """A mark whose place in the run is known."""

    place: RowPlace = field(kw_only=True)


def place_of(stream: StreamRecord, position: Position, passed: int = ALONE) -> RowPlace:
    """Return the place at a position in a stream."""
    fingerprint = fingerprint_of(stream, position.offset)
    return RowPlace(stream.partition, fingerprint, position, passed)


def fingerprint_of(stream: StreamRecord, offset: int) -> bytes:
    """Return a digest of the bytes of a stream up to an offset, without reading them.

    It follows from the appends that wrote them, each of which has a fence that no other has.
    """
    fences = (str(extent.fence) for extent in stream.extents if extent.start < offset)
    return _digest(" ".join((stream.id, str(offset), *fences)))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def pass_stream(passed: int, stream: StreamRecord) -> int:
    """Return the digest of streams that were passed, with one more; never ``ALONE``."""
    octets = fingerprint_of(stream, stream.offset)
    found = hashlib.blake2b(passed.to_bytes(8) + octets, digest_size=8).digest()
    return int.from_bytes(found) >> 2 | 1


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
        """Return the token that resumes at a mark of a run."""
        assert isinstance(mark, RowMark)  # noqa: S101 - the reader makes no others
        place, p = mark.place, mark.place.position
        assert place.passed is not None  # noqa: S101 - as above
        numbers = (p.offset, p.last_event, int(p.ascending), p.events)
        state = (place.partition, *numbers, place.passed)
        return self.keys.sign(Token(KIND_ROWS, self.identity, place.fingerprint, state))

    def read(self, text: str) -> RowPlace:
        """Return the place in a token.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: the token belongs to another run, report or set of options.
        """
        token = self.keys.verify(text, KIND_ROWS).token
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
    if len(token.state) not in _FIELDS or max(token.state) > _MAX_NUMBER:
        raise TokenMalformedError("the token does not hold a place in the rows of a run")
    partition, offset, last_event, ascending, events, *passed = token.state
    if not 1 <= partition <= MAX_PARTITION or last_event > ID_MAX or ascending > 1:
        raise TokenMalformedError("the token holds an impossible place")
    position = Position(None, offset, last_event, bool(ascending), events)
    return RowPlace(partition, token.fingerprint, position, passed[0] if passed else None)


def describe(token: Token) -> dict[str, object]:
    """Describe the place in a verified token, as ``/v1/tokens/inspect`` answers it.

    Raises:
        TokenMalformedError: its state is not a valid place.
    """
    place = read_place(token)
    position = place.position
    return {
        "kind": "rows",
        "partition": place.partition,
        "offset": position.offset,
        "last_event": position.last_event or None,
        "ascending": position.ascending,
        "events": position.events,
    }
