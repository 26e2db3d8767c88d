"""Finished reports as bytes: the resumable stream of ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ConnectionFailed, ProtocolError, data_changed
from ..tiles.raw import RawSaving
from ..transport.answers import STATUS_OK, refuse
from ..transport.effects import BLOCK, Ask, Deliver, Finish, Receive, Sleep, Steps, Work, next_item
from ..transport.requests import Head
from ..transport.resumable import ResumableStream
from ..transport.retry import Backoff
from .requests import RunRequests

_STATUS_ACCEPTED = 202
_STATUS_PARTIAL = 206
_LONGEST_PAUSE = 15.0
_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class ReportStream(ResumableStream):
    """Delivers the bytes of a report in pieces, each valid until the next one.

    Args:
        requests: about the run.
        report: its name.
        query: format, set and the like.
        offset: bytes that are there already.
        etag: of the report that they are from.
        backoff: decides on further attempts.

    Attributes:
        offset: bytes delivered, those that were there included.
        size: bytes of the report, once all of them were delivered.
        etag: of the report; None before the first answer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a download consists of
        self,
        requests: RunRequests,
        report: str,
        query: Mapping[str, Any],
        offset: int,
        etag: str | None,
        backoff: Backoff,
    ) -> None:
        super().__init__(backoff)
        self._requests = requests
        self._report = report
        self._query = query
        self.offset = offset
        self.size: int | None = None
        self.etag = etag

    @property
    def done(self) -> bool:
        """Whether all bytes were delivered."""
        return self.size is not None

    @property
    def position(self) -> int:
        """The offset."""
        return self.offset

    def _attempt(self) -> Steps[None]:
        request = self._requests.report(self._report, self._query, self.offset, self.etag)
        head: Head = yield Ask(request)
        while head.status == _STATUS_ACCEPTED:
            yield from self._wait(head)
            head = yield Ask(request)
        if head.status not in {STATUS_OK, _STATUS_PARTIAL}:
            yield from refuse(head)
        at, size = self._check(head)
        buffer = memoryview(bytearray(BLOCK))
        while size is None or at < size:
            count: int = yield Receive(buffer)
            if not count:
                break
            # An answer without ranges begins anew: the same bytes, by its tag.
            new = max(0, at + count - self.offset)
            at += count
            if new:
                self.offset = at
                yield Deliver(buffer[count - new : count])
        if size not in {None, at}:
            raise ConnectionFailed("the answer was cut")
        yield Finish()
        self.size = at

    def _wait(self, head: Head) -> Steps[None]:
        """Let the service compute."""
        scrap = memoryview(bytearray(BLOCK))
        while (yield Receive(scrap)):
            pass
        yield Finish()
        text = head.headers.get("retry-after", "1")
        yield Sleep(min(float(text) if text.isdecimal() else 1.0, _LONGEST_PAUSE))

    def _check(self, head: Head) -> tuple[int, int | None]:
        """Check an answer; where it begins, and the whole size if it is known."""
        headers = head.headers
        etag = headers.get("etag")
        if etag is None or etag.startswith("W/"):
            raise ProtocolError("the answer has no strong ETag")
        if self.etag not in {None, etag}:
            raise data_changed(f"the report had the tag {self.etag} and has {etag} now")
        if head.status == _STATUS_PARTIAL:
            span = _SPAN.fullmatch(headers.get("content-range", ""))
            if span is None or int(span[1]) != self.offset or int(span[2]) + 1 != int(span[3]):
                raise ProtocolError(f"{headers.get('content-range')} came instead of the rest")
            self.etag = etag
            return self.offset, int(span[3])
        self.etag = etag
        length = headers.get("content-length", "")
        return 0, int(length) if length.isdecimal() else None


def save_report(stream: ReportStream, path: Path, resource: str, state: Path | None) -> Steps[int]:
    """Write a report to a file, or complete what another process began; its size in bytes.

    Args:
        stream: of the report, at its beginning.
        path: of the file; it appears once it is complete.
        resource: which report of which run it is.
        state: path of the state file; None for none.

    Raises:
        ProblemError: the service has no such report, or not yet.
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
        StateError: the state file does not fit.
        OSError: the file cannot be written.
    """
    saving = RawSaving(path, resource, state, "report")
    try:
        yield Work(saving.open)
        stream.offset, stream.etag = saving.offset, saving.etag
        pieces = stream.run()
        while (piece := (yield from next_item(pieces))) is not None:
            yield Work(partial(saving.take, piece, stream.etag))
        yield Work(saving.finish)
    finally:
        saving.stop()
    return stream.offset
