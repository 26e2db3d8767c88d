"""Reading answers: small ones whole, long ones frame by frame, refusals as errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from ..errors import ProblemError, ProtocolError, ThalwegError, problem_error
from .effects import Ask, Drop, Finish, Receive, Sleep, Steps
from .frames import Frame, FrameReader, Kind, Octets
from .requests import Head, Reply, Request
from .retry import Backoff

T = TypeVar("T")
E = TypeVar("E")

STATUS_OK = 200
_STATUS_NOT_MODIFIED = 304
_STATUS_NOT_FOUND = 404
_STATUS_UNAVAILABLE = 503

_PIECE_SIZE = 1 << 16
_PROBLEM_SIZE = 1 << 16
"""Bytes of a problem document that are read."""
_REPLY_SIZE = 128 << 20
"""Bytes of a small answer that are read: one about a view repeats its mask or list."""


def exchange(request: Request) -> Steps[Reply]:
    """Send a small request and read its whole answer, whatever its status."""
    return (yield from answer_to(Ask(request)))


def answer_to(ask: Ask) -> Steps[Reply]:
    """Send a request and read its whole, small answer, whatever its status."""
    head: Head = yield ask
    body = yield from _read(_REPLY_SIZE)
    return Reply(head, body)


def call(request: Request, retries: int) -> Steps[Reply]:
    """Send a small request until it is answered.

    Args:
        request: to send.
        retries: failures to tolerate.

    Raises:
        ProblemError: the service refused it.
        ConnectionFailed: the service could not be reached.
    """
    backoff = Backoff(retries)
    while True:
        try:
            return checked((yield from exchange(request)))
        except ThalwegError as error:
            delay = backoff.delay(error)
        yield Drop()
        yield Sleep(delay)


def delete(request: Request, retries: int) -> Steps[None]:
    """Send a DELETE until it is answered.

    An earlier try may have succeeded though its answer was lost: what has gone by a later
    one counts as deleted.

    Raises:
        ProblemError: the service refused it.
        ConnectionFailed: the service could not be reached.
    """
    backoff = Backoff(retries)
    lost = False
    while True:
        try:
            checked((yield from exchange(request)))
        except ThalwegError as error:
            if lost and isinstance(error, ProblemError) and error.status == _STATUS_NOT_FOUND:
                return
            delay = backoff.delay(error)
            lost = True
        else:
            return
        yield Drop()
        yield Sleep(delay)


def checked(reply: Reply) -> Reply:
    """The reply, if its status is one of success.

    Raises:
        ProblemError: it is not.
    """
    status = reply.head.status
    if status // 100 == 2 or status == _STATUS_NOT_MODIFIED:  # noqa: PLR2004 - success
        return reply
    raise _problem(reply.head, reply.body)


def is_ready(reply: Reply) -> bool:
    """Whether an answer about readiness says yes.

    Raises:
        ProblemError: it is not such an answer.
    """
    if reply.head.status == _STATUS_UNAVAILABLE:
        return False
    return checked(reply).head.status == STATUS_OK


def refuse(head: Head) -> Steps[None]:
    """Read the problem document that follows a head, and raise it.

    Raises:
        ProblemError: always.
    """
    body = yield from _read(_PROBLEM_SIZE)
    raise _problem(head, body)


def _read(limit: int) -> Steps[bytes]:
    """Read an answer to its end, or drop what exceeds the limit."""
    body = bytearray()
    piece = memoryview(bytearray(_PIECE_SIZE))
    while len(body) < limit:
        count: int = yield Receive(piece)
        if not count:
            yield Finish()
            return bytes(body)
        body += piece[:count]
    yield Drop()
    return bytes(body)


def _problem(head: Head, body: bytes) -> ProblemError:
    headers = head.headers
    return problem_error(
        head.status, body, headers.get("content-type", ""), headers.get("retry-after")
    )


def error_of(header: Mapping[str, Any]) -> ProblemError:
    """The error that an ERROR frame reports.

    Raises:
        ProtocolError: its header does not describe one.
    """
    problem = header.get("problem")
    if not isinstance(problem, dict):
        raise ProtocolError("an ERROR frame does not say what is wrong")
    status = problem.get("status", 500)
    if not isinstance(status, int):
        raise ProtocolError("an ERROR frame has no status")
    position = {"token": header.get("token"), "resume_offset": header.get("offset")}
    return ProblemError(status, position | problem)


class FrameAnswer(ABC, Generic[T, E]):
    """Checks and interprets the frames of one answer.

    HEARTBEAT frames may come between any two others and mean nothing more than that the
    service is at work. An END frame is the last; without one the answer was cut.

    Attributes:
        end: how the answer ended, once it has.
    """

    end: E | None = None

    def allocate(self, kind: Kind, header: dict[str, Any], size: int) -> Octets:
        """Memory for a payload: what FrameReader asks for before it reads one.

        Raises:
            ProtocolError: this frame must not come here.
        """
        if self.end is not None and kind is not Kind.HEARTBEAT:
            raise ProtocolError("frames came after the end")
        if kind is Kind.DATA:
            return self._memory(header, size)
        if size:
            raise ProtocolError(f"a frame {kind.name} has a payload")
        return np.empty(0, np.uint8)

    def take(self, frame: Frame) -> T | None:
        """The item that a frame holds or completes, if any.

        Raises:
            ProblemError: it is an ERROR frame.
            ProtocolError: it is malformed, or must not come here.
        """
        if frame.kind is Kind.HEARTBEAT:
            self._beat(frame.header)
            return None
        if self.end is not None:
            raise ProtocolError("frames came after the end")
        if frame.kind is Kind.ERROR:
            raise error_of(frame.header)
        if frame.kind is Kind.END:
            return self._finish(frame.header)
        if frame.kind is Kind.EPOCH:
            return self._epoch()
        return self._data(frame)

    def receive(self, frames: FrameReader) -> Steps[T | None]:
        """Receive bytes up to the end of a frame at most; the item, if it holds one.

        Raises:
            ProblemError, ProtocolError: as for ``take``; the answer ended too early.
        """
        count: int = yield Receive(frames.buffer())
        if not count:
            raise ProtocolError("the answer was cut: it has no end")
        frame = frames.advance(count)
        return None if frame is None else self.take(frame)

    def _memory(self, header: dict[str, Any], size: int) -> Octets:  # noqa: ARG002 - for others
        """Memory for the payload of a DATA frame, whose checksum is not verified yet."""
        return np.empty(size, np.uint8)

    @abstractmethod
    def _data(self, frame: Frame) -> T | None:
        """Take a DATA frame."""

    @abstractmethod
    def _finish(self, header: Mapping[str, Any]) -> T | None:
        """Take the END frame: set ``end``."""

    def _epoch(self) -> T | None:
        raise ProtocolError("an EPOCH frame came where there are no epochs")

    def _beat(self, header: Mapping[str, Any]) -> None:
        """Take a HEARTBEAT frame."""
