"""Auxiliary files for tests: the peer's, packed ones, and how a faulty one is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import InputError

CONFORMANCE = Path(__file__).resolve().parents[2] / "shared" / "conformance"


def conformance(name: str) -> bytes:
    """A file of the peer's fixtures; skips the test where they are absent."""
    path = CONFORMANCE / "oasis" / name
    if not path.exists():
        pytest.skip(f"no conformance data at {path}")
    return path.read_bytes()


def packed_occurrence(*records: tuple[int, int, int], options: int = 1, periods: int = 10) -> bytes:
    """An occurrence file of (event, period, date id)."""
    record = "<iiq" if options & 2 else "<iii"
    return struct.pack("<ii", options, periods) + b"".join(
        struct.pack(record, *fields) for fields in records
    )


def assert_refused(
    message: str, offset: int | None, parse: Callable[..., object], *args: object
) -> None:
    """Assert that ``parse`` names the file, the place and the fix."""
    with pytest.raises(InputError) as caught:
        parse(*args, source="the-file")
    error = caught.value
    assert str(error).startswith(f"the-file: {message}")
    assert error.source == "the-file"
    assert error.offset == offset
    assert error.hint
