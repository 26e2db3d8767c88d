"""Ranges of something of a known length."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest
from starlette.datastructures import Headers

from app.engine.workers import Workers
from app.errors import DataChangedError, RangeError
from app.server.responses import Exchange
from app.streams.ahead import GROUP_BYTES
from app.streams.plain import Piece, Whole, send_range
from tests.app.streams.fakes import PATIENCE, FakeExchange

CONTENT = bytes(range(256)) * 3
ETAG = '"e"'


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


def pieces(start: int, stop: int) -> Iterator[Piece]:
    for at in range(start, stop, 100):
        yield Piece(CONTENT[at : min(at + 100, stop)])


def answer(workers: Workers, whole: Whole, *, body: bool = True, **headers: str) -> FakeExchange:
    exchange = FakeExchange()
    requested = Headers({name.replace("_", "-"): value for name, value in headers.items()})

    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            await send_range(cast("Exchange", exchange), whole, requested, workers, body=body)

    asyncio.run(run())
    return exchange


WHOLE = Whole(len(CONTENT), ETAG, {"Content-Type": "application/octet-stream"}, pieces)


def test_everything(workers: Workers) -> None:
    found = answer(workers, WHOLE)
    assert (found.status, found.length, found.data) == (200, len(CONTENT), CONTENT)
    assert found.headers["ETag"] == ETAG
    assert found.headers["Accept-Ranges"] == "bytes"
    assert "Content-Range" not in found.headers


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=5-", 5, 768), ("bytes=-3", 765, 768), ("bytes=99-999", 99, 768)],
)
def test_a_range(workers: Workers, text: str, start: int, stop: int) -> None:
    found = answer(workers, WHOLE, range=text)
    assert (found.status, found.length) == (206, stop - start)
    assert found.headers["Content-Range"] == f"bytes {start}-{stop - 1}/768"
    assert found.data == CONTENT[start:stop]


def test_a_range_of_another_content_is_everything(workers: Workers) -> None:
    assert answer(workers, WHOLE, range="bytes=5-6", if_range='"other"').status == 200
    assert answer(workers, WHOLE, range="bytes=5-6", if_range=ETAG).status == 206


def test_a_range_beyond_the_end_is_refused(workers: Workers) -> None:
    with pytest.raises(RangeError):
        answer(workers, WHOLE, range="bytes=768-")


def test_what_the_client_has_is_not_sent(workers: Workers) -> None:
    found = answer(workers, WHOLE, if_none_match=ETAG)
    assert (found.status, found.data) == (304, b"")


@pytest.mark.parametrize("headers", [{}, {"range": "bytes=1-2"}, {"range": "bytes=768-"}])
def test_headers_alone_are_those_of_everything(workers: Workers, headers: dict[str, str]) -> None:
    found = answer(workers, WHOLE, body=False, **headers)
    assert (found.status, found.length, found.data) == (200, 768, b"")


def failing(after: int) -> Whole:
    def broken(_start: int, _stop: int) -> Iterator[Piece]:
        if after:
            yield Piece(bytes(after))
        raise DataChangedError("the file changed", hint="Begin anew")

    return Whole(2 * GROUP_BYTES, ETAG, {}, broken)


def test_a_failure_before_the_first_byte_is_a_problem(workers: Workers) -> None:
    with pytest.raises(DataChangedError):
        answer(workers, failing(0))


def test_a_later_failure_breaks_the_answer_off(workers: Workers) -> None:
    found = answer(workers, failing(GROUP_BYTES))
    assert (found.aborted, found.ended) == (True, False)
