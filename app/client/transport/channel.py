# Made from async_channel.py by deploy/unasync.py (make fmt): change that one.
"""What an operation says to the service and hears from it.

Operations are written once, for asyncio, against the channel described here;
``deploy/unasync.py`` makes the blocking client from them. Two channels are written by hand:
one sends with httpx and lets functions that may block run in a thread, the other with blocking
calls in the caller's thread::

    operation                                   channel
      head = channel.send(request)  ──▶     takes a connection, sends, reads the head
      count = channel.receive(buffer) ──▶   fills the buffer
      channel.finish()              ──▶     keeps the connection for the next request
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar

from ..errors import ProtocolError, ThalwegError, problem_error
from .requests import STATUS_OK, Head, Job, Reply, Request, checked, query_of
from .retry import Backoff, Outage

T = TypeVar("T")

_STATUS_NOT_FOUND = 404
_PIECE_SIZE = 1 << 16
_PROBLEM_SIZE = 1 << 16
"""Bytes of a problem document that are read."""
_REPLY_SIZE = 128 << 20
"""Bytes of a small answer that are read: one about a view repeats its mask or list."""


class Closing(ABC):
    """A context manager that is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Channel(Closing):
    """Exchanges requests and answers for one operation, on one connection at a time.

    Attributes:
        retries: failures in a row to tolerate.
        outage: of the client.
    """

    retries: int
    outage: Outage

    def backoff(self) -> Backoff:
        """How long an operation waits after its failures."""
        return Backoff(self.retries, outage=self.outage)

    @abstractmethod
    def send(self, request: Request) -> Head:
        """Send a request and read the head of its answer.

        Raises:
            ConnectionFailed: the connection could not be opened, or broke.
        """

    @abstractmethod
    def receive(self, view: memoryview) -> int:
        """Fill a view with the next bytes of the answer; their number, 0 at the end.

        Raises:
            ConnectionFailed: the connection broke, or the answer was cut.
        """

    @abstractmethod
    def finish(self) -> None:
        """The answer has been read: keep the connection for another request."""

    @abstractmethod
    def drop(self) -> None:
        """The rest of the answer is not wanted: close the connection and stop sending."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""

    @abstractmethod
    def work(self, function: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:
        """Run a function that may block; its result.

        Args:
            function: reads or writes files, pipes or memory.
            interrupt: makes the function return early. Without it, a cancelled operation waits
                for the function, so that its files can be closed safely.
        """

    @abstractmethod
    def beside(self, operation: Callable[[Channel], Any]) -> Job:
        """Run an operation beside this one, with a channel of its own; what ``join`` takes."""

    @abstractmethod
    def join(self, job: Any) -> Any:  # noqa: ANN401 - one that ``beside`` returned
        """Wait for an operation beside this one; what it returned, or raised."""

    @abstractmethod
    def abandon(self) -> None:
        """Nobody waits for the operation any more: have what runs beside it give up soon."""

    def exchange(self, request: Request) -> Reply:
        """Send a request and read its whole, small answer, whatever its status."""
        head = self.send(request)
        return Reply(head, self.read(_REPLY_SIZE))

    def ask(self, request: Request) -> Reply:
        """Send a small request once; its answer.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        return checked(self.exchange(request))

    def call(self, request: Request) -> Reply:
        """Send a small request until it is answered.

        An earlier try may have succeeded though its answer was lost: what has gone by a later
        DELETE counts as deleted.

        Raises:
            ProblemError, ConnectionFailed: as for ``ask``.
        """
        backoff = self.backoff()
        while True:
            try:
                reply = self.exchange(request)
                gone = request.method == "DELETE" and reply.head.status == _STATUS_NOT_FOUND
                return reply if gone and backoff.failures else checked(reply)
            except ThalwegError as error:
                delay = backoff.delay(error)
            self.pause(delay)

    def pause(self, seconds: float) -> None:
        """Close the connection, and wait before another try."""
        self.drop()
        self.sleep(seconds)

    def open(self, request: Request) -> Head:
        """Send a request; the head of its answer, which follows.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        head = self.send(request)
        if head.status != STATUS_OK:
            self.refuse(head)
        return head

    def refuse(self, head: Head) -> None:
        """Read the problem document that follows a head, and raise it.

        Raises:
            ProblemError: always.
        """
        raise problem_error(head.status, self.read(_PROBLEM_SIZE), head.headers)

    def read(self, limit: int) -> bytes:
        """Read an answer to its end, or drop what exceeds the limit."""
        body = bytearray()
        piece = memoryview(bytearray(_PIECE_SIZE))
        while len(body) < limit:
            count = self.receive(piece)
            if not count:
                self.finish()
                return bytes(body)
            body += piece[:count]
        self.drop()
        return bytes(body)


class Connector(Closing):
    """Opens the channels of one client."""

    url: str
    """Address of the service."""

    @abstractmethod
    def blocking(self) -> Any:  # noqa: ANN401 - SocketConnector, which is of a later layer
        """The ``SocketConnector`` to the same service: for other threads; its copies, processes."""

    @abstractmethod
    def channel(self, *, workers: int = 1, release: Callable[[], None] | None = None) -> Channel:
        """A channel for one operation.

        Args:
            workers: operations that may run at once beside it.
            release: called when the channel is closed and nothing uses it any more.
        """

    def call(self, request: Request) -> Reply:
        """Send a small request until it is answered.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        with self.channel() as channel:
            return channel.call(request)

    def ids(self, kind: str) -> list[str]:
        """Ids of all resources of a kind, such as ``datasets``, in order.

        Raises:
            ProblemError, ConnectionFailed: as for ``call``.
            ProtocolError: as for ``pages``.
        """
        found = pages(self.call, f"/v1/{kind}", kind, str, item_type=str)
        return list(found)


def pages(
    ask: Callable[[Request], Reply],
    path: str,
    member: str,
    parse: Callable[[Any], T],
    *,
    item_type: type[object] = dict,
) -> Generator[T, None, None]:
    """Yield the items of all pages of a list.

    Args:
        ask: sends a request.
        path: of the list.
        member: of the answer, which holds the items.
        parse: makes an item of its JSON value.
        item_type: type of these values.

    Raises:
        ProblemError, ConnectionFailed: a page did not come.
        ProtocolError: it is not one, or the pages do not go on: they would never end.
    """
    after = ""
    while True:
        query = query_of(limit=1000, after=after or None)
        page = (ask(Request("GET", path + query))).json()
        items = page.get(member)
        if not isinstance(items, list) or not all(isinstance(item, item_type) for item in items):
            raise ProtocolError(f"the answer is no list of {member}")
        for item in items:
            yield parse(item)
        last, after = after, page.get("after") or ""
        if not after:
            return
        if not isinstance(after, str) or after <= last:
            raise ProtocolError(f"the list of {member} does not go on after {last[:80]!r}")


class Calls:
    """Some of a client's calls.

    Args:
        connector: of the client.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
