"""The first bytes of a stream, made and read."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import HeaderError, LimitError, UnsupportedStreamError
from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.header import header_bytes, parse_header, restored_header, saved_header
from core.losses.policy import Policy

POLICY = Policy(max_samples=1000, float_width=8)

HEADERS = [
    (StreamHeader(Kind.GUL, 1, 1, 10, None, 8), "01000001 0a000000"),
    (StreamHeader(Kind.GUL, 2, 1, 1, None, 8), "02000001 01000000"),
    (StreamHeader(Kind.LOSS, 1, 2, 1000, None, 8), "01000002 e8030000"),
    (StreamHeader(Kind.SUMMARY, 1, 3, 10, 7, 8), "01000003 0a000000 07000000"),
    (StreamHeader(Kind.SUMMARY, 1, 3, 10, 0, 8), "01000003 0a000000 00000000"),
    (StreamHeader(Kind.SUMMARY, 1, 3, 10, -2, 8), "01000003 0a000000 feffffff"),
]


@pytest.mark.parametrize(("header", "octets"), HEADERS)
def test_headers_are_frozen(header: StreamHeader, octets: str) -> None:
    data = bytes.fromhex(octets)
    assert header_bytes(header) == data
    assert parse_header(data + b"\1\0\0\0", POLICY, None) == header
    for size in range(len(data)):
        assert parse_header(data[:size], POLICY, None) is None


@pytest.mark.parametrize(
    ("octets", "error", "offset"),
    [
        ("01000000", UnsupportedStreamError, 0),
        ("02000000", HeaderError, 0),
        ("03000001", HeaderError, 0),
        ("02000002", HeaderError, 0),
        ("02000003", HeaderError, 0),
        ("01000004", HeaderError, 0),
        ("01010001", HeaderError, 0),
        ("01000001 00000000", HeaderError, 4),
        ("01000001 ffffffff", HeaderError, 4),
        ("01000001 e9030000", LimitError, 4),
        ("01000003 e9030000 00000000", LimitError, 4),
    ],
)
def test_what_is_no_header(octets: str, error: type[HeaderError], offset: int) -> None:
    with pytest.raises(error) as caught:
        parse_header(bytes.fromhex(octets), POLICY, "b.bin")
    assert (caught.value.offset, caught.value.source) == (offset, "b.bin")


@pytest.mark.parametrize("header", [header for header, _ in HEADERS])
def test_a_header_of_a_state_comes_back(header: StreamHeader) -> None:
    assert restored_header(POLICY, *saved_header(header)) == header


@pytest.mark.parametrize(
    "values",
    [
        ("loss", 1, 1, 10, None),
        ("gul", 3, 1, 10, None),
        ("gul", 1, 2, 10, None),
        ("gul", 1, 4, 10, None),
        ("cdf", 1, 0, 10, None),
        ("gul", 1, 1, 0, None),
        ("gul", 1, 1, 1001, None),
        ("summary", 1, 3, 10, 2**31),
        ("summary", 1, 3, 10, -(2**31) - 1),
    ],
)
def test_headers_of_a_state_that_cannot_be(values: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"."):
        restored_header(POLICY, *values)
    for number in (None, 1.0, "1"):
        with pytest.raises(TypeError):
            restored_header(POLICY, "gul", 1, 1, number, None)  # type: ignore[arg-type]


def test_the_edges_of_a_header_of_a_state() -> None:
    for samples in (1, 1000):
        assert restored_header(POLICY, "gul", 2, 1, samples, None).len_sample == samples
    for summary_set in (-(2**31), 2**31 - 1):
        assert restored_header(POLICY, "summary", 1, 3, 1, summary_set).summary_set == summary_set
