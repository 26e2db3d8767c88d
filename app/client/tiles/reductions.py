"""Reductions: what to do next, given what has happened. No input or output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..errors import ConnectionFailed, ProblemError, ProtocolError
from ..losses.rows import error_of
from ..transport.effects import Ask, Drop, Finish, Receive, Sleep, Steps
from ..transport.frames import Frame, FrameReader, Kind
from ..transport.refusals import refused
from ..transport.requests import Head, Request
from ..transport.retry import Backoff
from .plan import Array

_STATUS_OK = 200

Watch: TypeAlias = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


class Reducing:
    """Asks for one reduction until its results are there, from the beginning after a cut.

    Args:
        request: what to ask.
        backoff: decides on other tries.
        watch: called whenever the service says how far it is.

    Attributes:
        results: arrays by name, once all are there.
    """

    def __init__(self, request: Request, backoff: Backoff, watch: Watch | None) -> None:
        self._request = request
        self._backoff = backoff
        self._watch = watch
        self.results: dict[str, Array] = {}

    def run(self) -> Steps:
        """The effects.

        Raises:
            ProblemError: the service refused.
            ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
        """
        while True:
            self.results = {}
            try:
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                yield Drop()
                yield Sleep(self._backoff.delay(error))
            else:
                return

    def _attempt(self) -> Steps:
        head: Head = yield Ask(self._request)
        if head.status != _STATUS_OK:
            yield from refused(head)
        frames = FrameReader()
        frame: Frame | None = None
        while frame is None or frame.kind is not Kind.END:
            count: int = yield Receive(frames.buffer())
            if not count:
                raise ProtocolError("the answer was cut: it has no end")
            frame = frames.advance(count)
            if frame is not None:
                self._take(frame)
        reason = frame.header.get("reason")
        if reason == "drain":
            raise ConnectionFailed("the server is stopping")
        if reason != "complete" or not self.results:
            raise ProtocolError(f"the answer ended with {reason} and {len(self.results)} results")
        yield Finish()

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.ERROR:
            raise error_of(frame.header)
        if frame.kind is Kind.HEARTBEAT:
            self._beat(frame.header)
        elif frame.kind is Kind.DATA:
            name = frame.header.get("name")
            if not isinstance(name, str) or name in self.results:
                raise ProtocolError(f"a result has the name {name}")
            self.results[name] = frame.array(_name_of(frame.header))

    def _beat(self, header: Mapping[str, Any]) -> None:
        done, of = header.get("done"), header.get("of")
        if self._watch is not None and isinstance(done, int) and isinstance(of, int):
            self._watch(done, of)


def _name_of(header: Mapping[str, Any]) -> str:
    try:
        return str(header["arrays"][0]["name"])
    except (IndexError, KeyError, TypeError) as e:
        raise ProtocolError("a frame does not describe its array") from e
