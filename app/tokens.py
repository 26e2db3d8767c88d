"""Tokens: signed, self-contained positions in a stream.

A server stores nothing between two requests of a stream. The position travels with the
client instead, as a token that any server with the same key can resume from:

    0       1      2    3          11            19                       n-16        n
    +-------+------+----+----------+-------------+------------------------+-----------+
    |version|key id|kind| identity | fingerprint | issued | state ...     | signature |
    +-------+------+----+----------+-------------+------------------------+-----------+
     1 byte  1      1    8 bytes    8 bytes       varints                  16 bytes
    |<----------------------- covered by the signature ------------------>|

* *kind* says which product defines the state: loss streams, tiles or batches.
* *identity* is a digest of the request. A token of another request is refused (409), as
  its position would mean something else there.
* *fingerprint* is a digest of the data. If the data changed, so would the rest of the
  stream, and the server refuses to join the two (412).
* *issued* is the time in minutes since 2020-01-01 UTC; the numbers of the *state* are not
  negative. Both are varints (unsigned LEB128): seven bits per byte, least significant
  first, the top bit set on all bytes but the last, no needless bytes.
* *signature* is HMAC-SHA256 truncated to 16 bytes. It is verified, in constant time, before
  anything but the key id is read: no parser sees bytes that a stranger wrote, and no client
  can invent a position.

The text is URL-safe base64 without padding. Only this canonical form is accepted, so a
token has exactly one text, as immutable URLs and caches require. A position takes fewer
than 100 characters; the same fields as a JSON web token would take more than twice as many.

Keys rotate without invalidating tokens: a new key signs, the old one goes from ``sign`` to
``accept`` (its tokens still resume streams), then to ``refresh-only`` (they can only be
exchanged for new ones), and is finally removed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from app.errors import (
    TokenForeignError,
    TokenForgedError,
    TokenMalformedError,
    TokenRetiredError,
)

VERSION = 1
KIND_LOSSES = 1
KIND_TILES = 2
KIND_BATCHES = 3
KIND_ROWS = 4
KIND_SESSION = 5
"""No position: who is signed in with a browser."""

_OF: dict[int | None, str] = {
    KIND_LOSSES: "a loss stream",
    KIND_TILES: "a stream of tiles",
    KIND_BATCHES: "the batches of a pipeline",
    KIND_ROWS: "the rows of a run",
    KIND_SESSION: "a browser that is signed in",
}
_DIGEST = 8
_SIGNATURE = 16
_FIXED = 3 + 2 * _DIGEST
_MAX_CHARACTERS = 512
_EPOCH = 1_577_836_800
"""2020-01-01 UTC in seconds since 1970."""
_VARINT_BYTES = 10
_WHOLE = "Copy the whole token, or begin without one"
"""The hint for a text that is no token."""
_SAME_KEYS = (
    f"{_WHOLE}. If it is whole, set the same THALWEG_TOKEN_KEYS on all servers that share clients"
)
"""The hint for one that another server may have signed."""

Use = Literal["sign", "accept", "refresh-only"]


@dataclass(frozen=True, slots=True)
class Key:
    """A signing key and its permitted use."""

    ident: int
    use: Use
    secret: bytes

    def to_text(self) -> str:
        """Return the key in the form of settings and of the key file."""
        return f"{self.ident}:{self.use}:{self.secret.hex()}"


@dataclass(frozen=True, slots=True)
class Token:
    """The contents of a token; see the module."""

    kind: int
    identity: bytes
    """Digest of the request, 8 bytes."""
    fingerprint: bytes
    """Digest of the data, 8 bytes."""
    state: tuple[int, ...]
    """Non-negative numbers; their meaning depends on the kind."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A token whose signature is valid, with its key and time of issue."""

    token: Token
    key: Key
    issued: datetime


def parse_key(text: str) -> Key:
    """Parse ``id:use:secret``, the secret in hexadecimal digits.

    Raises:
        ValueError: the text is malformed, or the secret shorter than 16 bytes.
    """
    try:
        ident, use, secret = text.strip().split(":")
        key = Key(int(ident), use, bytes.fromhex(secret))  # type: ignore[arg-type]
    except ValueError:
        # Its text is not shown: it holds a secret.
        raise ValueError("a token key is not id:use:secret in hexadecimal digits") from None
    if use not in get_args(Use):
        raise ValueError(f"the use of a token key is not one of {', '.join(get_args(Use))}")
    if not 0 <= key.ident <= 255 or len(key.secret) < 16:  # noqa: PLR2004
        raise ValueError("a token key needs an id from 0 to 255 and at least 16 bytes")
    return key


