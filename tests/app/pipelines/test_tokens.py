"""Positions in pipelines as tokens."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.errors import DataChangedError, TokenForeignError, TokenMalformedError
from app.pipelines.tokens import BatchTokens, combine, describe, split, verify
from app.tokens import KIND_BATCHES, KIND_TILES, Key, KeyRing, Token

RING = KeyRing([Key(1, "sign", b"s" * 32)])
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def test_a_position_in_a_pipeline_comes_back() -> None:
    tokens = BatchTokens(RING, b"identity", b"finger_p", (70, 80), NOW)
    text = tokens.token((4, 5))
    assert text == tokens.token((4, 5))
    verified = verify(RING, text, b"identity")
    assert verified.issued == NOW
    assert verified.token == Token(KIND_BATCHES, b"identity", b"finger_p", (4, 5, 70, 80))
    assert split(verified.token.state, 2) == ((4, 5), (70, 80))
    assert split(verified.token.state, 0) == ((4, 5, 70, 80), ())
    assert split(verified.token.state, 3) == ((4,), (5, 70, 80))
    for growing in (4, 5):
        with pytest.raises(TokenMalformedError, match="does not hold a position"):
            split(verified.token.state, growing)


def test_positions_in_something_else() -> None:
    for kind, identity, fault in (
        (KIND_TILES, b"identity", "is of a stream of tiles"),
        (KIND_BATCHES, b"identitY", "belongs to another pipeline"),
    ):
        with pytest.raises(TokenForeignError, match=fault):
            verify(RING, RING.sign(Token(kind, identity, b"finger_p", (1,))), b"identity")


def test_batches_of_other_data() -> None:
    tokens = BatchTokens(RING, b"identity", b"finger_p", (), NOW)
    tokens.check(b"finger_p", "")
    with pytest.raises(DataChangedError) as caught:
        tokens.check(b"finger_q", "'labels' or 'scan'")
    assert caught.value.members == {"was": b"finger_q".hex(), "now": b"finger_p".hex()}


def test_the_fingerprint_of_several_is_frozen() -> None:
    assert combine([b"finger_p", b"finger_q"]).hex() == "70766e4e13d9a131"
    assert combine([b"finger_q", b"finger_p"]) != combine([b"finger_p", b"finger_q"])
    assert combine([]) != combine([b"finger_p"])


def test_a_token_without_a_position_is_not_described() -> None:
    token = Token(KIND_BATCHES, b"identity", b"finger_p", (4, 5))
    assert describe(token) == {"kind": "batches", "batch": 4, "state": [4, 5]}
    with pytest.raises(TokenMalformedError):
        describe(Token(KIND_BATCHES, b"identity", b"finger_p", ()))
