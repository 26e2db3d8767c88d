"""Tokens of tile streams."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.errors import DataChangedError, TokenForeignError, TokenMalformedError
from app.tokens import KIND_TILES, KeyRing, Token


def stream_identity(dataset: str, view_digest: bytes) -> bytes:
    """Return the identity of a tile stream, apart from its data: 8 bytes."""
    digest = hashlib.blake2b(dataset.encode() + b"\0" + view_digest, digest_size=8)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class TileTokens:
    """The tokens of one tile stream."""

    keys: KeyRing
    identity: bytes
    fingerprint: bytes
    """The dataset's current fingerprint."""

    def token(self, tile: int) -> str:
        """Sign the token that continues with this tile."""
        return self.keys.sign(Token(KIND_TILES, self.identity, self.fingerprint, (tile,)))

    def read(self, text: str, tiles: int) -> int:
        """Return the tile that a token continues with; ``tiles`` after the last one.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: the token belongs to another dataset or view.
            DataChangedError: the dataset has changed since the token was issued.
        """
        token = self.keys.verify(text).token
        if token.kind != KIND_TILES or token.identity != self.identity:
            raise TokenForeignError(
                "the token belongs to another dataset or view",
                hint="Request the same view of the same dataset",
            )
        if token.fingerprint != self.fingerprint:
            raise DataChangedError(
                "the files of the dataset, or what it declares of them, changed after this token",
                hint="Open the dataset anew, and start without after",
                was=token.fingerprint.hex(),
                now=self.fingerprint.hex(),
            )
        if len(token.state) != 1 or token.state[0] > tiles:
            raise TokenMalformedError("the token does not hold a position in a tile stream")
        return token.state[0]


def describe(token: Token) -> dict[str, object]:
    """Describe the position in a verified token of a tile stream.

    Raises:
        TokenMalformedError: the state is not a position.
    """
    if len(token.state) != 1:
        raise TokenMalformedError("the token does not hold a position in a tile stream")
    return {"kind": "tiles", "tile": token.state[0]}
