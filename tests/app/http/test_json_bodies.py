"""JSON bodies of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from app.engine.buffers import Buffers
from app.errors import BadRequestError, BusyError, FramingError, StalledError, TooLargeError
from app.http.json_bodies import MAX_DEPTH, read_json
from app.server import body as server_body
from app.server.responses import Exchange
from tests.app.harness import PROBLEM, Post, Service, ask, is_problem


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


def nested(depth: int, *, arrays: bool) -> bytes:
    opening, closing = (b"[", b"]") if arrays else (b'{"a":', b"}")
    return b'{"view": ' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}"


@pytest.mark.parametrize("arrays", [True, False])
def test_nesting_has_a_limit(arrays: bool) -> None:
    assert read(Body(nested(MAX_DEPTH, arrays=arrays), 1000), limit=1 << 20)
    with pytest.raises(BadRequestError, match="more than 64 levels deep"):
        read(Body(nested(MAX_DEPTH + 1, arrays=arrays), 1000), limit=1 << 20)


@pytest.mark.parametrize("depth", [65, 500, 900, 1000, 1023, 1024, 3000])
@pytest.mark.parametrize("arrays", [True, False])
def test_no_route_fails_on_deep_json(service: Service, depth: int, arrays: bool) -> None:
    text = nested(depth, arrays=arrays)
    headers = [("Content-Type", "application/json")]
    paths = ["/v1/datasets", "/v1/pipelines", "/v1/tokens/inspect", "/v1/tokens/refresh"]
    paths += [f"/v1/datasets/x/{name}" for name in ("tiles", "plan", "views", "reduce")]
    for path in paths:
        answer = ask(service, Post(path, [text], headers))
        assert answer.status in {400, 422}, (path, answer.body[:300])
        assert answer.media_type == PROBLEM
    for name in ("view", "reduction"):
        query = urlencode({name: text.decode()})
        answer = service.get(f"/v1/datasets/x/image.png?{query}")
        assert answer.status in {400, 422, 431}, answer.body[:300]


@pytest.mark.parametrize(
    "excluded",
    [
        "[[1%s, 2]]" % ("0" * 30),
        "[[1e300, 0]]",
        "[[-1%s]]" % ("0" * 30),
        "[[1.5, 2]]",
        '["ab"]',
        "[[true, 1]]",
        "[[null]]",
        "[5]",
        "7",
        '[["1", "2"]]',
        "[[18446744073709551615, 0]]",
    ],
)
def test_coordinates_are_integers_of_a_sane_size(service: Service, excluded: str) -> None:
    text = f'{{"files": ["x.npy"], "corrections": {{"excluded": {excluded}}}}}'
    answer = ask(service, Post("/v1/datasets", [text.encode()]))
    found = is_problem(answer, "option", 422)
    assert found["option"] == "corrections.excluded"


def test_sizes_of_axes_are_numbers(service: Service) -> None:
    for size in ("1e999", "1" + "0" * 400, '"x"', "1e308"):
        text = f'{{"files": ["x.npy"], "axes": [{{"name": "y", "size": {size}}}]}}'
        answer = ask(service, Post("/v1/datasets", [text.encode()]))
        assert answer.status in {400, 403, 404, 422}, answer.body
