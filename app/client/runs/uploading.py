"""The bytes of an append: as many as may wait for their acknowledgement; and how far it is.

The service commits what it has received every few megabytes or every half second, and says so
in an interim answer (104) while the append goes on. Bytes that are committed need not be sent
again; the others must stay at hand. For a stream that comes once they lie in a window::

    stream  |--- committed ---|--- sent, not committed ---|- not read yet -
                              ▲ released                  ▲ at most LIMIT beyond

The body of an append ends by itself where the window is full and no commit comes: the answer
to it is an acknowledgement, too. So an upload needs no interim answers, which proxies may drop,
but with them one append lasts as long as its stream, and the time of a commit costs nothing.
It also ends when the source is silent for a while, as a server takes silence for a stall.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..losses.sources import Source
from ..transport.requests import Body, Head

LIMIT = 48 << 20
"""Bytes that may wait for a commit; less than a source that comes once holds in memory."""
_COMMIT_SECONDS = 10.0
"""Wait for a commit of a service that has announced others."""
_SILENCE_SECONDS = 5.0
"""Silence of the source after which an append ends."""


@dataclass(frozen=True, slots=True)
class Uploading:
    """How far an upload is.

    Attributes:
        partition: of the run.
        bytes: that the service has committed.
        total: bytes of the stream, None if unknown.
        sent: bytes sent by this call, those sent again included.
    """

    partition: int
    bytes: int
    total: int | None
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A stream that is stored whole.

    Attributes:
        stream: its id.
        partition: of the run.
        bytes: of the stream.
        sent: bytes sent by this call: fewer if another call began, more after cuts.
    """

    stream: str
    partition: int
    bytes: int
    sent: int


Observe: TypeAlias = Callable[[Uploading], None]


@dataclass(frozen=True, slots=True)
class UploadState:
    """What another process needs to go on.

    Attributes:
        run: its id.
        partition: of the run.
        stream: its id; None before it is created.
        source: identity of the source, None if it has none.
        offset: bytes committed.
        passed: digest of these, if they cannot be read again.
    """

    run: str
    partition: int
    stream: str | None
    source: Mapping[str, Any] | None
    offset: int
    passed: str | None

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> UploadState:
        """The state that a file holds.

        Raises:
            KeyError, TypeError, ValueError: it holds none.
        """
        return cls(
            str(content["run"]),
            int(content["partition"]),
            content["stream"],
            content["source"],
            int(content["offset"]),
            content["passed"],
        )


def counted(body: Body, count: Callable[[int], None]) -> Body:
    """A body that tells how many bytes of it were asked for."""

    def views() -> Iterator[memoryview]:
        for view in body.views():
            yield view
            count(len(view))

    return replace(body, views=views)


def header(head: Head, name: str) -> str:
    """A header of an answer.

    Raises:
        ProtocolError: it is missing.
    """
    if name not in head.headers:
        raise ProtocolError(f"the answer has no {name}")
    return head.headers[name]


def number(head: Head, name: str) -> int:
    """A header of an answer that is a number.

    Raises:
        ProtocolError: it is missing, or something else.
    """
    text = header(head, name)
    if not text.isdecimal():
        raise ProtocolError(f"{name} of the answer is {text!r}")
    return int(text)


class Acknowledged:
    """How many bytes of a stream are committed; for one thread that sends and one that reads.

    Args:
        offset: bytes committed.
        limit: bytes that may be sent beyond.
        heard: whether the service has announced commits before.
    """

    def __init__(self, offset: int, limit: int = LIMIT, *, heard: bool = False) -> None:
        self.offset = offset
        self._heard = heard
        self._limit = limit
        self._moved = threading.Condition()
        self._stopped = False

    def move(self, offset: int) -> None:
        """Take the offset of a commit."""
        with self._moved:
            self._heard = True
            self.offset = max(self.offset, offset)
            self._moved.notify_all()

    def stop(self) -> None:
        """Let nobody wait any more."""
        with self._moved:
            self._stopped = True
            self._moved.notify_all()

    def wait_for_room(self, sent: int) -> bool:
        """Whether more may be sent after so many bytes of the stream; it waits for commits."""

        def fits() -> bool:
            return self._stopped or sent - self.offset < self._limit

        with self._moved:
            if self._heard:
                self._moved.wait_for(fits, _COMMIT_SECONDS)
            return fits() and not self._stopped


def open_body(source: Source, start: int, acknowledged: Acknowledged) -> Body:
    """The bytes of a source from an offset on, as many as the window takes; sent in chunks.

    Args:
        source: of the bytes.
        start: offset of the first one.
        acknowledged: what is committed.
    """

    def interrupt() -> None:
        acknowledged.stop()
        source.interrupt()

    return Body(None, partial(_open_views, source, start, acknowledged), interrupt)


def _open_views(source: Source, start: int, acknowledged: Acknowledged) -> Iterator[memoryview]:
    """Yield pieces as they come; none after the window is full or the source silent.

    Raises:
        ProducerFailed, SourceError: as from the source.
    """
    sent = start
    alarm = _Alarm(source)
    pieces = source.views(start, None)
    try:
        while acknowledged.wait_for_room(sent):
            with alarm:
                view = next(pieces, None)
            if view is None:
                return
            sent += len(view)
            yield view
    except InterruptedError:
        return
    finally:
        alarm.close()


class _Alarm:
    """Interrupts a source that is silent while somebody waits for it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._since = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="thalweg-silence", daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._since = 0.0

    def _watch(self) -> None:
        while not self._closed.wait(_SILENCE_SECONDS / 5):
            since = self._since
            if since and time.monotonic() - since > _SILENCE_SECONDS:
                self._source.interrupt()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
