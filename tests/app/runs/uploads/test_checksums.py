"""Checksums and digests that come with bytes."""

from __future__ import annotations

import base64
import hashlib
import zlib

import pytest

from app.errors import BadRequestError
from app.run_errors import ChecksumError, DigestError
from app.runs.uploads.checksums import check_bytes, check_digest, parse_checksum, parse_digest

DATA = memoryview(b"some bytes")
SHA = base64.b64encode(hashlib.sha256(DATA).digest()).decode()


def test_each_algorithm_takes_its_own_checksum() -> None:
    values = {
        "sha1": hashlib.sha1(DATA, usedforsecurity=False).digest(),
        "sha256": hashlib.sha256(DATA).digest(),
        "crc32": zlib.crc32(DATA).to_bytes(4, "big"),
    }
    for name, value in values.items():
        parsed = parse_checksum(f"{name} {base64.b64encode(value).decode()}")
        assert parsed == (name, value)
        check_bytes([parsed], DATA)
        with pytest.raises(ChecksumError):
            check_bytes([parsed], DATA[1:])


@pytest.mark.parametrize("text", ["", "sha1", "md5 AAAA", "sha1 AAAA", "sha1 !", "crc32 AAAAA"])
def test_other_checksums_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_checksum(text)


def test_all_known_digests_count() -> None:
    assert parse_digest("md5=:AAAA:, crc32c=:AAAA:", "Content-Digest") == ()
    parsed = parse_digest(f"unixsum=:AAA=:, sha-256=:{SHA}:", "Content-Digest")
    assert parsed == (("sha-256", hashlib.sha256(DATA).digest()),)
    check_bytes(parsed, DATA)
    with pytest.raises(DigestError):
        check_bytes(parsed, DATA[1:])
    wrong = base64.b64encode(hashlib.sha512(b"other").digest()).decode()
    both = f"sha-256=:{SHA}:, sha-512=:{wrong}:"
    with pytest.raises(DigestError, match="sha-512"):
        check_bytes(parse_digest(both, "Content-Digest"), DATA)
    with pytest.raises(DigestError, match="sha-512"):
        check_digest(both, [DATA])
    for text in ("", "sha-256", f"sha-256={SHA}", "sha-256=:AAAA:", "sha-256=:!:"):
        with pytest.raises(BadRequestError):
            parse_digest(text, "Content-Digest")


def test_a_stream_has_the_digest_of_its_pieces() -> None:
    check_digest(f"sha-256=:{SHA}:", [DATA[:3], DATA[3:]])
    check_digest("md5=:AAAA:", [DATA])
    with pytest.raises(DigestError):
        check_digest(f"sha-256=:{SHA}:", [DATA[:3]])
