"""Tokens: small, signed, canonical; whatever is changed in one is noticed."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import TokenForgedError, TokenMalformedError, TokenRetiredError
from app.tokens import Key, KeyRing, Token, new_key, parse_key

RING = KeyRing([Key(1, "sign", b"s" * 32)])
NUMBERS = st.integers(0, 2**62)


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
    with pytest.raises(TokenForgedError, match="key 1"):
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
    with pytest.raises(ValueError, match=r".+"):
        parse_key(text)


def test_keys_read_back() -> None:
    key = new_key(7)
    assert parse_key(key.to_text()) == key
