"""Compressed bodies in any cuts: the same bytes, or what is wrong with them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backports import zstd

from app.errors import BombError, CodingError, TooLargeError, UnsupportedCodingError
from app.http import decompression
from app.http.compression import CODINGS, compressor
from app.http.decompression import decoder, zstd_window

PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "zstd": zstd.decompress}
DATA = np.random.default_rng(1).integers(0, 40, 3_000_000, np.uint8).tobytes()


def decode(coding: str | None, sent: bytes, step: int = 1 << 20, limit: int | None = None) -> bytes:
    found = decoder(coding, limit)
    pieces = [
        bytes(piece)
        for at in range(0, len(sent), step)
        for piece in found.decode(memoryview(sent)[at : at + step])
    ]
    found.end()
    return b"".join(pieces)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("step", [1, 999, 1 << 20])
def test_any_cut_decodes_the_same(coding: str, step: int) -> None:
    data = DATA[:2000] if step == 1 else DATA
    pack = PACK[coding]
    sent = pack(data) + pack(b"") + pack(b"tail")
    assert decode(coding, sent, step) == data + b"tail"


@pytest.mark.parametrize("coding", [None, "identity", "Identity"])
def test_plain_bodies_pass(coding: str | None) -> None:
    assert decode(coding, DATA) == DATA


def test_a_damaged_byte_is_told_in_words() -> None:
    for coding in ("gzip", "x-gzip", "X-GZIP"):
        sent = bytearray(PACK["gzip"](DATA))
        assert decode(coding, bytes(sent)) == DATA
        sent[-7] ^= 0x55
        with pytest.raises(CodingError, match=r"^the body is not valid gzip: Incorrect checksum"):
            decode(coding, bytes(sent))


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_cut_body_is_noticed_wherever_it_is_cut(coding: str) -> None:
    sent = PACK[coding](DATA[:300])
    for size in range(1, len(sent)):
        with pytest.raises(CodingError):
            decode(coding, sent[:size])


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_garbage_is_refused(coding: str) -> None:
    with pytest.raises(CodingError):
        decode(coding, b"this is not compressed")
    sent = PACK[coding](b"abc")
    for junk in (b"behind it", bytes(80), sent[:1] + b"?", b"("):
        for step in (1, 99):
            follow = "follow" if junk[:1] != sent[:1] or len(junk) > 1 else "ends inside"
            with pytest.raises(CodingError, match=follow) as caught:
                decode(coding, sent + junk, step)
            assert caught.value.members.get("offset", len(sent)) == len(sent)


def test_zstd_frames_that_are_to_be_skipped_are() -> None:
    skipped = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    for step in (1, 99):
        assert decode("zstd", zstd.compress(b"abc") + skipped, step) == b"abc"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_bombs_stop_early(coding: str) -> None:
    bomb = PACK[coding](bytes(300 << 20))
    found = decoder(coding, None)
    seen: list[int] = []
    with pytest.raises(BombError):
        seen.extend(len(piece) for piece in found.decode(memoryview(bomb)))
    assert sum(seen) < 200 << 20
    assert max(seen) <= 1 << 20


@pytest.mark.parametrize(("coding", "size"), [("gzip", 20), ("zstd", 9)])
def test_beginning_a_frame_counts_however_little_is_in_it(coding: str, size: int) -> None:
    """As 8 KiB: 64 MiB may be decoded, and 200 bytes for each one sent."""
    empty = PACK[coding](b"")
    assert len(empty) == size
    most = (64 << 20) // ((8 << 10) - 200 * size)
    assert decode(coding, empty * most) == b""
    with pytest.raises(BombError, match="too many frames"):
        decode(coding, empty * (most + 1))


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_short_frame_is_not_handed_all_that_follows(
    coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decoder would copy it: gigabytes for a megabyte of frames."""
    handed: list[int] = []
    pieces = decompression._Compressed._pieces

    def counted(self: Any, frame: Any, data: Any) -> Any:  # noqa: ANN401 - as of the class
        handed.append(len(data))
        return pieces(self, frame, data)

    monkeypatch.setattr(decompression._Compressed, "_pieces", counted)
    frames = 5000
    assert decode(coding, PACK[coding](b"") * frames + PACK[coding](b"a")) == b"a"
    assert len(handed) == frames + 1
    assert max(handed) <= 4 << 10


