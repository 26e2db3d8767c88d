"""A view as plain bytes: ranges after cuts. No input or output."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ConnectionFailed, ProblemError, ProtocolError, data_changed
from ..losses.window import BLOCK
from ..transport.effects import Ask, Drop, Finish, Piece, Receive, Sleep, Steps
from ..transport.refusals import refused
from ..transport.requests import Head
from ..transport.retry import Backoff
from .requests import TileRequests

_STATUS_OK = 200
_STATUS_PARTIAL = 206


class RawStream:
    """Asks for the bytes of a view until all have come; they come as Piece.

    Args:
        requests: builds what to send.
        view: id of the view.
        size: bytes there must be.
        done: bytes that are there already.
        etag: of the answer they came with.
        backoff: decides on other tries.

    Attributes:
        done: bytes that have come.
        etag: of the data; None before the first answer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        requests: TileRequests,
        view: str,
        size: int,
        done: int,
        etag: str | None,
        backoff: Backoff,
    ) -> None:
        self._requests = requests
        self._view = view
        self._size = size
        self._backoff = backoff
        self.done = done
        self.etag = etag

    def run(self) -> Steps:
        """The effects.

        Raises:
            ProblemError: the service refused, or the data has changed.
            ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
        """
        while self.done < self._size:
            before = self.done
            try:
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                yield Drop()
                if self.done != before:
                    self._backoff.progressed()
                yield Sleep(self._backoff.delay(error))

    def _attempt(self) -> Steps:
        head: Head = yield Ask(self._requests.raw(self._view, self.done, self.etag))
        if head.status not in {_STATUS_OK, _STATUS_PARTIAL}:
            yield from refused(head)
        self._check(head.status, head.headers)
        buffer = memoryview(bytearray(min(BLOCK, self._size)))
        while self.done < self._size:
            count: int = yield Receive(buffer[: self._size - self.done])
            if not count:
                raise ConnectionFailed("the answer was cut")
            self.done += count
            yield Piece(buffer[:count])
        yield Finish()

    def _check(self, status: int, headers: Mapping[str, str]) -> None:
        etag = headers.get("etag")
        if etag is None or etag.startswith("W/"):
            raise ProtocolError("the answer does not say of which data it is")
        if self.etag not in {None, etag}:
            raise data_changed(f"the data had the tag {self.etag} and has {etag} now")
        self.etag = etag
        span = headers.get("content-range")
        wanted = f"bytes {self.done}-{self._size - 1}/{self._size}"
        if status == _STATUS_PARTIAL and span != wanted:
            raise ProtocolError(f"{span} came instead of {wanted}")
        if status == _STATUS_OK and (self.done or headers.get("content-length") != str(self._size)):
            raise ProtocolError(f"the whole came instead of {wanted}, or is of another length")
