"""Checksums and digests that clients send with bytes: Upload-Checksum, Content- and Repr-Digest."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from app.errors import BadRequestError
from app.run_errors import ChecksumError, DigestError
from core.slices import Hash, digest

TUS_ALGORITHMS = ("sha1", "sha256", "crc32")
"""Algorithms of Upload-Checksum."""
DIGEST_ALGORITHMS = ("sha-256", "sha-512")
"""Algorithms of Content-Digest and Repr-Digest."""
Checksum = tuple[str, bytes]
"""Algorithm, and what it has to give."""
_MEMBER = re.compile(r"([a-z0-9*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):(?:;[^,]*)?")


class _Hash(Hash, Protocol):
    """What digests bytes, and has their digest."""

    def digest(self) -> bytes: ...


class _Crc32:
    """CRC-32, four bytes, the most significant first."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


_HASHES: dict[str, Callable[[], _Hash]] = {
    # What tus requires; it guards against accidents alone.
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "crc32": _Crc32,
    "sha-256": hashlib.sha256,
    "sha-512": hashlib.sha512,
}


def parse_checksum(text: str) -> tuple[str, bytes]:
    """Return the algorithm and the checksum in an Upload-Checksum.

    Raises:
        BadRequestError: it is malformed, or the algorithm is not supported.
    """
    name, _, encoded = text.strip().partition(" ")
    if name not in TUS_ALGORITHMS:
        raise BadRequestError(
            f"Upload-Checksum has the algorithm {name[:40]!r}",
            hint=f"Use one of {', '.join(TUS_ALGORITHMS)}",
        )
    return name, _decoded(encoded.strip(), name, "Upload-Checksum")


def parse_digest(text: str, header: str) -> tuple[Checksum, ...]:
    """Return the digests in a Content-Digest or Repr-Digest, all of which have to be right.

    Returns:
        None of them if it has no algorithm that is supported: others are to be ignored.

    Raises:
        BadRequestError: it is malformed.
    """
    found = {}
    for part in text.split(","):
        match = _MEMBER.fullmatch(part.strip())
        if match is None:
            raise BadRequestError(
                f"{header} is {text[:80]!r}", hint="Send one such as sha-256=:…base64…:"
            )
        found[match[1]] = match[2]
    names = [name for name in DIGEST_ALGORITHMS if name in found]
    return tuple((name, _decoded(found[name], name, header)) for name in names)


def _decoded(encoded: str, algorithm: str, header: str) -> bytes:
    try:
        value = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != len(_HASHES[algorithm]().digest()):
        raise BadRequestError(f"{header} has no {algorithm} in base64")
    return value


def _wrong(expected: Sequence[Checksum], pieces: Iterable[memoryview]) -> str | None:
    """Return the first algorithm whose checksum of bytes in pieces is not the expected one."""
    hashes = [_HASHES[algorithm]() for algorithm, _ in expected]
    for piece in pieces if hashes else ():
        for hashed in hashes:
            digest(hashed, piece, "checksum")
    for (algorithm, value), hashed in zip(expected, hashes, strict=True):
        if not hmac.compare_digest(hashed.digest(), value):
            return algorithm
    return None


def check_bytes(expected: Sequence[Checksum], data: memoryview) -> None:
    """Compare the checksums of an append with those sent with it.

    Raises:
        ChecksumError, DigestError: one differs; the latter for algorithms of Content-Digest.
    """
    algorithm = _wrong(expected, [data])
    if algorithm is None:
        return
    error = ChecksumError if algorithm in TUS_ALGORITHMS else DigestError
    raise error(
        f"the {algorithm} of the {len(data)} bytes is not the one sent with them",
        hint="They changed on the way: send them again",
    )


def check_digest(header: str, pieces: Iterable[memoryview]) -> None:
    """Compare a whole stream with the Repr-Digest of its creation.

    Raises:
        DigestError: they differ.
    """
    algorithm = _wrong(parse_digest(header, "Repr-Digest"), pieces)
    if algorithm is not None:
        raise DigestError(
            f"the {algorithm} of the stream is not that of its Repr-Digest",
            hint="Delete the upload, and upload the stream again",
        )
