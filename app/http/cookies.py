"""Sign-in for browsers: a cookie that stands for a key, and is none.

It is a token: signed with the keys that every replica has, and dated. It carries the digest of an
API key, which is looked up at each request as that of a key sent along is, so it ends with its key,
and after twelve hours. Nobody can make a key of it. A browser sends it only from pages of the
service (``SameSite=Strict``), shows it to no script (``HttpOnly``), and over TLS takes it from no
other host (``__Host-``, ``Secure``). It counts only for requests that come from such pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from app.errors import ServiceError
from app.tokens import KIND_SESSION, KeyRing, Token

from .origins import Origins

SECONDS = 12 * 3600
_EARLY = 60
"""Seconds by which the clocks of replicas may differ."""
_READS = frozenset({"GET", "HEAD"})
_PART = 16
"""Hexadecimal digits of a digest in each of four numbers."""


class Cookies:
    """Makes and reads the cookies of a service.

    Args:
        keys: sign them.
        origins: tell which requests may use one.
        clock: the time in seconds since 1970.
    """

    def __init__(
        self, keys: KeyRing, origins: Origins, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self.origins = origins
        self._clock = clock

    def issue(self, digest: str, scheme: str) -> str:
        """Return the value of Set-Cookie that signs in with the key of a digest."""
        parts = [digest[at : at + _PART] for at in range(0, len(digest), _PART)]
        first, second = (bytes.fromhex(part) for part in parts[:2])
        rest = tuple(int(part, 16) for part in parts[2:])
        text = self._keys.sign(Token(KIND_SESSION, first, second, rest))
        return _set(text, SECONDS, scheme)

    def end(self, scheme: str) -> str:
        """Return the value of Set-Cookie that signs out."""
        return _set("", 0, scheme)

    def digest(self, method: str, scheme: str, headers: Mapping[str, str]) -> str | None:
        """Return the digest of the key that a request is signed in with; None if it is not."""
        header = headers.get("cookie")
        if header is None:
            return None
        # Not by the library, which gives up all of them for one that another service has set.
        parts = (part.strip().partition("=") for part in header.split(";"))
        text = next((value for name, _, value in parts if name == _name(scheme)), None)
        if text is None or not self.origins.is_own(headers, absent=method in _READS):
            return None
        try:
            verified = self._keys.verify(text)
        except ServiceError:
            return None
        if verified.token.kind != KIND_SESSION:
            return None
        if not -_EARLY <= self._clock() - verified.issued.timestamp() < SECONDS:
            return None
        token = verified.token
        return (token.identity + token.fingerprint).hex() + "".join(
            f"{number:0{_PART}x}" for number in token.state
        )


def _name(scheme: str) -> str:
    return "__Host-thalweg" if scheme == "https" else "thalweg"


def _set(text: str, seconds: int, scheme: str) -> str:
    secure = "; Secure" if scheme == "https" else ""
    return f"{_name(scheme)}={text}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"
