"""A channel without a network, which follows a script and notes what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from app.client.transport.channel import Channel
from app.client.transport.requests import Head, Job, Request
from app.client.transport.retry import Outage

T = TypeVar("T")


class FakeChannel(Channel):
    """Answers in turn with a head or an error, and with the bytes that follow a head.

    Attributes:
        log: what was called, in order.
    """

    def __init__(self, *answers: Head | bytes | Exception, retries: int = 3) -> None:
        self.retries, self.outage = retries, Outage()
        self.answers = list(answers)
        self.log: list[Any] = []

    def _next(self) -> Any:  # noqa: ANN401 - what the script says
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(self, request: Request) -> Head:
        self.log.append(request)
        head: Head = self._next()
        return head

    def receive(self, view: memoryview) -> int:
        if not self.answers or not isinstance(self.answers[0], bytes):
            return 0
        data: bytes = self._next()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        if data[count:]:
            self.answers.insert(0, data[count:])
        return count

    def finish(self) -> None:
        self.log.append("finish")

    def drop(self) -> None:
        self.log.append("drop")

    def sleep(self, seconds: float) -> None:
        self.log.append(seconds)

    def work(self, function: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:  # noqa: ARG002 - of Channel
        return function()

    def abandon(self) -> None:
        self.log.append("abandon")

    def beside(self, operation: Callable[[Channel], Any]) -> Job:
        raise NotImplementedError

    def join(self, job: Any) -> Any:  # noqa: ANN401 - of Channel
        raise NotImplementedError

    def close(self) -> None:
        self.log.append("close")

    @property
    def pauses(self) -> list[float]:
        return [each for each in self.log if isinstance(each, float)]
