"""Uploading the stream of one partition until the service has all of it.

The protocol is the IETF's (interop version 8), not tus: it says with each append whether more
follows, so a stream whose length nobody knows ends without a second protocol for lengths; and
its interim answers tell what is committed while an append goes on (see ``uploading``).

The service alone knows how far an upload is::

      create ──▶ append ──▶ … ──▶ append, the last ──▶ done
                   ▲ │
                   │ ▼ cut, refused, stalled
      HEAD: offset ┘      after a kill: the same, from the id in the state file

Every append, after whatever happened, begins at the offset that the service gives. So a lost
answer needs no care, and what is sent twice is what was sent and not committed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from ..errors import ProblemError, ProtocolError, StateError, ThalwegError
from ..files.state import PathLike, StateFile
from ..losses.sources import Source, body_of, open_source
from ..transport.async_channel import AsyncChannel, pages
from ..transport.async_streams import AsyncRepeated, Recovery
from ..transport.requests import Body, Head, Reply, Request
from ..transport.retry import shorter
from . import uploading
from .requests import Part, RunRequests, Stream, append, retrieve_offset, stream_of_location
from .uploading import Observe, Uploaded, Uploading, number

PART_SIZE = 16 << 20
"""Bytes of a first append: whether the service announces commits is not known yet."""
MEMBER = "thalweg_upload_state"
"""Member of the state file that holds its version."""

_STATUS_INTERIM = 104
_STATUS_CONFLICT = 409


class AsyncUpload(AsyncRepeated):
    """Uploads one stream.

    Args:
        channel: of the operation.
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

    def __init__(  # noqa: PLR0913, PLR0917 - what an upload consists of
        self,
        channel: AsyncChannel,
        requests: RunRequests,
        source: Source,
        partition: int,
        state: PathLike | None = None,
        observe: Observe | None = None,
    ) -> None:
        super().__init__(channel)
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
        self._acknowledged = uploading.Acknowledged(0)

    @property
    def position(self) -> tuple[str | None, int]:
        """The stream and how much of it is committed."""
        return self.stream, self.offset

    async def upload(self, *, keep_state: bool = False) -> Uploaded:
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
        await self._channel.work(self._load_state, self._source.interrupt)
        try:
            await self.complete()
        except BaseException as error:
            if self.stream is None and isinstance(error, ProblemError):
                self._state.remove()
            else:
                self._save_state(always=True)
            raise
        if keep_state:
            self._save_state(always=True)
        else:
            self._state.remove()
        assert self.stream is not None  # noqa: S101 - it is done
        return Uploaded(self.stream, self._partition, self.offset, self.sent)

    def _load_state(self) -> None:
        loaded = self._state.load(uploading.UploadState.parse)
        if loaded is None:
            return
        path = self._state.path
        if (loaded.run, loaded.partition) != (self._requests.run, self._partition):
            raise StateError(f"{path} is of another upload: remove it to start over")
        if loaded.source != self._identity:
            raise StateError(f"the stream has changed since {path} was written: replace it")
        self._source.skip(loaded.offset, loaded.passed)
        self.stream, self.offset = loaded.stream, loaded.offset

    # -- requests ------------------------------------------------------------------------

    async def _try(self) -> None:
        if self.stream is None:
            await self._create()
        elif not self._offset_known:
            await self._retrieve_offset()
        if not self.done:
            await self._append()

    def _forget(self) -> Iterable[None]:
        self._offset_known = False
        return ()

    def _recovery(self, problem: ProblemError) -> Recovery | None:
        if problem.status == _STATUS_CONFLICT and self.stream is not None:
            # Somebody else may have appended, or an append of ours that had seemed lost.
            return self._retrieve_offset
        most = shorter(problem, self._body_size)
        return super()._recovery(problem) if most is None else partial(self._shorten, most)

    async def _shorten(self, most: int) -> None:
        self._most = most

    async def _create(self) -> None:
        request = self._requests.create_stream(self._partition, self._source.size)
        # Whoever is killed now finds the stream by its partition.
        self._save_state(always=True)
        try:
            reply = await self._channel.ask(request)
            self._take_limits(reply.head)
            self.stream = stream_of_location(uploading.header(reply.head, "location"))
        except ProblemError as problem:
            if problem.status != _STATUS_CONFLICT:
                raise
            await self._find(problem)
        self._offset_known = True
        self._save_state(always=True)

    async def _find(self, problem: ProblemError) -> None:
        """Take the stream of the partition: an attempt whose answer was lost, or the same bytes."""
        path = self._requests.streams
        async for found in pages(self._channel.ask, path, "streams", Stream.parse):
            if found.partition == self._partition:
                is_new = not (found.offset or found.complete)
                if is_new or await self._channel.work(partial(found.holds, self._source)):
                    self.stream, self.done = found.id, not is_new
                    self._settle(found.offset)
                    return
        raise problem

    async def _retrieve_offset(self) -> None:
        reply = await self._channel.ask(retrieve_offset(self._target()))
        self._take_limits(reply.head)
        offset = number(reply.head, "upload-offset")
        if offset < self.offset:
            raise ProtocolError("the service has lost bytes that it had committed")
        # A source that comes once reads on to where another process had come.
        await self._channel.work(partial(self._source.skip, offset), self._source.interrupt)
        self._settle(offset)
        self._offset_known = True
        self.done = reply.head.headers.get("upload-complete") == "?1"

    async def _append(self) -> None:
        fill = partial(self._source.fill, self.offset + 1)
        filled = await self._channel.work(fill, self._source.interrupt)
        ended = filled.ended and filled.stop <= self.offset
        if ended and filled.failure is not None:
            raise filled.failure
        self._acknowledged = uploading.Acknowledged(self.offset, heard=self._announces_commits)
        request, body, last = self._next_append(ended=ended)
        self._offset_known = False
        body = uploading.counted(body, self._count)
        sent = replace(request, stream=body, duplex=True, interim=self._interim)
        reply = await self._channel.ask(sent)
        if self._state_failure is not None:
            raise self._state_failure
        self._take_answer(reply, last=last)

    def _next_append(self, *, ended: bool) -> tuple[Request, Body, bool]:
        size = self._source.size
        if size is None and not ended:
            opened = uploading.open_body(self._source, self.offset, self._acknowledged)
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
        if not (always or self._state.is_due):
            return
        state = uploading.UploadState(
            self._requests.run,
            self._partition,
            self.stream,
            self._identity,
            self.offset,
            self._source.passed(),
        )
        self._state.save(asdict(state))


