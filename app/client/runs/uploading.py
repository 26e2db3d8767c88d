"""Uploading the stream of one partition until the service has all of it.

The dialect is the IETF's (interop version 8), not tus: it says with each append whether more
follows, so a stream whose length nobody knows ends without a second protocol for lengths; and
its interim answers tell what is committed while an append goes on (see ``windows``).

The service alone knows how far an upload is::

      create ──▶ append ──▶ … ──▶ append, the last ──▶ done
                   ▲ │
                   │ ▼ cut, refused, stalled
      HEAD: offset ┘      after a kill: the same, from the id in the state file

Every append, after whatever happened, begins at the offset that the service gives. So a lost
answer needs no care, and what is sent twice is what was sent and not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ProblemError, ProtocolError, StateError
from ..files.state import StateFile
from ..losses.sources import Filled, Source, SourceBody
from ..transport.answers import answer_to, call, checked, exchange
from ..transport.effects import Ask, Body, Steps, Work, next_item
from ..transport.requests import Head, Reply, Request
from ..transport.resumable import Cure, ResumableStream
from ..transport.retry import Backoff
from .description import Stream, pages
from .requests import RunRequests, append, retrieve_offset, stream_of_location
from .windows import Acknowledged, OpenBody

PART_SIZE = 16 << 20
"""Bytes of a first append: whether the service announces commits is not known yet."""
MEMBER = "thalweg_upload_state"
"""Member of the state file that holds its version."""

_STATUS_INTERIM = 104
_STATUS_CONFLICT = 409


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
class _State:
    """What another process needs to go on.

    Attributes:
        run: its id.
        partition: of the run.
        stream: its id.
        source: identity of the source, None if it has none.
        offset: bytes committed.
        passed: digest of these, if they cannot be read again.
    """

    run: str
    partition: int
    stream: str
    source: Mapping[str, Any] | None
    offset: int
    passed: str | None

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> _State:
        return cls(
            str(content["run"]),
            int(content["partition"]),
            str(content["stream"]),
            content["source"],
            int(content["offset"]),
            content["passed"],
        )

    def json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "partition": self.partition,
            "stream": self.stream,
            "source": self.source,
            "offset": self.offset,
            "passed": self.passed,
        }


class Upload(ResumableStream):
    """Uploads one stream.

    Args:
        requests: about the run.
        source: the stream.
        partition: of the run, from 1.
        backoff: decides on further attempts.
        state: path of the file to resume from and to write; None for none.
        observe: called after commits, perhaps from another thread.

    Attributes:
        offset: bytes that the service has committed.
        stream: id of the stream, once it is created.
        sent: bytes handed to connections.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what an upload consists of
        self,
        requests: RunRequests,
        source: Source,
        partition: int,
        backoff: Backoff,
        state: Path | None = None,
        observe: Observe | None = None,
    ) -> None:
        super().__init__(backoff)
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
        self._complete = False
        self._announces_commits = False
        self._append_limit: int | None = None
        self._acknowledged = Acknowledged(0)

    @property
    def done(self) -> bool:
        """Whether the service has the whole stream."""
        return self._complete

    @property
    def position(self) -> tuple[str | None, int]:
        """The stream and how much of it is committed."""
        return self.stream, self.offset

    def upload(self, *, keep_state: bool = False) -> Steps[Uploaded]:
        """Upload the stream; what is stored.

        Args:
            keep_state: whether the state file stays, and says then that all is stored.

        Raises:
            ProblemError: the service refused it, or found a fault in the stream.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            ProducerFailed: the source did not end well; the stream stays incomplete.
            SourceError: the source cannot be read, or is not what it was.
            StateError: the state file does not fit.
        """
        yield Work(self._load_state, self._source.interrupt)
        try:
            yield from self.run()
        except BaseException:
            self._save_state(always=True)
            raise
        if keep_state:
            self._save_state(always=True)
        else:
            self._state.remove()
        assert self.stream is not None  # noqa: S101 - it is done
        return Uploaded(self.stream, self._partition, self.offset, self.sent)

    def _load_state(self) -> None:
        loaded = self._state.load(_State.parse)
        if loaded is None:
            return
        path = self._state.path
        if (loaded.run, loaded.partition) != (self._requests.run, self._partition):
            raise StateError(f"{path} is of another upload: remove it to start over")
        if loaded.source != self._identity:
            raise StateError(f"the stream has changed since {path} was written: upload it anew")
        self._source.skip(loaded.offset, loaded.passed)
        self.stream, self.offset = loaded.stream, loaded.offset

    # -- requests ------------------------------------------------------------------------

    def _attempt(self) -> Steps[None]:
        if self.stream is None:
            yield from self._create()
        elif not self._offset_known:
            yield from self._retrieve_offset()
        if not self._complete:
            yield from self._append()

    def _forget(self) -> Steps[None]:
        self._offset_known = False
        yield from ()

    def _cure(self, problem: ProblemError) -> Cure | None:
        if problem.status == _STATUS_CONFLICT and self.stream is not None:
            # Somebody else may have appended, or an append of ours that had seemed lost.
            return self._retrieve_offset
        return super()._cure(problem)

    def _create(self) -> Steps[None]:
        request = self._requests.create_stream(self._partition, self._source.size)
        try:
            reply = checked((yield from exchange(request)))
            self._take_limits(reply.head)
            self.stream = stream_of_location(_header(reply.head, "location"))
        except ProblemError as problem:
            if problem.status != _STATUS_CONFLICT:
                raise
            self.stream = yield from self._find_empty(problem)
        self._offset_known = True
        self._save_state(always=True)

    def _find_empty(self, problem: ProblemError) -> Steps[str]:
        """The stream of the partition that an attempt created whose answer was lost."""
        streams = pages(self._requests.list_streams, "streams", Stream.parse, 0)
        while True:
            found: Stream | None = yield from next_item(streams)
            if found is None:
                raise problem
            if found.partition == self._partition:
                if found.offset or found.complete:
                    raise problem
                return found.id

    def _retrieve_offset(self) -> Steps[None]:
        reply = checked((yield from exchange(retrieve_offset(self._target()))))
        self._take_limits(reply.head)
        offset = _number(reply.head, "upload-offset")
        if offset < self.offset:
            raise ProtocolError("the service has lost bytes that it had committed")
        # A source that comes once reads on to where another process had come.
        yield Work(partial(self._source.skip, offset), self._source.interrupt)
        self._settle(offset)
        self._offset_known = True
        self._complete = reply.head.headers.get("upload-complete") == "?1"

    def _append(self) -> Steps[None]:
        fill = partial(self._source.fill, self.offset + 1)
        filled: Filled = yield Work(fill, self._source.interrupt)
        ended = filled.ended and filled.stop <= self.offset
        if ended and filled.failure is not None:
            raise filled.failure
        self._acknowledged = Acknowledged(self.offset, heard=self._announces_commits)
        request, body, last = self._next_append(ended=ended)
        self._offset_known = False
        ask = Ask(request, _Counted(body, self._count), duplex=True, interim=self._interim)
        reply = checked((yield from answer_to(ask)))
        if self._state_failure is not None:
            raise self._state_failure
        self._take_answer(reply, last=last)

    def _next_append(self, *, ended: bool) -> tuple[Request, Body, bool]:
        size = self._source.size
        if size is None and not ended:
            opened = OpenBody(self._source, self.offset, self._acknowledged)
            return append(self._target(), self.offset, last=False), opened, False
        if size is None:
            size = self.offset
        limit = None if self._announces_commits else PART_SIZE
        limits = [n for n in (limit, self._append_limit) if n is not None]
        stop = min([size, *(self.offset + n for n in limits)])
        last = stop == size
        request = append(self._target(), self.offset, last=last, length=size)
        return request, SourceBody(self._source, self.offset, stop), last

    def _take_answer(self, reply: Reply, *, last: bool) -> None:
        headers = reply.head.headers
        if "upload-offset" in headers:
            self._settle(_number(reply.head, "upload-offset"))
            self._offset_known = True
        if last:
            if headers.get("upload-complete") != "?1":
                raise ProtocolError("the service wants more than the whole stream")
            self._settle(self._source.size or self.offset)
            self._complete = True

    def _target(self) -> str:
        assert self.stream is not None  # noqa: S101 - it is created first
        return self._requests.stream_target(self.stream)

    def _take_limits(self, head: Head) -> None:
        text = head.headers.get("upload-limit", "")
        members = (member.strip().partition("=") for member in text.split(","))
        values = {name: value for name, _, value in members}
        most = values.get("max-append-size", "")
        self._append_limit = int(most) if most.isdecimal() and int(most) else None

    # -- acknowledgements ----------------------------------------------------------------

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
        if self.stream is None or not (always or self._state.is_due):
            return
        state = _State(
            self._requests.run,
            self._partition,
            self.stream,
            self._identity,
            self.offset,
            self._source.passed(),
        )
        self._state.save(state.json())


