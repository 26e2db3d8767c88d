"""Uploads: who may append to a stream, and the course of one append; no protocol.

Of several requests for one stream the last one wins, at once. It takes the fence in the record of
the stream, whichever worker the others are on, and what those commit afterwards fails. If one of
them is in this process it is told to stop, too. To ask for the offset ends an append as well,
because its answer would be wrong a moment later; an append is first allowed to commit what has
come. One of this process is told so, one of another does it by itself, if it has anything.

    append   | take fence | ── pump: read, check, write ──────────────────| final commit | answer
                          | ── commits: every 8 MiB, or half a second ────|
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from app.engine.workers import Workers
from app.errors import DrainingError, ServiceError, TooLargeError
from app.losses.service import LossService
from app.run_errors import (
    OffsetMismatchError,
    UploadCompleteError,
    UploadFailedError,
    UploadLengthError,
    UploadTakenError,
)
from app.state.base import RecordConflictError, StoreReadOnlyError
from core.budget import UNLIMITED, install

from ..records import RunRecord, StreamRecord, next_fence
from ..spec import RunSpec
from ..streams import Streams
from .appending import Appending, AppendRequest, Bound, Terms
from .sources import Source

COMMIT_SECONDS = 0.5
"""Time after which bytes are committed, however few they are."""
_STOP_SECONDS = 5.0
"""Time that an append gets to commit what has come, once somebody asks for the offset."""
_KEEP_SECONDS = 3600.0


Interim = Callable[[int], None]
"""Tells a client how many bytes of the stream are durable."""


class _Session:
    """An append that runs in this process.

    There may be a thousand that wait, and an event takes five times what a future does.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def stop(self) -> None:
        """Have it commit what has come, and end."""
        if not self.stopped.done():
            self.stopped.set_result(None)


