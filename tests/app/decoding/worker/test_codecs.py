"""Codecs give what zarr wrote, within bounds, or say why not."""

from __future__ import annotations

import gzip
from typing import Any

import google_crc32c
import numpy as np
import pytest
from backports.zstd import compress as zstd_compress
from numcodecs import blosc

from app.decoding.wire import RefusedError
from app.decoding.worker.codecs import parse_chain

VALUES = np.arange(2 * 3 * 4, dtype="<u2").reshape(2, 3, 4)
RAW = VALUES.tobytes()
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def decode(octets: bytes, *codecs: Any) -> Any:  # noqa: ANN401
    return parse_chain([BYTES, *codecs], VALUES.dtype, 3).decode(octets, VALUES.shape)


def crc(octets: bytes) -> bytes:
    checksum: int = google_crc32c.value(octets)
    return octets + checksum.to_bytes(4, "little")


SOUND = {
    "nothing": ((), RAW),
    "gzip": (("gzip",), gzip.compress(RAW)),
    "two members": (("gzip",), gzip.compress(RAW[:20]) + gzip.compress(RAW[20:]) + bytes(3)),
    "zstd": (("zstd",), zstd_compress(RAW)),
    "two frames": (("zstd",), zstd_compress(RAW[:20]) + zstd_compress(RAW[20:])),
    "blosc": (("blosc",), blosc.compress(RAW, b"lz4", 5, 1)),
    "checksum": (("crc32c",), crc(RAW)),
    "chain": (("zstd", "crc32c"), crc(zstd_compress(RAW))),
}


@pytest.mark.parametrize("how", SOUND)
def test_what_was_written_is_read(how: str) -> None:
    names, octets = SOUND[how]
    assert np.array_equal(decode(octets, *({"name": name} for name in names)), VALUES)


@pytest.mark.parametrize("how", SOUND)
def test_values_are_decoded_into_a_room_or_elsewhere(how: str) -> None:
    names, octets = SOUND[how]
    room = np.zeros_like(VALUES)
    chain = parse_chain([BYTES, *({"name": name} for name in names)], VALUES.dtype, 3)
    values = chain.decode(octets, VALUES.shape, room)
    assert np.array_equal(values, VALUES)
    assert (values is room) == (how in {"zstd", "chain"})


@pytest.mark.parametrize("code", ["<c8", "<f2", "|b1", ">f8"])
def test_every_dtype_has_a_room(code: str) -> None:
    values = np.arange(24).reshape(2, 12).astype(code)
    native = values.dtype.newbyteorder("=")
    endian = "big" if code.startswith(">") else "little"
    codecs = [{"name": "bytes", "configuration": {"endian": endian}}, {"name": "zstd"}]
    chain = parse_chain(codecs, native, 2)
    room = np.zeros(values.shape, native)
    decoded = chain.decode(zstd_compress(values.tobytes()), values.shape, room)
    assert np.array_equal(decoded, values)
    assert (decoded is room) == (endian == "little")


@pytest.mark.parametrize("octets", [zstd_compress(RAW)[:-3], zstd_compress(RAW) * 2, b"noise"])
def test_a_room_changes_no_refusal(octets: bytes) -> None:
    messages = []
    for room in (None, np.zeros_like(VALUES)):
        with pytest.raises(RefusedError) as caught:
            parse_chain([BYTES, {"name": "zstd"}], VALUES.dtype, 3).decode(
                octets, VALUES.shape, room
            )
        messages.append(caught.value.message)
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("names", "fixed"),
    [
        ((), 0),
        (("crc32c",), 4),
        (("crc32c", "crc32c"), 8),
        (("gzip",), None),
        (("gzip", "crc32c"), None),
        (("crc32c", "zstd"), None),
    ],
)
def test_only_checksums_have_a_size_that_is_known_before(
    names: tuple[str, ...], fixed: int | None
) -> None:
    chain = parse_chain([BYTES, *({"name": name} for name in names)], VALUES.dtype, 3)
    assert chain.fixed == fixed


def test_byte_order_and_axes() -> None:
    codecs = [
        {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
    ]
    octets = VALUES.transpose(2, 0, 1).astype(">u2").tobytes()
    chain = parse_chain(codecs, VALUES.dtype, 3)
    assert np.array_equal(chain.decode(octets, VALUES.shape), VALUES)


BOMB = bytes(10_000_000)
_SOUND = blosc.compress(RAW, b"lz4", 5, 1)
NOISE = _SOUND[:2] + bytes([_SOUND[2] & ~2]) + _SOUND[3:]
"""So short a content is only copied; the flag says that it is compressed."""
UNSOUND = {
    "short": ((), RAW[:-1], "47 bytes instead of 48"),
    "gzip cut": (("gzip",), gzip.compress(RAW)[:-9], "gzip: it is cut"),
    "gzip noise": (("gzip",), b"noise" * 9, "gzip: "),
    "gzip bomb": (("gzip",), gzip.compress(BOMB), "more than 48 bytes"),
    "zstd cut": (("zstd",), zstd_compress(RAW)[:-3], "zstd: "),
    "zstd noise": (("zstd",), b"noise" * 9, "zstd: "),
    "zstd bomb": (("zstd",), zstd_compress(BOMB), "more than 48 bytes"),
    "blosc bomb": (("blosc",), blosc.compress(BOMB, b"lz4", 5, 1), "more than 48 bytes"),
    "blosc cut": (("blosc",), blosc.compress(RAW, b"lz4", 5, 1)[:-5], "blosc: it is cut"),
    "blosc noise": (("blosc",), NOISE, "blosc: "),
    "blosc short": (("blosc",), b"\2\1", "blosc: it is cut"),
    "checksum": (("crc32c",), RAW + bytes(4), "checksum is wrong"),
    "no checksum": (("crc32c",), b"ab", "checksum is wrong"),
    "bomb behind another": (
        ("zstd", "gzip"),
        gzip.compress(zstd_compress(BOMB)),
        "more than 48 bytes",
    ),
}


@pytest.mark.parametrize("how", UNSOUND)
def test_what_was_not_is_refused(how: str) -> None:
    names, octets, says = UNSOUND[how]
    with pytest.raises(RefusedError, match=says):
        decode(octets, *({"name": name} for name in names))


@pytest.mark.parametrize(
    "codecs",
    [
        [],
        None,
        [{"name": "gzip"}, BYTES],
        [BYTES, BYTES],
        [BYTES, {"name": "transpose", "configuration": {"order": [0, 1, 2]}}],
        [BYTES, {"name": "numcodecs.pickle"}],
        [{"name": "bytes"}],
        [{"name": "bytes", "configuration": {"endian": "middle"}}],
        [{"name": "transpose", "configuration": {"order": [0, 0, 1]}}, BYTES],
        [{"name": "transpose", "configuration": {"order": "C"}}, BYTES],
    ],
)
def test_chains_that_make_no_sense(codecs: Any) -> None:  # noqa: ANN401
    with pytest.raises(RefusedError):
        parse_chain(codecs, VALUES.dtype, 3)
