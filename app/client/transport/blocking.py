"""Doing what effects say, with blocking calls."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import ThalwegError
from ..losses.sources import Source
from .effects import (
    ITEMS,
    Ask,
    Call,
    Drop,
    Effect,
    Fill,
    Finish,
    Item,
    Receive,
    Release,
    Send,
    Skip,
    Sleep,
    Steps,
)
from .http import Connection, Pool
from .requests import Head


@dataclass(frozen=True, slots=True)
class SourceBody:
    """A range of a source as the body of a request."""

    source: Source
    start: int
    stop: int | None

    @property
    def length(self) -> int | None:
        """Bytes of the range, if known."""
        stop = self.source.size if self.stop is None else self.stop
        return None if stop is None else stop - self.start

    def views(self) -> Iterator[memoryview]:
        """The pieces of the range."""
        return self.source.views(self.start, self.stop)

    def interrupt(self) -> None:
        """Make a thread that waits for a piece stop."""
        self.source.interrupt()


class AnswerPort:
    """Does what the effects of one stream of answers say.

    Args:
        pool: of connections.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: Connection | None = None

    def perform(self, effect: Effect) -> Any:  # noqa: ANN401 - each effect has its own answer
        """Do one thing, and give what came of it.

        Raises:
            ThalwegError: it did not succeed.
        """
        match effect:
            case Receive():
                return self._used().receive(effect.view)
            case Ask():
                self._connection = self._pool.take()
                return self._connection.send(effect.request)
            case Finish():
                self._finish()
            case Drop():
                self.drop()
            case Sleep():
                time.sleep(effect.seconds)
            case Call():
                return self._pool.call(effect.request)
        return None

    def _used(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - for the type checker
        return self._connection

    def _finish(self) -> None:
        connection, self._connection = self._used(), None
        if connection.finish():
            self._pool.give(connection)

    def drop(self) -> None:
        """Close the connection in use."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection in use."""
        self.drop()


class BlockingPort(AnswerPort):
    """Does what the effects of one post say.

    Args:
        pool: of connections.
        source: what is posted; closed with the port.
    """

    def __init__(self, pool: Pool, source: Source) -> None:
        super().__init__(pool)
        self._closed = False
        self.source = source

    def perform(self, effect: Effect) -> Any:  # noqa: ANN401 - as above
        """Do one thing, and give what came of it.

        Raises:
            ThalwegError: it did not succeed.
        """
        match effect:
            case Skip():
                self.source.skip(effect.offset, effect.passed)
            case Fill():
                return self.source.fill(effect.stop)
            case Send():
                return self._send(effect)
            case Release():
                self.source.release(effect.offset)
            case _:
                return super().perform(effect)
        return None

    def _send(self, effect: Send) -> Head:
        self._connection = self._pool.take()
        body = SourceBody(self.source, effect.start, effect.stop)
        return self._connection.send(effect.request, body, duplex=effect.duplex)

    def hang_up(self) -> None:
        """Make a thread that performs something notice that it is over."""
        if self._connection is not None:
            self._connection.hang_up()
        self.source.interrupt()

    def close(self) -> None:
        """Close the connection in use, and the source."""
        if not self._closed:
            self._closed = True
            self.drop()
            self.source.close()


def drive(steps: Steps, port: AnswerPort) -> Generator[Item, None, None]:
    """Do what the steps say, and hand out what is for the consumer."""
    result: Any = None
    fault: ThalwegError | None = None
    try:
        while True:
            try:
                effect = steps.throw(fault) if fault else steps.send(result)
            except StopIteration:
                return
            result = fault = None
            if isinstance(effect, ITEMS):
                yield effect
                continue
            try:
                result = port.perform(effect)
            except ThalwegError as e:
                fault = e
    finally:
        steps.close()
        port.close()
