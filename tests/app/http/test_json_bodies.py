"""JSON bodies of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from app.engine.ledger import Ledger
from app.engine.workers import Workers
from app.errors import (
    BadRequestError,
    BusyError,
    FramingError,
    InvalidOptionError,
    StalledError,
    TooLargeError,
    problem_of,
)
from app.http.bodies import MinimumRate
from app.http.identity import Identity
from app.http.json_bodies import MAX_DEPTH, JsonBodies, json_response
from app.server import body as server_body
from app.server.responses import Exchange
from tests.app.harness import PROBLEM, Post, Service, ask, compress_whole, is_problem

MIB = 1 << 20
ALICE = Identity("alice", frozenset())


@dataclass
class Body:
    """A body that arrives a few bytes at a time, and may fail at its end."""

    data: bytes
    piece: int = 7
    failure: Exception | None = None

    async def wait(self) -> None:
        """Wait for nothing."""

    def in_thread(self) -> None:
        """Have no socket."""

    async def read_into(self, view: memoryview) -> int:
        piece, self.data = self.data[: self.piece], self.data[self.piece :]
        if not piece and self.failure is not None:
            raise self.failure
        view[: len(piece)] = piece
        return len(piece)


@dataclass
class Request:
    body: Body


def read(
    body: Body,
    ledger: Ledger | None = None,
    limit: int = 100,
    rate: MinimumRate = MinimumRate(0),  # noqa: B008 - immutable
    *,
    optional: bool = False,
) -> Mapping[str, Any]:
    """The JSON of a body; afterwards the ledger must hold nothing of it."""
    ledger = ledger or Ledger(MIB, MIB)
    threads = Workers(1)

    async def run() -> Mapping[str, Any]:
        request = cast("Exchange", Request(body))
        bodies = JsonBodies(ledger, threads, rate)
        async with bodies.read(request, ALICE, limit, optional=optional) as values:
            return values

    try:
        return asyncio.run(run())
    finally:
        threads.close()
        assert ledger._tally.of("alice") == 0


def test_an_object_in_pieces() -> None:
    assert read(Body(b'{"id": "scan", "files": ["a", "b"]}')) == {"id": "scan", "files": ["a", "b"]}


@pytest.mark.parametrize("text", [b"", b" \r\n\t"])
def test_nothing_is_an_empty_object_where_a_body_is_optional(text: bytes) -> None:
    assert read(Body(text), optional=True) == {}
    with pytest.raises(BadRequestError, match="the body is empty"):
        read(Body(text))


@pytest.mark.parametrize("text", [b"{", b"[]", b"5", b"null", b'"x"', b"\xff", b'{"a": 1}x'])
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(BadRequestError, match="the body is"):
        read(Body(text))


@pytest.mark.parametrize("text", [b'{"a": 1, "b": 2, "a": 1}', b'{"c": [{"a": {}, "a": [1]}]}'])
def test_members_are_given_once(text: bytes) -> None:
    with pytest.raises(InvalidOptionError, match="'a' is given twice"):
        read(Body(text))
    assert read(Body(b'{"a": {"a": [{"a": 1}]}}')) == {"a": {"a": [{"a": 1}]}}


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_body_is_told_so(coding: str) -> None:
    with pytest.raises(BadRequestError, match="not JSON") as caught:
        read(Body(compress_whole(coding, b'{"a": 1}')))
    assert "without Content-Encoding" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (b"{'op': 'sum'}", "from character 2 on, \"'op': 'sum'}\"", "in double quotes"),
        (b'{"op": sum}', "from character 8 on, 'sum}'", "in double quotes"),
        (b'{"op": NaN}', "from character 8 on, 'NaN}'", "JSON has no NaN"),
        (b'{"op": -Infinity}', "from character 9 on, 'Infinity}'", "give a number"),
        (b'{"op": "sum"', "it ends too early", ""),
        (b'{"op": "\xff"}', "its bytes are not UTF-8", ""),
        (b'{"op": [1 2]}', "from character 11 on, '2]}'", ""),
    ],
)
def test_where_a_text_is_no_json_is_said_without_words_of_a_library(
    text: bytes, said: str, hint: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(Body(text))
    assert str(caught.value) == f"the body is not JSON: {said}"
    assert hint in (caught.value.hint or "")
    assert bool(hint) == bool(caught.value.hint)


def test_a_number_that_is_too_large_is_json() -> None:
    with pytest.raises(BadRequestError, match="a number that is too large: from"):
        read(Body(b'{"a": 1e999}'))


def test_the_limit_counts_every_byte() -> None:
    text = b'{"a": "' + b"x" * 91 + b'"}'
    assert len(text) == 100
    assert read(Body(text))
    with pytest.raises(TooLargeError, match="larger than 100 bytes"):
        read(Body(text + b" "))


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (server_body.BodyStalled("no byte"), StalledError),
        (server_body.FramingError("bad chunk"), FramingError),
    ],
)
def test_a_body_that_does_not_arrive(failure: Exception, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        read(Body(b"{", failure=failure))


def test_without_memory_the_server_is_busy() -> None:
    ledger = Ledger(2 * MIB, MIB)
    others = [ledger.hold(owner, MIB, "bodies") for owner in ("bob", "carol")]
    with pytest.raises(BusyError):
        read(Body(b"{}"), ledger)
    others[0].release()
    assert read(Body(b"{}"), ledger) == {}


def test_a_body_that_trickles_is_cut_after_a_grace() -> None:
    rate = MinimumRate(10**9, grace=0.0)
    with pytest.raises(StalledError, match="less than 1000000000 bytes per second") as caught:
        read(Body(b'{"a": 1}'), rate=rate)
    assert problem_of(caught.value).members["setting"] == "THALWEG_MIN_RATE"
    assert read(Body(b'{"a": 1}'), rate=MinimumRate(10**9, grace=1000.0)) == {"a": 1}


def test_objects_count_as_the_memory_they_take() -> None:
    text = b'{"a": [' + b",".join([b"[]"] * 10_000) + b"]}"
    ledger = Ledger(MIB, MIB)
    with pytest.raises(TooLargeError, match="one owner may hold"):
        read(Body(text, 1000), ledger, 100_000)
    assert read(Body(text, 1000), Ledger(4 * MIB, 4 * MIB), 100_000)


def nested(depth: int, *, arrays: bool) -> bytes:
    opening, closing = (b"[", b"]") if arrays else (b'{"a":', b"}")
    return b'{"view": ' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}"


@pytest.mark.parametrize("arrays", [True, False])
def test_nesting_has_a_limit(arrays: bool) -> None:
    assert read(Body(nested(MAX_DEPTH, arrays=arrays), 1000), limit=1 << 20)
    for depth in (MAX_DEPTH + 1, 5000):
        with pytest.raises(BadRequestError, match="more than 64 levels deep"):
            read(Body(nested(depth, arrays=arrays), 1000), limit=1 << 20)


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


def test_what_was_encoded_before_is_sent_as_it_is() -> None:
    assert json_response(b'{"a":1}').body == json_response({"a": 1}).body == b'{"a":1}'
