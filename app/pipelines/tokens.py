"""Places in pipelines as tokens, and back.

The state of a token is that of the pipeline, and behind it how many items each of its
growing sources is pinned to: so it can be served by a server that never saw the pipeline's
registration, however much the data has grown since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.errors import DataChangedError, TokenForeignError, TokenMalformedError
from app.tokens import KIND_BATCHES, KeyRing, Token, Verified
from core.iterate.base import State

_DIGEST = 8


def combined(fingerprints: Iterable[bytes]) -> bytes:
    """One fingerprint of several, 8 bytes; in their order."""
    digest = hashlib.blake2b(digest_size=_DIGEST, person=b"thalweg-data-1")
    for each in fingerprints:
        digest.update(each)
    return digest.digest()


def verify(keys: KeyRing, text: str, identity: bytes) -> Verified:
    """A token of a pipeline, its signature and identity checked.

    Raises:
        TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
        TokenForeignError: it is of something else.
    """
    verified = keys.verify(text)
    token = verified.token
    if token.kind != KIND_BATCHES or token.identity != identity:
        raise TokenForeignError(
            "the token is of another pipeline",
            hint="Register the pipeline it is of, and use its id",
        )
    return verified


def split(state: Sequence[int], growing: int) -> tuple[State, tuple[int, ...]]:
    """(state of the pipeline, items that its growing sources are pinned to).

    Raises:
        TokenMalformedError: there are not so many numbers.
    """
    if len(state) <= growing:
        raise TokenMalformedError("the token does not hold a place in this pipeline")
    at = len(state) - growing
    return tuple(state[:at]), tuple(state[at:])


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """Makes the tokens of one pipeline over one state of its data.

    They all have the time of the token, or registration, that they come from: equal
    places have equal tokens, so that what is addressed by them can be kept by caches.
    """

    keys: KeyRing
    identity: bytes
    fingerprint: bytes
    pins: tuple[int, ...]
    issued: datetime

    def token(self, state: State) -> str:
        """The token that goes on from a state."""
        token = Token(KIND_BATCHES, self.identity, self.fingerprint, (*state, *self.pins))
        return self.keys.sign(token, self.issued)

    def check(self, fingerprint: bytes) -> None:
        """Make sure that a token was made from the data as it is.

        Raises:
            DataChangedError: it was not.
        """
        if fingerprint != self.fingerprint:
            raise DataChangedError(
                "the data is not what the token, or the pipeline, was made from",
                hint="Register the pipeline anew, and begin without after",
                was=fingerprint.hex(),
                now=self.fingerprint.hex(),
            )


def describe(token: Token) -> dict[str, object]:
    """Describe the position in a verified token of a pipeline.

    Raises:
        TokenMalformedError: it holds something else.
    """
    if not token.state:
        raise TokenMalformedError("the token does not hold a place in a pipeline")
    return {"kind": "batches", "batch": token.state[0], "state": list(token.state)}
