"""Compressed bodies that are damaged, dishonest or too large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from backports.zstd import CompressionParameter
from backports.zstd import compress as zstd_compress

from tests.app.conftest import KEY, MAX_BODY
from tests.app.harness import (
    MIB,
    STATUS,
    Contract,
    Post,
    Service,
    ask,
    compress_whole,
    is_problem,
    peak_of,
)
from tests.app.losses.posts import good, repetitive
from tests.streams import Block


def test_a_bomb_that_is_a_valid_stream(service: Service) -> None:
    headers = [("Content-Encoding", "zstd")]
    bomb = zstd_compress(repetitive(80 * MIB))
    answer, peak = peak_of(service, Post("/v1/losses/events", [bomb], headers))
    is_problem(answer, "decompression-bomb", resume_offset=0)
    assert peak < 32 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_bombs_of_zeros(service: Service, guarded: Service, coding: str) -> None:
    headers = [("Content-Encoding", coding)]
    bomb = compress_whole(coding, bytes(200 * MIB))
    answer, peak = peak_of(service, Post("/v1/losses/events", [bomb], headers))
    is_problem(answer, "stream-header", offset=0)
    assert peak < 32 * MIB
    headers.append(("Authorization", f"Bearer {KEY}"))
    post = Post("/v1/inputs/quantiles", [bomb], headers, method="PUT")
    answer, peak = peak_of(guarded, post)
    is_problem(answer, "decompression-bomb")
    # Inputs are held in memory, this one as far as any body may be decoded.
    assert peak < 160 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_is_as_small_but_honest_is_taken(service: Service, coding: str) -> None:
    honest = repetitive(32 * MIB)
    post = Post(
        "/v1/losses/events", [compress_whole(coding, honest)], [("Content-Encoding", coding)]
    )
    answer, peak = peak_of(service, post)
    assert answer.status == 200
    assert answer.getheader("Thalweg-Bytes") == str(len(honest))
    assert peak < 32 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_many_empty_frames(service: Service, coding: str) -> None:
    """They are refused like a bomb; what they cost until then, ``test_decompression`` tells."""
    frame = compress_whole(coding, b"")
    data = good().encode()
    for frames, status in ((1000, 200), (4 * MIB // len(frame), 413)):
        body = frame * frames + compress_whole(coding, data)
        answer = ask(service, Post("/v1/losses/melt", [body], [("Content-Encoding", coding)]))
        assert answer.status == status, answer.body
    is_problem(answer, "decompression-bomb")


def damaged_bodies(coding: str, data: bytes) -> Iterator[bytes]:
    body = compress_whole(coding, data)
    yield from (body[:size] for size in (1, 5, 12, len(body) // 2, len(body) - 5, len(body) - 1))
    yield data
    yield b"\0" + body
    yield body + b"\0"
    yield body + b"garbage"
    yield body + body[:7]
    yield body[:20] + bytes(octet ^ 0x55 for octet in body[20:40]) + body[40:]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_damaged_compression(service: Service, contract: Contract, coding: str) -> None:
    blocks = [Block(e, 1, ((1, float(e * 7919 % 1013)),)) for e in range(1, 50)]
    data = good().with_blocks(blocks).encode()
    headers = [("Content-Encoding", coding)]
    for body in damaged_bodies(coding, data):
        answer = ask(service, Post("/v1/losses/melt", [body], headers))
        contract.check("POST", "/v1/losses/melt", answer)
        # What is decoded before the damage is noticed is looked at first.
        assert answer.status in {400, 422}, body
        assert answer.json()["code"] in STATUS
    for body in (b"\x1f", b"\x28\xb5", b"garbage, all of it", data):
        answer = ask(service, Post("/v1/losses/melt", [body], headers))
        is_problem(answer, "content-encoding", resume_offset=0)
    # Several frames, one after the other, are one stream.
    pieces = [compress_whole(coding, data[at : at + 100]) for at in range(0, len(data), 100)]
    answer = ask(service, Post("/v1/losses/melt", [b"".join(pieces)], headers))
    assert answer.status == 200
    assert answer.body == ask(service, Post("/v1/losses/melt", [data])).body


def test_a_window_that_is_too_large(service: Service) -> None:
    options: dict[int, int] = {
        CompressionParameter.window_log: 27,
        CompressionParameter.checksum_flag: 1,
    }
    body = zstd_compress(repetitive(9 * MIB), options=options)
    answer = ask(service, Post("/v1/losses/events", [body], [("Content-Encoding", "zstd")]))
    # A frame that tells its size is no larger than that.
    assert answer.status == 200 or is_problem(answer, "content-encoding")


@pytest.mark.parametrize(
    "codings", [["br"], ["deflate"], ["gzip, gzip"], ["gzip", "zstd"], ["gzip", "gzip"], ["\xff"]]
)
def test_an_unknown_coding(service: Service, contract: Contract, codings: Sequence[str]) -> None:
    headers = [("Content-Encoding", coding) for coding in codings]
    for method, path in (("POST", "/v1/losses/melt"), ("PUT", "/v1/inputs/quantiles")):
        answer = ask(service, Post(path, [good().encode()], headers, method=method))
        is_problem(contract.check(method, path, answer), "unsupported-encoding")


def test_a_body_that_is_too_large(guarded: Service) -> None:
    key = ("Authorization", f"Bearer {KEY}")
    data = good("loss").with_blocks([Block(e, 1) for e in range(1, MAX_BODY // 16)]).encode()
    assert len(data) < MAX_BODY
    for body, status in ((data, 200), (data + bytes(MAX_BODY), 413)):
        for coding in (None, "gzip", "zstd"):
            headers = [key] if coding is None else [key, ("Content-Encoding", coding)]
            sent = body if coding is None else compress_whole(coding, body)
            for sized in (True, False):
                answer = ask(guarded, Post("/v1/losses/events", [sent], headers, sized))
                assert answer.status == status or answer.json()["code"] == "event-id"
                if answer.status == 413:
                    found = is_problem(answer, "too-large", limit="body", allowed=MAX_BODY)
                    assert found["setting"] == "THALWEG_MAX_BODY"
    large = data + b"".join(
        good("loss").encode_block(Block(e, 1)) for e in range(MAX_BODY, MAX_BODY + 100)
    )
    assert len(large) > MAX_BODY
    answer = ask(guarded, Post("/v1/losses/events", [large], [key]))
    assert "Upload-Complete" in is_problem(answer, "too-large", resume_offset=0)["hint"]
