"""Tokens: signed, self-contained positions, checked before they are read.

A token is ``version, key id, kind, identity (8 bytes), fingerprint (8), minutes since
2020, state…, HMAC-SHA256 cut to 16``, as url-safe base64 without padding. Numbers are
varints: seven bits a byte, least first, top bit on all but the last.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from app.errors import TokenForgedError, TokenMalformedError, TokenRetiredError

VERSION = 1
KIND_LOSSES = 1
KIND_TILES = 2
KIND_BATCHES = 3

_DIGEST = 8
_SIGNATURE = 16
_FIXED = 3 + 2 * _DIGEST
_LONGEST = 512
_EPOCH = 1_577_836_800
"""2020-01-01, from which the minutes of issue are counted."""
_VARINT_BYTES = 10

Use = Literal["sign", "accept", "refresh-only"]


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key and what it may still be used for."""

    ident: int
    use: Use
    secret: bytes

    def to_text(self) -> str:
        """As settings and the key file have it."""
        return f"{self.ident}:{self.use}:{self.secret.hex()}"


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says."""

    kind: int
    identity: bytes
    """Digest of the request it belongs to, 8 bytes."""
    fingerprint: bytes
    """Of the data it was made from, 8 bytes."""
    state: tuple[int, ...]
    """Non-negative numbers; their meaning depends on the kind."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A token whose signature is right."""

    token: Token
    key: Key
    issued: datetime


def parse_key(text: str) -> Key:
    """A key out of settings or the key file.

    Raises:
        ValueError: it is malformed, or shorter than 16 bytes.
    """
    ident, use, secret = text.strip().split(":")
    if use not in get_args(Use):
        raise ValueError(f"{use!r} is not one of {', '.join(get_args(Use))}")
    key = Key(int(ident), use, bytes.fromhex(secret))  # type: ignore[arg-type]
    if not 0 <= key.ident <= 255 or len(key.secret) < 16:  # noqa: PLR2004
        raise ValueError("a key needs an id of 0 to 255 and at least 16 bytes")
    return key


def new_key(ident: int = 1) -> Key:
    """A fresh signing key."""
    return Key(ident, "sign", secrets.token_bytes(32))


def _write_varints(numbers: Iterable[int]) -> bytes:
    octets = bytearray()
    for number in numbers:
        rest = number
        while rest > 0x7F:  # noqa: PLR2004
            octets.append(rest & 0x7F | 0x80)
            rest >>= 7
        octets.append(rest)
    return bytes(octets)


def _read_varints(octets: bytes) -> tuple[int, ...]:
    numbers = []
    number = shift = 0
    for octet in octets:
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:  # noqa: PLR2004
            if octet == 0 and shift > 7:  # noqa: PLR2004
                raise ValueError("a number has more bytes than it needs")
            numbers.append(number)
            number = shift = 0
        elif shift >= 7 * _VARINT_BYTES:
            raise ValueError("a number is too long")
    if shift:
        raise ValueError("a number is cut")
    return tuple(numbers)


class KeyRing:
    """Signs and verifies tokens.

    Args:
        keys: exactly one of them signs.

    Raises:
        ValueError: none or several sign, or two have one id.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = {key.ident: key for key in keys}
        if len(self._keys) < len(keys):
            raise ValueError("two token keys have the same id")
        signing = [key for key in keys if key.use == "sign"]
        if len(signing) != 1:
            raise ValueError(f"{len(signing)} token keys sign, but exactly one must")
        self._signing = signing[0]

    @property
    def signer(self) -> int:
        """Id of the key that signs."""
        return self._signing.ident

    def sign(self, token: Token, issued: datetime | None = None) -> str:
        """The token as text, at most 512 characters.

        Args:
            token: what it says.
            issued: when, if not now: with it, equal tokens are equal texts.
        """
        seconds = time.time() if issued is None else issued.timestamp()
        minutes = (int(seconds) - _EPOCH) // 60
        octets = (
            bytes([VERSION, self._signing.ident, token.kind])
            + token.identity
            + token.fingerprint
            + _write_varints((minutes, *token.state))
        )
        octets += _signature(self._signing, octets)
        return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()

    def verify(self, text: str, *, refresh: bool = False) -> Verified:
        """What a token says, if it is one of ours.

        Args:
            text: the token.
            refresh: accept keys that may only refresh.

        Raises:
            TokenMalformedError: it cannot be a token.
            TokenForgedError: its signature is wrong, or its key unknown.
            TokenRetiredError: its key may only refresh.
        """
        octets = _decode(text)
        key = self._keys.get(octets[1])
        if key is None:
            raise TokenForgedError(
                f"the token is signed with key {octets[1]}, which this server does not have",
                hint="Servers that share clients must share THALWEG_TOKEN_KEYS",
            )
        body, signature = octets[:-_SIGNATURE], octets[-_SIGNATURE:]
        if not hmac.compare_digest(_signature(key, body), signature):
            raise TokenForgedError("the token's signature is not right")
        if body[0] != VERSION:
            raise TokenMalformedError(f"the token has version {body[0]}, not {VERSION}")
        if key.use == "refresh-only" and not refresh:
            raise TokenRetiredError(
                "the token's key is retired", hint="POST it to /v1/tokens/refresh, use the answer"
            )
        return _read(body, key)


def _signature(key: Key, octets: bytes) -> bytes:
    return hmac.digest(key.secret, octets, hashlib.sha256)[:_SIGNATURE]


def _decode(text: str) -> bytes:
    if len(text) > _LONGEST:
        raise TokenMalformedError(f"the token has {len(text)} characters, more than {_LONGEST}")
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as e:
        raise TokenMalformedError("the token is not url-safe base64") from e
    if base64.urlsafe_b64encode(octets).rstrip(b"=").decode() != text:
        raise TokenMalformedError("the token is not in its canonical form")
    if len(octets) <= _FIXED + _SIGNATURE:
        raise TokenMalformedError("the token is too short", hint="Was it cut when it was copied?")
    return octets


def _read(body: bytes, key: Key) -> Verified:
    try:
        minutes, *state = _read_varints(body[_FIXED:])
        issued = datetime.fromtimestamp(_EPOCH + 60 * minutes, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise TokenMalformedError(f"the token cannot be read: {e}") from e
    identity, fingerprint = body[3 : 3 + _DIGEST], body[3 + _DIGEST : _FIXED]
    return Verified(Token(body[2], identity, fingerprint, tuple(state)), key, issued)
