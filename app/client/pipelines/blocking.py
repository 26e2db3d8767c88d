"""Pipelines and their batches, with blocking calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Protocol, Self

from ..transport.blocking import AnswerPort, drive
from ..transport.effects import Effect, Sleep
from ..transport.http import Pool
from ..transport.requests import Reply, Request
from ..transport.retry import Backoff
from .batch import Batch, EpochEnd, Field
from .lookahead import Cursor, Lookahead, Question, Wanted
from .requests import BatchRequests, PipelineInfo, Place, creation
from .stream import BatchStream

_PATIENCE = 0.05
"""Seconds between two tries to interrupt what is on its way."""


class _Fetching(Protocol):
    """Where batches come from, in order."""

    @property
    def finished(self) -> bool:
        """Whether no batch comes behind those that came."""

    def next(self) -> Batch | EpochEnd | None:
        """What comes next; None if nothing does."""

    def close(self) -> None:
        """Stop."""


class _Streaming:
    """Batches of one answer, and of another where that breaks off."""

    def __init__(self, stream: BatchStream, port: AnswerPort) -> None:
        self._stream = stream
        self._items = drive(stream.run(), port)

    @property
    def finished(self) -> bool:
        return self._stream.data_finished

    @property
    def profile(self) -> Mapping[str, Any]:
        """Seconds of the stages, as the last answer told them."""
        return self._stream.profile

    def next(self) -> Batch | EpochEnd | None:
        for item in self._items:
            if isinstance(item, Batch | EpochEnd):
                return item
        return None

    def close(self) -> None:
        self._items.close()


class _InterruptiblePort(AnswerPort):
    """One that another thread may stop.

    Args:
        pool: of connections.
        closing: set when nothing more is wanted.
    """

    def __init__(self, pool: Pool, closing: threading.Event) -> None:
        super().__init__(pool)
        self._closing = closing

    def perform(self, effect: Effect) -> Any:  # noqa: ANN401 - as of AnswerPort
        """Do one thing, unless nothing is wanted any more.

        Raises:
            CancelledError: nothing is.
        """
        slept = isinstance(effect, Sleep) and self._closing.wait(effect.seconds)
        if slept or self._closing.is_set():
            raise CancelledError
        return None if isinstance(effect, Sleep) else super().perform(effect)

    def interrupt(self) -> None:
        """Make the thread that performs something notice that it is over."""
        connection = self._connection
        if connection is not None:
            connection.hang_up()


class _Asking:
    """Batches asked for one by one, some of them before they are wanted."""

    def __init__(
        self, pool: Pool, retries: int, look: Lookahead, ahead: int, connections: int
    ) -> None:
        self._pool = pool
        self._retries = retries
        self._look = look
        self._ahead = ahead
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ports: set[_InterruptiblePort] = set()
        self._pending: deque[Future[Batch | None]] = deque()
        self._executor = ThreadPoolExecutor(connections, "thalweg-batches") if ahead else None
        self._ended = False

    @property
    def finished(self) -> bool:
        with self._lock:
            return self._ended or (not self._pending and self._look.finished)

    def next(self) -> Batch | None:
        if self._ended:
            return None
        return self._next_ahead() if self._executor else self._next_here()

    def _question(self) -> Question | None:
        with self._lock:
            return self._look.next()

    def _next_here(self) -> Batch | None:
        question = self._question()
        return None if question is None else self._came(self._fetch(question))

    def _next_ahead(self) -> Batch | None:
        assert self._executor is not None  # noqa: S101 - for the type checker
        while len(self._pending) < self._ahead:
            question = self._question()
            if question is None:
                break
            self._pending.append(self._executor.submit(self._fetch, question))
        if not self._pending:
            return None
        batch = self._came(self._pending[0].result())
        self._pending.popleft()
        return batch

    def _came(self, batch: Batch | None) -> Batch | None:
        self._ended = batch is None
        return batch

    def _fetch(self, question: Question) -> Batch | None:
        one = self._look.one(question, Backoff(self._retries))
        port = _InterruptiblePort(self._pool, self._closing)
        with self._lock:
            self._ports.add(port)
        try:
            for _ in drive(one.run(), port):
                pass
        finally:
            with self._lock:
                self._ports.discard(port)
        if one.batch is not None:
            with self._lock:
                self._look.answered(question.index, one.batch, last=one.last)
        return one.batch

    def close(self) -> None:
        self._closing.set()
        if self._executor is None:
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        while running := [future for future in self._pending if not future.done()]:
            with self._lock:
                for port in self._ports:
                    port.interrupt()
            wait(running, _PATIENCE)
        self._executor.shutdown()
        self._pending.clear()


class Batches:
    """The batches of a pipeline, as they come; an iterator, and a context manager.

    Batches are handed out once each and in order, whatever becomes of connections
    meanwhile. After an error the next call tries again behind the last batch handed out.
    Where iteration has paused at the end of an epoch (``epoch=True``), iterating again
    goes on with the next one.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: it went wrong more often than is tolerated.
    """

    def __init__(
        self, pool: Pool, retries: int, requests: BatchRequests, place: Place, wanted: Wanted
    ) -> None:
        self._pool = pool
        self._retries = retries
        self._requests = requests
        self._wanted = wanted
        self._cursor = Cursor(place, wanted)
        self._fetching: _Fetching | None = None
        self._finished = False
        self._profile: Mapping[str, Any] = {}

    @property
    def token(self) -> str | None:
        """What to go on with behind the last batch handed out; None at the beginning."""
        return self._cursor.place.token

    @property
    def data_finished(self) -> bool:
        """Whether no batch comes behind the last one handed out, as far as is known."""
        return self._finished and self._cursor.held is None

    @property
    def profile(self) -> Mapping[str, Any]:
        """Seconds of the service's stages, as its last answer told them."""
        return self._profile

    def getstate(self) -> dict[str, Any]:
        """Where it is, as JSON values: ``{"token": ...}``, None at the beginning.

        Where only some batches are wanted (``skip``, ``every``), it also has ``skip``:
        how many to pass over from there.
        """
        return self._cursor.place.json()

    def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state; from the beginning with None. Limits count anew.

        Raises:
            StateError: it is none.
        """
        place = Place.parse(state)
        self.close()
        self._cursor = Cursor(place, self._wanted)
        self._finished = False

    def __iter__(self) -> Self:
        self._cursor.resume()
        return self

    def __next__(self) -> Batch:
        cursor = self._cursor
        while not (cursor.paused or cursor.left == 0):
            item = cursor.held or self._fetch()
            if item is None:
                break
            batch = cursor.take(item)
            if batch is not None:
                return batch
        if cursor.left == 0:
            self._leave()
        raise StopIteration

    def _fetch(self) -> Batch | EpochEnd | None:
        if self._fetching is None:
            if self._finished:
                return None
            self._fetching = self._begin()
        try:
            item = self._fetching.next()
        except BaseException:
            # What was on its way may be lost: another try begins anew.
            self.close()
            raise
        if item is None:
            self._leave()
        else:
            self._note(self._fetching)
        return item

    def _begin(self) -> _Fetching:
        cursor, wanted = self._cursor, self._wanted
        if cursor.streams:
            token = cursor.place.token
            stream = BatchStream(self._requests, token, cursor.left, Backoff(self._retries))
            return _Streaming(stream, AnswerPort(self._pool))
        look = Lookahead(self._requests, cursor.place, wanted.every, cursor.left)
        return _Asking(self._pool, self._retries, look, wanted.ahead, wanted.connections)

    def _note(self, fetching: _Fetching) -> None:
        self._finished = fetching.finished
        if isinstance(fetching, _Streaming):
            self._profile = fetching.profile

    def _leave(self) -> None:
        """Nothing more is wanted: hear how it ended, and let go of the connection."""
        fetching = self._fetching
        if fetching is not None:
            if isinstance(fetching, _Streaming):
                while (item := fetching.next()) is not None:
                    self._cursor.take(item)
            self._note(fetching)
        self.close()

    def close(self) -> None:
        """Stop early; what was handed out stays good, and iterating again goes on."""
        if self._cursor.drop_held():
            self._finished = False
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Pipeline:
    """A pipeline that the service knows: made by ``Client.pipeline``.

    Attributes:
        spec: as it was given.
        id: the same for the same spec and data.
        token: with which it begins.
        info: everything that the service said of it.
    """

    def __init__(
        self,
        pool: Pool,
        retries: int,
        call: Callable[[Request], Reply],
        spec: Mapping[str, Any],
    ) -> None:
        self._pool = pool
        self._retries = retries
        self._create = creation(spec)
        self._info = PipelineInfo.parse(call(self._create))
        self.spec = dict(spec)
        self.id = self._info.id
        self.token = self._info.token
        self.info = dict(self._info.content)

    @property
    def schema(self) -> tuple[Field, ...]:
        """Fields of its batches."""
        return self._info.layout.fields

    @property
    def batch_size(self) -> int | None:
        """Rows of a global batch; None if they differ."""
        return self._info.batch_size

    @property
    def batches_in_all(self) -> int | None:
        """Number of batches; None if there is no end, or it is not known."""
        return self._info.batches

    @property
    def batches_per_epoch(self) -> int | None:
        """Number of batches of an epoch; None if it is not known."""
        return self._info.batches_per_epoch

    @property
    def fingerprint(self) -> str:
        """Another one if the data has changed."""
        return self._info.fingerprint

    def batches(  # noqa: PLR0913 - each is a choice of the caller
        self,
        after: str | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        max_batches: int | None = None,
        epoch: bool = False,
        skip: int = 0,
        every: int = 1,
        prefetch: int = 0,
        parallel: int | None = None,
    ) -> Batches:
        """Iterate over batches. Nothing is sent before the first one is asked for.

        Args:
            after: token to go on behind; None for the beginning.
            rank: which rows of each global batch: those of this reader ...
            world: ... of so many. Tokens are those of the global batch, so that both may
                be others when another reader goes on.
            max_batches: batches wanted at the most; None for all.
            epoch: pause where an epoch ends.
            skip: batches to pass over first.
            every: only one of so many; reader w of N has ``skip=w, every=N``.
            prefetch: batches to ask for before they are wanted. They are streamed, one
                after the other, where this and ``parallel`` are left out.
            parallel: connections to ask with; as many as ``prefetch``, but at most 4, by
                default.

        Raises:
            ValueError: an argument cannot be.
            StateError: ``after`` is no token.
        """
        wanted = Wanted.of(
            rank=rank,
            world=world,
            max_batches=max_batches,
            every=every,
            epoch=epoch,
            prefetch=prefetch,
            parallel=parallel,
        )
        place = Place.parse({"token": after, "skip": skip})
        requests = BatchRequests(self._create, self._info, wanted.share)
        return Batches(self._pool, self._retries, requests, place, wanted)