def new_key(ident: int = 1) -> Key:
    """Generate a signing key."""
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
        keys: the keys, exactly one of which signs.

    Raises:
        ValueError: no key or several keys sign, or two have the same id.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = {key.ident: key for key in keys}
        if len(self._keys) < len(keys):
            raise ValueError("two token keys have the same id")
        signing = [key for key in keys if key.use == "sign"]
        if len(signing) != 1:
            raise ValueError(f"{len(signing)} token keys sign, but exactly one must")
        self._signing = signing[0]
        self._hashes = {key.ident: _begun(key.secret) for key in keys}

    @property
    def signer(self) -> int:
        """Id of the signing key."""
        return self._signing.ident

    def sign(self, token: Token, issued: datetime | None = None) -> str:
        """Sign a token and return its text.

        Args:
            token: the contents.
            issued: time of issue, None for now. Fix it where equal tokens must have equal
                texts.
        """
        seconds = time.time() if issued is None else issued.timestamp()
        minutes = (int(seconds) - _EPOCH) // 60
        octets = (
            bytes([VERSION, self._signing.ident, token.kind])
            + token.identity
            + token.fingerprint
            + _write_varints((minutes, *token.state))
        )
        octets += self._signature(self._signing, octets)
        return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()

    def verify(self, text: str, kind: int | None = None, *, refresh: bool = False) -> Verified:
        """Verify the signature of a token and read its contents.

        Args:
            text: the token.
            kind: that it must have; None for any.
            refresh: whether to accept keys that may only refresh.

        Raises:
            TokenMalformedError: the text is not a token.
            TokenForgedError: the signature is invalid, or the key unknown.
            TokenRetiredError: the key may only refresh.
            TokenForeignError: it is of another kind.
        """
        octets = _decode(text)
        key = self._keys.get(octets[1])
        if key is None:
            raise TokenForgedError(
                "the token may be cut or mistyped: it is signed with key"
                f" {octets[1]}, which this server does not have",
                hint=_SAME_KEYS,
            )
        body, signature = octets[:-_SIGNATURE], octets[-_SIGNATURE:]
        if not hmac.compare_digest(self._signature(key, body), signature):
            fault = "the token may be cut or mistyped: its signature is invalid"
            raise TokenForgedError(fault, hint=_SAME_KEYS)
        if body[0] != VERSION:
            raise TokenMalformedError(f"the token has version {body[0]}, not {VERSION}")
        if key.use == "refresh-only" and not refresh:
            raise TokenRetiredError(
                "the key of the token is retired",
                hint="POST the token to /v1/tokens/refresh, and use the one in the answer",
            )
        verified = _read(body, key)
        found = verified.token.kind
        if kind not in {None, found}:
            fault = f"the token is of {_OF.get(found, f'kind {found}')}, not of {_OF[kind]}"
            raise TokenForeignError(fault, hint=f"Give a token of {_OF[kind]}, or begin without")
        return verified

    def _signature(self, key: Key, octets: bytes) -> bytes:
        # HMAC by its definition (RFC 2104): half the time of an object of hmac. Its function gives
        # up the interpreter's lock: the event loop signs a token per tile, and would wait that
        # often for the threads that compute.
        inner, outer = self._hashes[key.ident]
        inner, outer = inner.copy(), outer.copy()
        inner.update(octets)
        outer.update(inner.digest())
        return outer.digest()[:_SIGNATURE]


def _begun(secret: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the inner and the outer hash of an HMAC, which have read the key."""
    block = hashlib.sha256().block_size
    key = (hashlib.sha256(secret).digest() if len(secret) > block else secret).ljust(block, b"\0")
    inner, outer = (hashlib.sha256(bytes(k ^ pad for k in key)) for pad in (0x36, 0x5C))
    return inner, outer


def _decode(text: str) -> bytes:
    if len(text) > _MAX_CHARACTERS:
        raise TokenMalformedError(
            f"the token has {len(text)} characters, more than {_MAX_CHARACTERS}", hint=_WHOLE
        )
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        octets = b""
    # Of several texts with the same octets, one is canonical.
    if base64.urlsafe_b64encode(octets).rstrip(b"=").decode() != text:
        hint = _WHOLE if text == text.strip() else "Remove the space or line end around it"
        raise TokenMalformedError(
            "the token is cut or mistyped: not the base64 of a token", hint=hint
        )
    if len(octets) <= _FIXED + _SIGNATURE:
        raise TokenMalformedError("the token is too short", hint=_WHOLE)
    return octets


def _read(body: bytes, key: Key) -> Verified:
    try:
        minutes, *state = _read_varints(body[_FIXED:])
        issued = datetime.fromtimestamp(_EPOCH + 60 * minutes, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise TokenMalformedError(f"the token cannot be read: {e}") from e
    identity, fingerprint = body[3 : 3 + _DIGEST], body[3 + _DIGEST : _FIXED]
    return Verified(Token(body[2], identity, fingerprint, tuple(state)), key, issued)
