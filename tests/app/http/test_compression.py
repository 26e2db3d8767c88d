"""Answers compressed while they are sent."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from backports.zstd import ZstdDecompressor

from app.http.compression import CODINGS, compressor


def decoder(coding: str) -> Callable[[bytes], bytes]:
    """A decoder that gives every byte it can know."""
    if coding == "gzip":
        return zlib.decompressobj(31).decompress
    return ZstdDecompressor().decompress


@pytest.mark.parametrize("coding", CODINGS)
def test_everything_can_be_decoded_after_a_flush(coding: str) -> None:
    sender, decode = compressor(coding), decoder(coding)
    pieces = [bytes([letter]) * 1000 * letter for letter in b"abc"]
    for piece in pieces:
        assert decode(sender.compress(piece, flush=True)) == piece
    assert decode(sender.end()) == b""


@pytest.mark.parametrize("coding", CODINGS)
def test_without_flushes_the_end_completes_the_answer(coding: str) -> None:
    sender, decode = compressor(coding), decoder(coding)
    sent = [sender.compress(b"row\n" * 1000, flush=False) for _ in range(50)]
    sent.append(sender.end())
    assert decode(b"".join(sent)) == b"row\n" * 50_000
    assert sum(map(len, sent)) < 5000


@pytest.mark.parametrize("coding", CODINGS)
def test_an_empty_answer(coding: str) -> None:
    assert decoder(coding)(compressor(coding).end()) == b""
