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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ProtocolError, StateError
from ..files.state import PathLike, StateFile
from ..losses.sources import Source, body_of
from ..transport.requests import Body, Head, Reply, Request
from .requests import RunRequests, append

PART_SIZE = 16 << 20
"""Bytes of a first append: whether the service announces commits is not known yet."""
MEMBER = "thalweg_upload_state"
"""Member of the state file that holds its version."""
LIMIT = 48 << 20
"""Bytes that may wait for a commit; less than a source that comes once holds in memory."""
_STATUS_INTERIM = 104
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


class UploadProgress:
    """How far an upload is, and what follows from answers to it: the part that waits for nothing.

    Args:
        requests: about the run.
        source: the stream.
        partition: of the run, from 1.
        state: path of the file to resume from and to write; None for none.
        observe: called after commits, perhaps from another thread.

    Attributes:
        offset: bytes that the service has committed.
        stream: id of the stream, once it is created.
        sent: bytes handed to connections.
    """

    def __init__(
        self,
        requests: RunRequests,
        source: Source,
        partition: int,
        state: PathLike | None,
        observe: Observe | None,
    ) -> None:
        self.done = False
        self.offset = 0
        self.stream: str | None = None
        self.sent = 0
        self._requests = requests
        self._source = source
        self._partition = partition
        self._observe = observe
        self._state = StateFile(state, MEMBER)
        self._state_failure: OSError | None = None
        self._identity = source.identity()
        self._offset_known = False
        self._announces_commits = False
        self._append_limit: int | None = None
        self._most: int | None = None
        self._body_size = 0
        self._acknowledged = Acknowledged(0)

    @property
    def position(self) -> tuple[str | None, int]:
        """The stream and how much of it is committed."""
        return self.stream, self.offset

    def _load_state(self) -> None:
        loaded = self._state.load(UploadState.parse)
        if loaded is None:
            return
        path = self._state.path
        if (loaded.run, loaded.partition) != (self._requests.run, self._partition):
            raise StateError(f"{path} is of another upload: remove it to start over")
        if loaded.source != self._identity:
            raise StateError(f"the stream has changed since {path} was written: replace it")
        self._source.skip(loaded.offset, loaded.passed)
        self.stream, self.offset = loaded.stream, loaded.offset

    def _forget(self) -> Iterable[None]:
        self._offset_known = False
        return ()

    def _next_append(self, *, ended: bool) -> tuple[Request, Body, bool]:
        size = self._source.size
        if size is None and not ended:
            opened = open_body(self._source, self.offset, self._acknowledged)
            return append(self._target(), self.offset, last=False), opened, False
        if size is None:
            size = self.offset
        limit = None if self._announces_commits else PART_SIZE
        limits = [n for n in (limit, self._append_limit, self._most) if n is not None]
        stop = min([size, *(self.offset + n for n in limits)])
        self._body_size = stop - self.offset
        last = stop == size
        request = append(self._target(), self.offset, last=last, length=size)
        return request, body_of(self._source, self.offset, stop), last

    def _take_answer(self, reply: Reply, *, last: bool) -> None:
        headers = reply.head.headers
        if "upload-offset" in headers:
            self._settle(number(reply.head, "upload-offset"))
            self._offset_known = True
        if last:
            if headers.get("upload-complete") != "?1":
                raise ProtocolError("the service wants more than the whole stream")
            self._settle(self._source.size or self.offset)
            self.done = True

    def _target(self) -> str:
        assert self.stream is not None  # noqa: S101 - it is created first
        return self._requests.stream_target(self.stream)

    def _take_limits(self, head: Head) -> None:
        text = head.headers.get("upload-limit", "")
        members = (member.strip().partition("=") for member in text.split(","))
        values = {name: value for name, _, value in members}
        most = values.get("max-append-size", "")
        self._append_limit = int(most) if most.isdecimal() and int(most) else None

    def _interim(self, head: Head) -> None:
        text = head.headers.get("upload-offset", "")
        if head.status == _STATUS_INTERIM and text.isdecimal():
            self._announces_commits = True
            try:
                self._settle(int(text))
            except OSError as e:
                # Here it would pass for a failure of the connection.
                self._state_failure = e

    def _settle(self, offset: int) -> None:
        self._acknowledged.move(offset)
        if offset <= self.offset:
            return
        self.offset = offset
        self._source.release(offset)
        self._save_state(always=False)
        if self._observe is not None:
            progress = Uploading(self._partition, self.offset, self._source.size, self.sent)
            self._observe(progress)

    def _count(self, size: int) -> None:
        self.sent += size

    def _save_state(self, *, always: bool) -> None:
        if not (always or self._state.is_due):
            return
        state = UploadState(
            self._requests.run,
            self._partition,
            self.stream,
            self._identity,
            self.offset,
            self._source.passed(),
        )
        self._state.save(asdict(state))


def known_stream(requests: RunRequests, partition: int, source: Source, path: Path) -> str | None:
    """The stream that a state file goes on with; None if it is of other bytes, or no state."""
    try:
        loaded = StateFile(path, MEMBER).load(UploadState.parse)
    except StateError:
        return None
    if loaded is None or (loaded.run, loaded.partition) != (requests.run, partition):
        return None
    return loaded.stream if loaded.source == source.identity() else None
