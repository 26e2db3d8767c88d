"""What answers say: success or refusal, and items frame by frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from ..errors import ProblemError, ProtocolError, problem_error
from .frames import Frame, Kind, Octets
from .requests import Reply

T = TypeVar("T")
E = TypeVar("E")

STATUS_OK = 200
_STATUS_NOT_MODIFIED = 304
_STATUS_UNAVAILABLE = 503


def checked(reply: Reply) -> Reply:
    """The reply, if its status is one of success.

    Raises:
        ProblemError: it is not.
    """
    status = reply.head.status
    if status // 100 == 2 or status == _STATUS_NOT_MODIFIED:  # noqa: PLR2004 - success
        return reply
    raise problem_error(status, reply.body, reply.head.headers)


def is_ready(reply: Reply) -> bool:
    """Whether an answer about readiness says yes.

    Raises:
        ProblemError: it is not such an answer.
    """
    if reply.head.status == _STATUS_UNAVAILABLE:
        return False
    return checked(reply).head.status == STATUS_OK


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
