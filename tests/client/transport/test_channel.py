"""Small requests, without a network and with either client."""

from __future__ import annotations

import pytest

from app.client.errors import ConnectionFailed, ProblemError
from app.client.transport.requests import Head, Reply, Request

from ..conftest import Connect
from ..fakes.channel import FakeChannel
from ..fakes.clock import FakeClock
from ..fakes.service import FakeService

GET = Request("GET", "/x")
DELETE = Request("DELETE", "/x")
CUT = ConnectionFailed("cut")
OK = Head(200, {})
GONE = Head(404, {})


def test_a_small_answer_is_read_whole() -> None:
    channel = FakeChannel(OK, b"{", b"}")
    assert channel.call(GET) == Reply(OK, b"{}")
    assert channel.log == [GET, "finish"]


def test_a_failure_drops_the_connection_before_the_pause() -> None:
    channel = FakeChannel(CUT, CUT, retries=1)
    with pytest.raises(ConnectionFailed):
        channel.call(GET)
    (pause,) = channel.pauses
    assert channel.log == [GET, "drop", pause, GET]


def test_a_problem_document_without_end_is_not_read_for_ever() -> None:
    channel = FakeChannel(b"x" * (1 << 20))
    with pytest.raises(ProblemError) as caught:
        channel.refuse(Head(400, {"content-type": "text/plain"}))
    assert caught.value.detail == "x" * 200
    assert channel.log == ["drop"]
    (left,) = channel.answers
    assert len(left) == (1 << 20) - (1 << 16)  # type: ignore[arg-type]


def test_an_answer_that_is_opened_follows() -> None:
    channel = FakeChannel(OK, b"rest")
    assert channel.open(GET) == OK
    assert channel.answers == [b"rest"]
    with pytest.raises(ProblemError):
        FakeChannel(Head(201, {})).open(GET)


def test_what_has_gone_by_a_later_try_counts_as_deleted() -> None:
    FakeChannel(Head(204, {})).call(DELETE)
    FakeChannel(CUT, GONE).call(DELETE)
    with pytest.raises(ProblemError):
        FakeChannel(GONE).call(DELETE)
    with pytest.raises(ProblemError):
        FakeChannel(CUT, Head(403, {})).call(DELETE)
    with pytest.raises(ConnectionFailed):
        FakeChannel(CUT, CUT, retries=1).call(DELETE)


def test_a_call_is_repeated(connect: Connect, clock: FakeClock) -> None:
    with FakeService() as service:
        client = connect(service, retries=3)
        assert client.tokens.refresh("1.2") == "1.0"
    with pytest.raises(ConnectionFailed):
        client.tokens.refresh("1.2")
    assert len(clock.pauses) == 3
