"""What an operation says to the service and hears from it.

Operations are written once, for asyncio, against the channel described here;
``deploy/unasync.py`` makes the blocking client from them. Two channels are written by hand:
one sends with httpx and lets functions that may block run in a thread, the other with blocking
calls in the caller's thread::

    operation                                   channel
      head = await channel.send(request)  ──▶     takes a connection, sends, reads the head
      count = await channel.receive(buffer) ──▶   fills the buffer
      await channel.finish()              ──▶     keeps the connection for the next request
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
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


class AsyncClosing(ABC):
    """An asynchronous context manager that is closed at its end."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release all resources."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncChannel(AsyncClosing):
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
    async def send(self, request: Request) -> Head:
        """Send a request and read the head of its answer.

        Raises:
            ConnectionFailed: the connection could not be opened, or broke.
        """

    @abstractmethod
    async def receive(self, view: memoryview) -> int:
        """Fill a view with the next bytes of the answer; their number, 0 at the end.

        Raises:
            ConnectionFailed: the connection broke, or the answer was cut.
        """

    @abstractmethod
    async def finish(self) -> None:
        """The answer has been read: keep the connection for another request."""

    @abstractmethod
    async def drop(self) -> None:
        """The rest of the answer is not wanted: close the connection and stop sending."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""

    @abstractmethod
    async def work(
        self, function: Callable[[], T], interrupt: Callable[[], None] | None = None
    ) -> T:
        """Run a function that may block, away from the event loop; its result.

        Args:
            function: reads or writes files, pipes or memory.
            interrupt: makes the function return early. Without it, a cancelled operation waits
                for the function, so that its files can be closed safely.
        """

    @abstractmethod
    def beside(self, operation: Callable[[AsyncChannel], Awaitable[Any]]) -> Job:
        """Run an operation beside this one, with a channel of its own; what ``join`` takes."""

    @abstractmethod
    async def join(self, job: Any) -> Any:  # noqa: ANN401 - one that ``beside`` returned
        """Wait for an operation beside this one; what it returned, or raised."""

    @abstractmethod
    def abandon(self) -> None:
        """Nobody waits for the operation any more: have what runs beside it give up soon."""

    async def exchange(self, request: Request) -> Reply:
        """Send a request and read its whole, small answer, whatever its status."""
        head = await self.send(request)
        return Reply(head, await self.read(_REPLY_SIZE))

    async def ask(self, request: Request) -> Reply:
        """Send a small request once; its answer.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        return checked(await self.exchange(request))

    async def call(self, request: Request) -> Reply:
        """Send a small request until it is answered.

        An earlier try may have succeeded though its answer was lost: what has gone by a later
        DELETE counts as deleted.

        Raises:
            ProblemError, ConnectionFailed: as for ``ask``.
        """
        backoff = self.backoff()
        while True:
            try:
                reply = await self.exchange(request)
                gone = request.method == "DELETE" and reply.head.status == _STATUS_NOT_FOUND
                return reply if gone and backoff.failures else checked(reply)
            except ThalwegError as error:
                delay = backoff.delay(error)
            await self.pause(delay)

    async def pause(self, seconds: float) -> None:
        """Close the connection, and wait before another try."""
        await self.drop()
        await self.sleep(seconds)

    async def open(self, request: Request) -> Head:
        """Send a request; the head of its answer, which follows.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        head = await self.send(request)
        if head.status != STATUS_OK:
            await self.refuse(head)
        return head

    async def refuse(self, head: Head) -> None:
        """Read the problem document that follows a head, and raise it.

        Raises:
            ProblemError: always.
        """
        raise problem_error(head.status, await self.read(_PROBLEM_SIZE), head.headers)

    async def read(self, limit: int) -> bytes:
        """Read an answer to its end, or drop what exceeds the limit."""
        body = bytearray()
        piece = memoryview(bytearray(_PIECE_SIZE))
        while len(body) < limit:
            count = await self.receive(piece)
            if not count:
                await self.finish()
                return bytes(body)
            body += piece[:count]
        await self.drop()
        return bytes(body)


class AsyncConnector(AsyncClosing):
    """Opens the channels of one client."""

    url: str
    """Address of the service."""

    @abstractmethod
    def blocking(self) -> Any:  # noqa: ANN401 - SocketConnector, which is of a later layer
        """The ``SocketConnector`` to the same service: for other threads; its copies, processes."""

    @abstractmethod
    def channel(
        self, *, workers: int = 1, release: Callable[[], None] | None = None
    ) -> AsyncChannel:
        """A channel for one operation.

        Args:
            workers: operations that may run at once beside it.
            release: called when the channel is closed and nothing uses it any more.
        """

    async def call(self, request: Request) -> Reply:
        """Send a small request until it is answered.

        Raises:
            ProblemError: the service refused it.
            ConnectionFailed: the service could not be reached.
        """
        async with self.channel() as channel:
            return await channel.call(request)

    async def ids(self, kind: str) -> list[str]:
        """Ids of all resources of a kind, such as ``datasets``, in order.

        Raises:
            ProblemError, ConnectionFailed: as for ``call``.
            ProtocolError: as for ``pages``.
        """
        found = pages(self.call, f"/v1/{kind}", kind, str, item_type=str)
        return [ident async for ident in found]


async def pages(
    ask: Callable[[Request], Awaitable[Reply]],
    path: str,
    member: str,
    parse: Callable[[Any], T],
    *,
    item_type: type[object] = dict,
) -> AsyncGenerator[T, None]:
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
        page = (await ask(Request("GET", path + query))).json()
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


class AsyncCalls:
    """Some of a client's calls.

    Args:
        connector: of the client.
    """

    def __init__(self, connector: AsyncConnector) -> None:
        self._connector = connector