def test_large_windows_are_refused() -> None:
    option = zstd.CompressionParameter.window_log
    wide = zstd.ZstdCompressor(options={option: 27})
    sent = wide.compress(b"a" * 1000) + wide.flush()
    with pytest.raises(CodingError):
        decode("zstd", sent)


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
def test_a_limit_counts_decoded_bytes(coding: str | None) -> None:
    sent = PACK[coding](DATA) if coding else DATA
    assert decode(coding, sent, limit=len(DATA)) == DATA
    with pytest.raises(TooLargeError):
        decode(coding, sent, limit=len(DATA) - 1)


def test_other_codings_are_named() -> None:
    with pytest.raises(UnsupportedCodingError, match="'br'"):
        decoder("br", None)
    with pytest.raises(UnsupportedCodingError):
        decoder("gzip, zstd", None)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("flush", [True, False])
def test_answers_compress_and_come_back(coding: str, flush: bool) -> None:
    made = compressor(coding)
    sent = b"".join(
        made.compress(DATA[at : at + 99_999], flush=flush) for at in range(0, len(DATA), 99_999)
    )
    assert UNPACK[coding](sent + made.end()) == DATA


@pytest.mark.parametrize("coding", CODINGS)
def test_flushed_bytes_can_be_read_at_once(coding: str) -> None:
    made = compressor(coding)
    sent = made.compress(b"first row\n", flush=True)
    assert (
        b"".join(bytes(p) for p in decoder(coding, None).decode(memoryview(sent))) == b"first row\n"
    )


def packed_with_window(log: int, data: bytes) -> bytes:
    wide = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
    return wide.compress(data) + wide.flush()


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_the_largest_window_of_all_frames_is_charged_once(step: int) -> None:
    """Of frames in a single segment, too, whose window is their length."""
    charged: list[int] = []
    sent = b"".join(packed_with_window(log, b"a" * 10) for log in (15, 23, 20))
    sent = zstd.compress(bytes(300)) + zstd.compress(b"") + sent
    found = decoder("zstd", None, charged.append)
    got = [
        bytes(piece)
        for at in range(0, len(sent), step)
        for piece in found.decode(memoryview(sent)[at : at + step])
    ]
    found.end()
    assert b"".join(got) == bytes(300) + b"a" * 30
    assert charged == [300, (1 << 15) - 300, (1 << 23) - (1 << 15)]


def test_a_window_that_is_refused_reaches_no_decoder() -> None:
    def refuse(_: int) -> None:
        raise TooLargeError("no room", limit="window", allowed=0, setting=None)

    found = decoder("zstd", None, refuse)
    with pytest.raises(TooLargeError, match="no room"):
        list(found.decode(memoryview(packed_with_window(22, b"a"))))


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_a_short_frame_has_yielded_is_not_yielded_again(coding: str) -> None:
    """Whether its decoder is kept or not, each piece comes once, and as soon as it can."""
    parts = [DATA[at : at + 500] for at in range(0, 20_000, 500)]
    made = compressor(coding)
    sent = [made.compress(part, flush=True) for part in parts]
    found = decoder(coding, None)
    for piece, part in zip(sent, parts, strict=True):
        assert b"".join(bytes(p) for p in found.decode(memoryview(piece))) == part
    assert list(found.decode(memoryview(made.end()))) == []
    found.end()


@pytest.mark.parametrize(
    ("flags", "rest", "window"),
    [
        (0x00, b"\x00", 1 << 10),
        (0x00, b"\x0b", (1 << 11) + 3 * (1 << 8)),
        (0x20, b"\x05", 5),
        (0x21, b"\xff\x05", 5),
        (0x22, b"\xff\xff\x05", 5),
        (0x23, b"\xff\xff\xff\xff\x05", 5),
        (0x60, b"\x05\x01", 0x105 + 256),
        (0xA0, b"\x05\x00\x01\x00", 0x10005),
        (0xE0, (1 << 40).to_bytes(8, "little"), 1 << 40),
        (0x60, b"\x05", 0),
        (0xE0, bytes(7), 0),
    ],
)
def test_a_frame_says_which_window_it_demands(flags: int, rest: bytes, window: int) -> None:
    assert zstd_window(b"\x28\xb5\x2f\xfd" + bytes([flags]) + rest) == window
    assert zstd_window(b"\x28\xb5\x2f\xfe" + bytes([flags]) + rest) == 0
