"""Tokens of pipelines.

The state of a token is the state of the pipeline, followed by the number of items that
each growing source is pinned to:

    state of the pipeline (k numbers) | pin of growing source 1 | pin 2 | …

A token therefore names its batches completely, however much the data has grown since it
was issued.
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


def combine(fingerprints: Iterable[bytes]) -> bytes:
    """Combine fingerprints, in their order, into one of 8 bytes."""
    digest = hashlib.blake2b(digest_size=_DIGEST, person=b"thalweg-data-1")
    for fingerprint in fingerprints:
        digest.update(fingerprint)
    return digest.digest()


def verify(keys: KeyRing, text: str, identity: bytes) -> Verified:
    """Verify the signature of a token and that it belongs to a pipeline.

    Args:
        keys: the signing keys.
        text: the token.
        identity: identity of the pipeline.

    Raises:
        TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
        TokenForeignError: the token belongs to something else.
    """
    verified = keys.verify(text, KIND_BATCHES)
    if verified.token.identity != identity:
        raise TokenForeignError(
            "the token belongs to another pipeline",
            hint="Register the pipeline it belongs to and use its id",
        )
    return verified


def split(state: Sequence[int], growing: int) -> tuple[State, tuple[int, ...]]:
    """Split the state of a token into the pipeline's state and its pins.

    Args:
        state: the state of the token.
        growing: number of growing sources.

    Raises:
        TokenMalformedError: the state is too short.
    """
    if len(state) <= growing:
        raise TokenMalformedError("the token does not hold a position in this pipeline")
    length = len(state) - growing
    return tuple(state[:length]), tuple(state[length:])


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of one pipeline over one state of its data.

    All carry the issue time of the token or registration they derive from. Equal positions
    thus have equal tokens, and caches can store the batches addressed by them.
    """

    keys: KeyRing
    identity: bytes
    fingerprint: bytes
    pins: tuple[int, ...]
    issued: datetime

    def token(self, state: State) -> str:
        """Sign the token that continues from a state."""
        token = Token(KIND_BATCHES, self.identity, self.fingerprint, (*state, *self.pins))
        return self.keys.sign(token, self.issued)

    def check(self, fingerprint: bytes, datasets: str) -> None:
        """Check that the data still has the fingerprint of a token or registration.

        Args:
            fingerprint: of the token or registration.
            datasets: those of the pipeline, for people.

        Raises:
            DataChangedError: it has another.
        """
        if fingerprint != self.fingerprint:
            raise DataChangedError(
                f"the data of {datasets} has changed since the token was issued or the pipeline"
                " registered",
                hint="Register the pipeline again, and start without after",
                was=fingerprint.hex(),
                now=self.fingerprint.hex(),
            )


def describe(token: Token) -> dict[str, object]:
    """Describe the position in a verified token of a pipeline.

    Raises:
        TokenMalformedError: the state is not a position.
    """
    if not token.state:
        raise TokenMalformedError("the token does not hold a position in a pipeline")
    return {"kind": "batches", "batch": token.state[0], "state": list(token.state)}
