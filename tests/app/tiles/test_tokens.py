"""Positions in streams of tiles as tokens."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.errors import DataChangedError, TokenForeignError, TokenMalformedError
from app.tiles.encoding import TileTokens, stream_identity
from app.tokens import KIND_BATCHES, KIND_TILES, Key, KeyRing, Token

RING = KeyRing([Key(1, "sign", b"s" * 32)])
TOKENS = TileTokens(RING, b"identity", b"finger_p")
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def test_a_tile_comes_back() -> None:
    for tile in (0, 5, 8):
        text = TOKENS.token(tile)
        assert RING.verify(text).token == Token(KIND_TILES, b"identity", b"finger_p", (tile,))
        assert TOKENS.read(text, 8) == tile
    with pytest.raises(TokenMalformedError, match="does not hold a position"):
        TOKENS.read(TOKENS.token(9), 8)
    for state in ((), (1, 2)):
        with pytest.raises(TokenMalformedError, match="does not hold a position"):
            TOKENS.read(RING.sign(Token(KIND_TILES, b"identity", b"finger_p", state)), 8)


def test_tokens_of_something_else() -> None:
    for kind, identity in ((KIND_BATCHES, b"identity"), (KIND_TILES, b"identitY")):
        with pytest.raises(TokenForeignError):
            TOKENS.read(RING.sign(Token(kind, identity, b"finger_p", (1,))), 8)
    with pytest.raises(DataChangedError) as caught:
        TOKENS.read(RING.sign(Token(KIND_TILES, b"identity", b"finger_q", (1,))), 8)
    assert caught.value.members == {"was": b"finger_q".hex(), "now": b"finger_p".hex()}


def test_identities_of_streams_are_frozen() -> None:
    assert stream_identity("scan1", b"12345678").hex() == "5e0a883550a8b8ab"
    assert stream_identity("scan", b"112345678") != stream_identity("scan1", b"12345678")