def find_uploaded(
    requests: RunRequests, partition: int, path: Path, retries: int
) -> Steps[Uploaded | None]:
    """Ask for the stream that a state file names; None if it is not whole, or there is no file."""
    loaded = yield Work(partial(StateFile(path, MEMBER).load, _State.parse))
    if loaded is None or (loaded.run, loaded.partition) != (requests.run, partition):
        return None
    request = retrieve_offset(requests.stream_target(loaded.stream))
    head = (yield from call(request, retries)).head
    if head.headers.get("upload-complete") != "?1":
        return None
    return Uploaded(loaded.stream, partition, _number(head, "upload-offset"), 0)


class _Counted:
    """A body that tells how many bytes of it were asked for."""

    def __init__(self, body: Body, count: Callable[[int], None]) -> None:
        self._body = body
        self._count = count

    @property
    def length(self) -> int | None:
        return self._body.length

    def views(self) -> Any:  # noqa: ANN401 - an iterator of views
        for view in self._body.views():
            yield view
            self._count(len(view))

    def interrupt(self) -> None:
        self._body.interrupt()


def _header(head: Head, name: str) -> str:
    try:
        return head.headers[name]
    except KeyError as e:
        raise ProtocolError(f"the answer has no {name}") from e


def _number(head: Head, name: str) -> int:
    text = _header(head, name)
    if not text.isdecimal():
        raise ProtocolError(f"{name} of the answer is {text!r}")
    return int(text)
