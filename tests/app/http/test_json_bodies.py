"""JSON bodies of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from app.engine.buffers import Buffers
from app.errors import BadRequestError, BusyError, FramingError, StalledError, TooLargeError
from app.http.json_bodies import read_json
from app.server import body as server_body
from app.server.responses import Exchange


@dataclass
class Body:
    """A body that arrives a few bytes at a time, and may fail at its end."""

    data: bytes
    piece: int = 7
    failure: Exception | None = None

    async def read_into(self, view: memoryview) -> int:
        piece, self.data = self.data[: self.piece], self.data[self.piece :]
        if not piece and self.failure is not None:
            raise self.failure
        view[: len(piece)] = piece
        return len(piece)


@dataclass
class Request:
    body: Body


def read(body: Body, buffers: Buffers | None = None, limit: int = 100) -> Mapping[str, Any]:
    request = cast("Exchange", Request(body))
    return asyncio.run(read_json(request, buffers or Buffers(1, 4096), limit))


def test_an_object_in_pieces() -> None:
    assert read(Body(b'{"id": "scan", "files": ["a", "b"]}')) == {"id": "scan", "files": ["a", "b"]}


@pytest.mark.parametrize("text", [b"", b" \r\n\t"])
def test_nothing_is_an_empty_object(text: bytes) -> None:
    assert read(Body(text)) == {}


@pytest.mark.parametrize("text", [b"{", b"[]", b"5", b"null", b'"x"', b"\xff", b'{"a": 1}x'])
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(BadRequestError, match="the body is"):
        read(Body(text))


def test_the_limit_counts_every_byte() -> None:
    text = b'{"a": "' + b"x" * 91 + b'"}'
    assert len(text) == 100
    assert read(Body(text))
    with pytest.raises(TooLargeError, match="longer than 100 bytes"):
        read(Body(text + b" "))


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (server_body.BodyStalled("no byte"), StalledError),
        (server_body.FramingError("bad chunk"), FramingError),
    ],
)
def test_a_body_that_does_not_arrive(failure: Exception, expected: type[Exception]) -> None:
    buffers = Buffers(1, 4096)
    with pytest.raises(expected):
        read(Body(b"{", failure=failure), buffers)
    assert buffers.out == 0


def test_without_a_buffer_the_server_is_busy() -> None:
    buffers = Buffers(1, 4096)
    taken = buffers.take(1)
    with pytest.raises(BusyError):
        read(Body(b"{}"), buffers)
    buffers.give_back(taken)
    assert read(Body(b"{}"), buffers) == {}
