from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from app.client.errors import ConnectionFailed, ProblemError, ProtocolError
from app.client.transport.answers import FrameAnswer, call, checked, error_of, is_ready, refuse
from app.client.transport.effects import Ask, Drop, Finish, Receive, Sleep
from app.client.transport.frames import Frame, FrameReader, Kind
from app.client.transport.requests import Head, Reply, Request

from ..conftest import Connect
from ..fakes.clock import FakeClock
from ..fakes.frames import DATA, END, EPOCH, ERROR, HEARTBEAT, octets
from ..fakes.service import FakeService

GET = Request("GET", "/x")


def test_a_small_answer_is_read_whole() -> None:
    steps = call(GET, 0)
    assert next(steps) == Ask(GET)
    receive = steps.send(Head(200, {}))
    assert isinstance(receive, Receive)
    receive.view[:2] = b"{}"
    assert isinstance(steps.send(2), Receive)
    assert steps.send(0) == Finish()
    with pytest.raises(StopIteration) as stop:
        steps.send(None)
    assert stop.value.value == Reply(Head(200, {}), b"{}")


def test_a_failure_drops_the_connection_before_the_pause() -> None:
    steps = call(GET, 1)
    next(steps)
    assert steps.throw(ConnectionFailed("cut")) == Drop()
    assert isinstance(steps.send(None), Sleep)
    assert steps.send(None) == Ask(GET)
    with pytest.raises(ConnectionFailed):
        steps.throw(ConnectionFailed("cut"))


def test_a_problem_document_without_end_is_not_read_for_ever() -> None:
    steps = refuse(Head(400, {"content-type": "text/plain"}))
    effect: Any = next(steps)
    received = 0
    while isinstance(effect, Receive):
        effect.view[:] = b"x" * len(effect.view)
        received += len(effect.view)
        effect = steps.send(len(effect.view))
    assert effect == Drop()
    assert received == 1 << 16
    with pytest.raises(ProblemError) as caught:
        steps.send(None)
    assert caught.value.detail == "x" * 200


@pytest.mark.parametrize("status", [200, 201, 204, 304])
def test_statuses_of_success(status: int) -> None:
    reply = Reply(Head(status, {}), b"")
    assert checked(reply) is reply


@pytest.mark.parametrize("status", [301, 400, 404, 500])
def test_other_statuses(status: int) -> None:
    with pytest.raises(ProblemError):
        checked(Reply(Head(status, {}), b""))


def test_readiness() -> None:
    assert is_ready(Reply(Head(200, {}), b""))
    assert not is_ready(Reply(Head(503, {}), b""))
    assert not is_ready(Reply(Head(204, {}), b""))
    with pytest.raises(ProblemError):
        is_ready(Reply(Head(404, {}), b""))


def test_an_error_frame() -> None:
    error = error_of({"problem": {"status": 400, "code": "x"}, "token": "t", "offset": 3})
    assert (error.status, error.code, error.token, error.resume_offset) == (400, "x", "t", 3)
    for wrong in ({}, {"problem": 1}, {"problem": {"status": "x"}}):
        with pytest.raises(ProtocolError):
            error_of(wrong)


class Numbers(FrameAnswer[int, str]):
    """Frames that hold a number each."""

    def __init__(self) -> None:
        self.beats = 0

    def _data(self, frame: Frame) -> int:
        return int(frame.payload[0])

    def _finish(self, header: Mapping[str, Any]) -> None:
        self.end = str(header["reason"])

    def _beat(self, header: Mapping[str, Any]) -> None:  # noqa: ARG002 - of FrameAnswer
        self.beats += 1


def take(answer: Numbers, *frames: Any) -> list[int | None]:  # noqa: ANN401
    reader = FrameReader(answer.allocate)
    return [answer.take(frame) for frame in reader.receive(octets(list(frames)))]


BEAT: Any = (HEARTBEAT, {}, b"")
LAST = (END, {"reason": "complete"}, b"")


def test_heartbeats_anywhere() -> None:
    answer = Numbers()
    assert take(answer, BEAT, (DATA, {}, b"\7"), BEAT, BEAT, LAST, BEAT) == [
        None,
        7,
        None,
        None,
        None,
        None,
    ]
    assert (answer.beats, answer.end) == (4, "complete")


@pytest.mark.parametrize(
    "frames",
    [
        [LAST, (DATA, {}, b"\7")],
        [LAST, LAST],
        [(EPOCH, {}, b"")],
        [(HEARTBEAT, {}, b"x")],
        [(END, {"reason": "complete"}, b"x")],
        [(ERROR, {}, b"")],
    ],
    ids=["data-after-end", "two-ends", "epoch", "beat-payload", "end-payload", "error"],
)
def test_frames_that_must_not_come(frames: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        take(Numbers(), *frames)


def test_an_end_of_the_bytes_is_not_the_end_of_the_answer() -> None:
    steps = Numbers().receive(FrameReader())
    assert isinstance(next(steps), Receive)
    with pytest.raises(ProtocolError, match="cut"):
        steps.send(0)


def test_a_frame_that_is_taken_after_the_end() -> None:
    answer = Numbers()
    answer.end = "complete"
    with pytest.raises(ProtocolError, match="after the end"):
        answer.take(Frame(Kind.DATA, False, {}, np.zeros(1, np.uint8)))


def test_a_call_is_repeated(connect: Connect, clock: FakeClock) -> None:
    with FakeService() as service:
        client = connect(service, retries=3)
        assert client.tokens.refresh("1.2") == "1.0"
    with pytest.raises(ConnectionFailed):
        client.tokens.refresh("1.2")
    assert len(clock.pauses) == 3
