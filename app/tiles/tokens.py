"""Places in a stream of tiles as tokens, and back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.errors import DataChangedError, TokenForeignError, TokenMalformedError
from app.tokens import KIND_TILES, KeyRing, Token


def stream_identity(dataset: str, view_digest: bytes) -> bytes:
    """What makes two tile streams the same, apart from the data; 8 bytes."""
    digest = hashlib.blake2b(dataset.encode() + b"\0" + view_digest, digest_size=8)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class TileTokens:
    """Makes and reads the tokens of one stream."""

    keys: KeyRing
    identity: bytes
    fingerprint: bytes
    """Of the dataset as it is now."""

    def token(self, tile: int) -> str:
        """The token that goes on with this tile."""
        return self.keys.sign(Token(KIND_TILES, self.identity, self.fingerprint, (tile,)))

    def read(self, text: str, tiles: int) -> int:
        """The tile a token goes on with; the number of tiles if it was the last.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
            TokenForeignError: it is of another dataset or view.
            DataChangedError: the files are not those it was made from.
        """
        token = self.keys.verify(text).token
        if token.kind != KIND_TILES or token.identity != self.identity:
            raise TokenForeignError(
                "the token is of another dataset or view",
                hint="Ask for the same view of the same dataset",
            )
        if token.fingerprint != self.fingerprint:
            raise DataChangedError(
                "the dataset's files are not those the token was made from",
                hint="Begin anew without after",
                was=token.fingerprint.hex(),
                now=self.fingerprint.hex(),
            )
        if len(token.state) != 1 or token.state[0] > tiles:
            raise TokenMalformedError("the token does not hold a place in a stream of tiles")
        return token.state[0]


def describe(token: Token) -> dict[str, object]:
    """Describe the position in a verified token of a stream of tiles.

    Raises:
        TokenMalformedError: it holds something else.
    """
    if len(token.state) != 1:
        raise TokenMalformedError("the token does not hold a place in a stream of tiles")
    return {"kind": "tiles", "tile": token.state[0]}