async def upload_parts(
    channel: AsyncChannel, requests: RunRequests, parts: Sequence[Part], observe: Observe | None
) -> AsyncGenerator[tuple[Part, Uploaded | Exception], None]:
    """Upload several partitions side by side; yield each with how it ended."""
    for part in parts:
        if not isinstance(part, Part):
            raise TypeError(f"each part must be as Part(1, source), not {part!r}")
    jobs = [channel.beside(partial(_upload_part, requests, part, observe)) for part in parts]
    are_stored = True
    for part, job in zip(parts, jobs, strict=True):
        result = await channel.join(job)
        are_stored &= isinstance(result, Uploaded)
        yield part, result
    for part in parts:
        if are_stored and part.state is not None:
            await channel.work(partial(Path(part.state).unlink, missing_ok=True))


async def _upload_part(
    requests: RunRequests, part: Part, observe: Observe | None, channel: AsyncChannel
) -> Uploaded | Exception:
    state = None if part.state is None else Path(part.state)
    try:
        if part.exec is not None and state is not None:
            stored = await _find_uploaded(channel, requests, part.partition, state)
            if stored is not None:  # its command need not run again
                return stored
        source = await channel.work(partial(open_source, part.source, part.exec))
    except (ThalwegError, TypeError) as error:
        return error
    try:
        if part.replace:
            await _replace(channel, requests, part.partition, source, state)
        upload = AsyncUpload(channel, requests, source, part.partition, state, observe)
        return await upload.upload(keep_state=True)
    except (ThalwegError, OSError) as error:
        return error
    finally:
        source.close()


async def _find_uploaded(
    channel: AsyncChannel, requests: RunRequests, partition: int, path: Path
) -> Uploaded | None:
    """Ask for the stream that a state file names; None if it is not whole, or there is no file."""
    loaded = await channel.work(partial(StateFile(path, MEMBER).load, uploading.UploadState.parse))
    if loaded is None or (loaded.run, loaded.partition) != (requests.run, partition):
        return None
    if loaded.stream is None:
        return None
    head = (await channel.call(retrieve_offset(requests.stream_target(loaded.stream)))).head
    if head.headers.get("upload-complete") != "?1":
        return None
    return Uploaded(loaded.stream, partition, number(head, "upload-offset"), 0)


async def _replace(
    channel: AsyncChannel, requests: RunRequests, partition: int, source: Source, path: Path | None
) -> None:
    """Delete the stream of a partition, and its state, unless that goes on with it."""
    known = None
    if path is not None:
        known = await channel.work(partial(_known_stream, requests, partition, source, path))
    async for stream in pages(channel.call, requests.streams, "streams", Stream.parse):
        if stream.partition != partition:
            continue
        if stream.id == known:
            return
        await channel.call(requests.delete_stream(stream.id))
    if path is not None:
        await channel.work(partial(path.unlink, missing_ok=True))


def _known_stream(requests: RunRequests, partition: int, source: Source, path: Path) -> str | None:
    """The stream that a state file goes on with; None if it is of other bytes, or no state."""
    try:
        loaded = StateFile(path, MEMBER).load(uploading.UploadState.parse)
    except StateError:
        return None
    if loaded is None or (loaded.run, loaded.partition) != (requests.run, partition):
        return None
    return loaded.stream if loaded.source == source.identity() else None
