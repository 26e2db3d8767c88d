from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from app.client.errors import ProblemError, ProtocolError
from app.client.transport.frames import Frame, FrameAnswer, Kind, error_of
from app.client.transport.requests import Head, Reply, checked, is_ready

from ..fakes.frames import DATA, END, EPOCH, ERROR, HEARTBEAT, BytesReader, octets


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
    reader = BytesReader(answer.allocate)
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


def test_a_frame_that_is_taken_after_the_end() -> None:
    answer = Numbers()
    answer.end = "complete"
    with pytest.raises(ProtocolError, match="after the end"):
        answer.take(Frame(Kind.DATA, False, {}, np.zeros(1, np.uint8)))