class Uploads:
    """The uploads of a service.

    Args:
        streams: those of all runs.
        losses: lends buffers, threads and metrics.
        disk: threads that wait for the store.
        most: maximum bytes of a stream, and the setting that says so.
    """

    def __init__(self, streams: Streams, losses: LossService, disk: Workers, most: Bound) -> None:
        self.runs = streams.runs
        self.streams = streams
        self.most, self._setting = most
        self._losses = losses
        self._disk = disk
        self._sessions: dict[str, _Session] = {}
        self.patience = 2 * COMMIT_SECONDS
        """Seconds that an append of another process has to commit what has come."""

    # -- who may append ---------------------------------------------------------------

    def check(self, run: RunRecord, ident: str, request: AppendRequest) -> StreamRecord:
        """Check that a stream takes an append; return the stream. Not on the event loop.

        Raises:
            NotFoundError: there is no such stream.
            RunSealedError, UploadFailedError, UploadCompleteError: it takes no more bytes.
            OffsetMismatchError: it ends elsewhere.
            UploadLengthError, TooLargeError: its length is to be another one.
        """
        self.runs.check_open(run)
        record = self.streams.get(run, ident)
        self._check_terms(record, request)
        return record

    def _check_terms(self, record: StreamRecord, request: AppendRequest) -> None:
        if record.fault is not None:
            raise UploadFailedError(
                f"the stream of partition {record.partition} is faulty:"
                f" {record.fault.get('detail', '')}",
                hint="Delete the upload, and upload the partition again",
                fault=dict(record.fault),
                expected_offset=record.offset,
            )
        if record.complete and not (
            request.offset == record.offset and request.content_length == 0
        ):
            raise UploadCompleteError(
                "the upload is complete",
                hint="Delete it to upload the partition again",
                expected_offset=record.offset,
            )
        if request.offset != record.offset:
            raise OffsetMismatchError(
                f"the upload has {record.offset} bytes, and the request continues at"
                f" {request.offset}",
                hint="Continue at expected_offset",
                expected_offset=record.offset,
                provided_offset=request.offset,
            )
        self._check_length(record, request)

    def _check_length(self, record: StreamRecord, request: AppendRequest) -> None:
        length = request.length
        if length is not None:
            if record.length not in {None, length} or length < record.offset:
                of = "already" if record.length is None else f"of {record.length}"
                known = f"{record.offset} {of}"
                raise UploadLengthError(
                    f"the request declares {length} bytes, and the upload has {known}",
                    hint="Declare the length once",
                )
            self.check_size(length)
        if request.last and record.length is not None and request.content_length is not None:
            end = request.offset + request.content_length
            if end != record.length:
                raise UploadLengthError(
                    f"the upload would be complete with {end} bytes, and {record.length} were"
                    " declared",
                    hint="Send the rest of the stream, or say that more follows",
                )

    def check_size(self, length: int) -> None:
        """Check the declared length of a stream.

        Raises:
            TooLargeError: it is longer than this server takes.
        """
        if length > self.most:
            raise TooLargeError(
                f"an upload may have {self.most} bytes, not {length}",
                hint="Divide the stream into more partitions",
                limit="upload",
                setting=self._setting,
                allowed=self.most,
            )

    def take(self, run: RunRecord, ident: str, request: AppendRequest) -> StreamRecord:
        """Take the fence of a stream for an append; see ``check``. Not on the event loop."""
        while True:
            record = self.check(run, ident, request)
            if record.complete:
                return record
            length = record.length if request.length is None else request.length
            new = replace(record, fence=next_fence(record), appending=True, length=length)
            with contextlib.suppress(RecordConflictError):
                stream = self.streams.swap(record, new)
                self.streams.confirm(stream)
                return stream

    def create(
        self,
        run: RunRecord,
        template: StreamRecord,
        partition: int | None,
        request: AppendRequest | None,
    ) -> StreamRecord:
        """Create a stream; if bytes come with the request, their append has its fence from then on.

        So no other creation takes it before they are there.

        Raises:
            UploadLengthError, TooLargeError: its length is to be another one.
            ServiceError: see ``Streams.add``.
        """
        if request is not None:
            self._check_terms(template, request)
            length = template.length if request.length is None else request.length
            template = replace(template, fence=1, appending=True, length=length)
        return self.streams.add(run, template, partition)

    @contextlib.asynccontextmanager
    async def holding(self, created: StreamRecord) -> AsyncIterator[None]:
        """End the append of a creation that fails in the block, unless it ends by itself."""
        try:
            yield
        except BaseException:
            await _unhurried(asyncio.ensure_future(self._give_up(created)))
            raise

    async def _give_up(self, created: StreamRecord) -> None:
        install(UNLIMITED)  # as in _end
        with contextlib.suppress(ServiceError):
            await self._disk.start(self.streams.swap, created, replace(created, appending=False))

    async def look(self, run: RunRecord, ident: str) -> StreamRecord:
        """Return a stream whose offset nobody changes but by continuing there.

        Raises:
            NotFoundError: there is no such stream.
        """
        start = self._losses.threads.start
        record: StreamRecord = await start(self.streams.get, run, ident)
        await self._stop(record)
        await self._let_commit(record)
        return await start(self._end_append, run, ident)

    async def _let_commit(self, record: StreamRecord) -> None:
        """Wait for the next commit of an append of another process, as long as it may take."""
        if not (record.appending and self.patience):
            return
        follower, start = self.runs.watch.follow(record.run), self._losses.threads.start
        with contextlib.closing(follower), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                known = record.generation
                while (now := await start(self.streams.again, record)) and now.generation == known:
                    await follower.changed()

    def _end_append(self, run: RunRecord, ident: str) -> StreamRecord:
        """Take the fence from an append that may still run elsewhere."""
        while (record := self.streams.get(run, ident)).appending:
            new = replace(record, fence=record.fence + 1, appending=False)
            try:
                return self.streams.swap(record, new)
            except RecordConflictError:
                continue
            except StoreReadOnlyError:
                break  # no append can commit anything either
        return record

    async def delete(self, run: RunRecord, ident: str) -> None:
        """Delete a stream; an append that runs ends.

        Raises:
            NotFoundError, RunSealedError: see ``Streams.delete``.
        """
        record = await self._losses.threads.start(self.streams.get, run, ident)
        self.runs.check_open(run)
        await self._stop(record)
        await self._losses.threads.start(self.streams.delete, run, ident)

    async def _stop(self, record: StreamRecord) -> None:
        """End an append of this process, after it has committed what came."""
        session = self._sessions.get(record.key)
        if record.appending and session is not None:
            session.stop()
            await asyncio.wait({session.ended}, timeout=_STOP_SECONDS)

    # -- the course of an append ----------------------------------------------------------

    async def append(
        self,
        run: RunRecord,
        record: StreamRecord,
        request: AppendRequest,
        source: Source,
        interim: Interim | None = None,
    ) -> StreamRecord:
        """Append the bytes of a body to a stream whose fence was taken.

        Returns:
            The stream with them, all durable.

        Raises:
            CoreError: the stream is faulty; it has failed.
            UploadTakenError: another request has continued or deleted it.
            ServiceError, ClientDisconnected: the body did not come whole, or cannot be stored;
                what came is kept.
        """
        if record.complete:
            return record
        signal = _CommitSignal()
        appending = self._begin(run, record, request, signal)
        session, key = _Session(), record.key
        # Of a thousand that wait, each would keep this version besides the committed one.
        del record
        before = self._sessions.get(key)
        if before is not None:
            before.stop()
        self._sessions[key] = session
        try:
            await self._run(appending, source, signal, session, interim)
        finally:
            if self._sessions.get(key) is session:
                del self._sessions[key]
            session.ended.set_result(None)
        return appending.record

    def _begin(
        self, run: RunRecord, record: StreamRecord, request: AppendRequest, signal: _CommitSignal
    ) -> Appending:
        spec = RunSpec.of(run)
        return Appending(
            self.streams,
            record,
            replace(spec.policy(self._losses), event_order="any"),
            takes_items=spec.takes_items,
            terms=Terms(record.length, request.last, self.most, self._setting),
            tell=signal.ring,
        )

    async def _run(
        self,
        appending: Appending,
        source: Source,
        signal: _CommitSignal,
        session: _Session,
        interim: Interim | None,
    ) -> None:
        moving = asyncio.ensure_future(source.move(appending))
        commits = asyncio.ensure_future(self._commits(appending, signal, interim))
        any_of: set[asyncio.Future[Any]] = {moving, commits, session.stopped}
        try:
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending = asyncio.ensure_future(self._end(appending, moving, commits, signal))
            # What has come is committed, whatever ended the request.
            await _unhurried(ending)
        ending.result()
        if session.stopped.done() and moving.cancelled():
            raise UploadTakenError("a later request asked for, continued or deleted this upload")
        if not moving.result():
            raise DrainingError(
                "the server is shutting down",
                hint="Ask for the offset, and continue: another server will answer",
                retry_after=1,
            )

    async def _end(
        self,
        appending: Appending,
        moving: asyncio.Task[bool],
        commits: asyncio.Task[None],
        signal: _CommitSignal,
    ) -> None:
        """Stop reading, commit what has come, and close the blob.

        Raises:
            ServiceError: it cannot be committed.
        """
        # The budget of a request ends when its client leaves, and refuses all work from then on.
        install(UNLIMITED)
        moving.cancel()
        await asyncio.wait({moving})
        signal.close()
        await asyncio.wait({commits})
        try:
            await self._disk.start(_finish, appending, commits.exception())
        finally:
            appending.close()
            # The fault of the stream, if there is one, is what the client has to know.
            moving.cancelled() or moving.exception()

    async def _commits(
        self, appending: Appending, signal: _CommitSignal, interim: Interim | None
    ) -> None:
        """Commit what has come, again and again, until the signal is closed."""
        install(UNLIMITED)  # as in _end
        kept = time.monotonic()
        while await signal.wait(COMMIT_SECONDS):
            changed = await self._disk.start(appending.commit)
            if changed and interim is not None:
                interim(appending.record.offset)
            if time.monotonic() - kept > _KEEP_SECONDS:
                kept = time.monotonic()
                await self._disk.start(self.runs.keep, appending.record.owner, appending.record.run)


def _finish(appending: Appending, failure: BaseException | None) -> None:
    """Make the final commit of an append, unless a commit has failed."""
    with contextlib.ExitStack() as ended:
        ended.callback(appending.drop)
        if isinstance(failure, UploadTakenError):
            raise failure
        if failure is not None:
            appending.abandon()
            raise failure
        try:
            try:
                appending.verify()
            finally:
                appending.commit(final=True)
        except ServiceError as e:
            if not isinstance(e, UploadTakenError):
                appending.abandon()
            raise


async def _unhurried(task: asyncio.Task[None]) -> None:
    """Wait for a task, even while being cancelled."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


class _CommitSignal:
    """Tells the loop that there is something to commit; rung from a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._some, self._enough = asyncio.Event(), asyncio.Event()
        self._closed = False

    def ring(self, enough: bool) -> None:
        """Say that there is something, and whether it is enough not to wait for more."""
        self._loop.call_soon_threadsafe(self._set, enough)

    def _set(self, enough: bool) -> None:
        self._some.set()
        if enough:
            self._enough.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for something, then for enough or some time; return False once closed."""
        await self._some.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._enough.wait()
        self._some.clear()
        self._enough.clear()
        return not self._closed

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._closed = True
        self._set(True)
