"""Tokens: small, signed, canonical; whatever is changed in one is noticed."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import (
    TokenForeignError,
    TokenForgedError,
    TokenMalformedError,
    TokenRetiredError,
)
from app.tokens import KIND_BATCHES, KIND_TILES, Key, KeyRing, Token, new_key, parse_key

RING = KeyRing([Key(1, "sign", b"s" * 32)])
NUMBERS = st.integers(0, 2**62)
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
STATELESS = 19 + 4 + 16
"""Bytes of a token of that time without a state: its head, the time, the signature."""
FROZEN = "AQECaWRlbnRpdHlmaW5nZXJfcNjgwAEAf4ABrALAZsOoA6uNVcnTFSd5vM1b"


@given(st.binary(min_size=8, max_size=8), st.lists(NUMBERS, max_size=12))
def test_a_token_says_what_was_signed(digest: bytes, state: list[int]) -> None:
    token = Token(1, digest, digest[::-1], tuple(state))
    assert RING.verify(RING.sign(token)).token == token


def test_every_changed_bit_is_noticed() -> None:
    text = RING.sign(Token(1, b"i" * 8, b"f" * 8, (1, 300, 2**40)))
    octets = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for bit in range(8 * len(octets)):
        changed = bytearray(octets)
        changed[bit // 8] ^= 1 << bit % 8
        forged = base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
        with pytest.raises((TokenForgedError, TokenMalformedError)):
            RING.verify(forged)


@given(st.text(max_size=200))
def test_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises((TokenForgedError, TokenMalformedError)):
        RING.verify(text)


def test_only_the_canonical_form_is_accepted() -> None:
    text = RING.sign(Token(1, b"i" * 8, b"f" * 8, (1,)))
    standard = text.replace("-", "+").replace("_", "/")
    loose = [text + "=", text + "\n", " " + text, text[:-1], "A" * 600]
    if len(text) % 4:
        # The last character has bits that are not used: another one decodes the same.
        loose.append(text[:-1] + chr(ord(text[-1]) + 1))
    for other in [*loose, *([standard] if standard != text else [])]:
        with pytest.raises((TokenMalformedError, TokenForgedError)):
            RING.verify(other)


def test_a_token_that_is_cut_is_told_as_such_however_many_characters_it_lacks() -> None:
    text = RING.sign(Token(1, b"i" * 8, b"f" * 8, (1,) * 9), NOW)
    for cut in range(1, 9):
        with pytest.raises((TokenMalformedError, TokenForgedError), match="cut or mistyped"):
            RING.verify(text[:-cut])


def test_a_token_of_another_kind_says_which() -> None:
    text = RING.sign(Token(KIND_TILES, b"i" * 8, b"f" * 8, (1,)))
    assert RING.verify(text, KIND_TILES).token.state == (1,)
    fault = "is of a stream of tiles, not of the batches of a pipeline"
    with pytest.raises(TokenForeignError, match=fault):
        RING.verify(text, KIND_BATCHES)


def token_of(size: int) -> tuple[Token, str]:
    """A token whose text has so many characters, and the text."""
    long, short = divmod(size * 3 // 4 - STATELESS, 10)
    token = Token(1, b"i" * 8, b"f" * 8, (2**63,) * long + (1,) * short)
    return token, RING.sign(token, NOW)


def test_a_token_has_at_most_512_characters() -> None:
    token, text = token_of(512)
    assert len(text) == 512
    assert RING.verify(text).token == token
    _, longer = token_of(514)
    assert len(longer) == 514
    with pytest.raises(TokenMalformedError, match="514 characters, more than 512"):
        RING.verify(longer)


def test_a_token_has_at_least_a_time() -> None:
    text = RING.sign(Token(1, b"i" * 8, b"f" * 8, ()), EPOCH)
    octets = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert len(octets) == 19 + 1 + 16
    assert RING.verify(text).issued == EPOCH
    for size in (0, 1, len(octets) - 1):
        short = base64.urlsafe_b64encode(octets[:size]).rstrip(b"=").decode()
        with pytest.raises(TokenMalformedError, match="too short"):
            RING.verify(short)


def signed(octets: bytes) -> str:
    """Text that is signed as it should be, whatever it says."""
    octets += hmac.digest(b"s" * 32, octets, "sha256")[:16]
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


HEAD = bytes([1, 1, 1]) + b"i" * 8 + b"f" * 8


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (b"\x80", "a number is cut"),
        (b"\x05\x80", "a number is cut"),
        (b"\x80\x00", "more bytes than it needs"),
        (b"\x05\x85\x00", "more bytes than it needs"),
        (b"\x05" + b"\xff" * 10 + b"\x01", "a number is too long"),
        (b"\xff" * 8 + b"\x01", "cannot be read"),
    ],
)
def test_numbers_that_are_none(numbers: bytes, words: str) -> None:
    with pytest.raises(TokenMalformedError, match=words):
        RING.verify(signed(HEAD + numbers))


def test_numbers_of_every_length() -> None:
    for number in (*(2**bits - one for bits in range(1, 70) for one in (1, 0)), 2**70 - 1):
        token = Token(1, b"i" * 8, b"f" * 8, (number, 0, number))
        assert RING.verify(RING.sign(token)).token == token
    longest = signed(HEAD + b"\x05" + b"\xff" * 9 + b"\x01")
    assert RING.verify(longest).token.state == (2**64 - 1,)
    text = RING.sign(Token(1, b"i" * 8, b"f" * 8, (2**70,)))
    with pytest.raises(TokenMalformedError, match="too long"):
        RING.verify(text)


def test_tokens_of_another_version() -> None:
    assert RING.verify(signed(HEAD + b"\x05")).token.state == ()
    with pytest.raises(TokenMalformedError, match="version 2, not 1"):
        RING.verify(signed(b"\x02" + HEAD[1:] + b"\x05"))


def test_a_token_is_frozen() -> None:
    text = RING.sign(Token(2, b"identity", b"finger_p", (0, 127, 128, 300)), NOW)
    assert text == FROZEN
    assert RING.verify(text).issued == NOW


def test_keys_rotate() -> None:
    old, new = new_key(1), new_key(2)
    text = KeyRing([old]).sign(Token(1, b"i" * 8, b"f" * 8, ()))
    accepting = KeyRing([new, Key(1, "accept", old.secret)])
    assert accepting.verify(text).key.ident == 1
    retired = KeyRing([new, Key(1, "refresh-only", old.secret)])
    with pytest.raises(TokenRetiredError):
        retired.verify(text)
    fresh = retired.sign(retired.verify(text, refresh=True).token)
    assert KeyRing([new]).verify(fresh).token == accepting.verify(text).token
    with pytest.raises(TokenForgedError, match="may be cut or mistyped: it is signed with key 1"):
        KeyRing([new]).verify(text)


@pytest.mark.parametrize("uses", [[], ["accept"], ["sign", "sign"]])
def test_exactly_one_key_signs(uses: list[str]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        KeyRing([parse_key(f"{n}:{use}:{'00' * 16}") for n, use in enumerate(uses)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1:sign",
        "x:sign:" + "00" * 16,
        "1:sing:" + "00" * 16,
        "1:sign:00",
        "256:sign:" + "00" * 16,
    ],
)
def test_malformed_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="token key") as caught:
        parse_key(text)
    assert "00" not in str(caught.value)


def test_keys_read_back() -> None:
    key = new_key(7)
    assert parse_key(key.to_text()) == key
