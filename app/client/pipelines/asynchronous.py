"""Pipelines and their batches with asyncio.

Batches come as a *stream*: one answer that the service fills ahead of the reader, of every batch
or of every n-th. Several streams that share the batches are read in turn, where batches take long
to make and several servers or cores share the work. Either way batches come in order and are
resumed by the token of the last one.

The position of ``AsyncBatches`` moves only when a batch is handed out. Whatever is on its way at
that moment, in a buffer or in another thread, may therefore be dropped at any time: after an
error, a pause or ``aclose`` the next call opens anew there.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

from ..transport.async_channel import AsyncClosing, AsyncConnector
from ..transport.requests import Request
from .async_streams import AsyncLanes
from .batch import Batch, EpochEnd
from .layout import Field
from .requests import BatchRequests, PipelineInfo, undecided
from .selection import BatchSelection, Position


class AsyncBatches(AsyncClosing):
    """The batches of a pipeline as they arrive; an asynchronous iterator and a context manager.

    Each batch comes once and in order, whatever happens to connections. After an error, the
    next call tries again after the last batch handed out. Where iteration paused at the end
    of an epoch (``epoch=True``), iterating again continues with the next one.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.

    Attributes:
        profile: seconds per stage, as the service's last answer had them.
        notes: what people should know, such as why there is no batch; also warned of.
    """

    def __init__(
        self, connector: AsyncConnector, requests: BatchRequests, position: Position
    ) -> None:
        self._connector = connector
        self._requests = requests
        self._selection = requests.selection
        self.profile: Mapping[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        self._restart(position)

    def _restart(self, position: Position) -> None:
        self._position = position
        self._paused = False
        self._left = self._selection.max_batches
        self._epoch: int | None = None
        self._held: Batch | None = None
        self._finished = False
        self._source: AsyncLanes | None = None

    @property
    def token(self) -> str | None:
        """Token to resume with after the last batch handed out; None at the beginning."""
        return self._position.token

    @property
    def data_finished(self) -> bool:
        """Whether no batch follows the last one handed out, as far as is known."""
        return self._finished and self._held is None

    def getstate(self) -> dict[str, Any]:
        """Where it is, as JSON values: ``{"token": ...}``, None at the beginning.

        With ``skip`` or ``every`` it also has ``skip``: batches to pass over from there.
        """
        return self._position.json()

    async def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Resume from a state; from the beginning with None. Limits count anew.

        Raises:
            StateError: it is not a state.
        """
        position = Position.parse(state)
        await self.aclose()
        self._restart(position)

    def __aiter__(self) -> Self:
        if self._paused:
            self._paused, self._epoch = False, None
        return self

    async def __anext__(self) -> Batch:
        try:
            batch = await self._advance()
        except BaseException:
            # What was on its way may be lost: the next call opens a new answer.
            await self.aclose()
            raise
        if batch is None:
            if self._left == 0 or not self._paused:
                await self.aclose()
            raise StopAsyncIteration
        return batch

    async def _advance(self) -> Batch | None:
        """The next batch; None at the end, the limit, or the end of an epoch."""
        while not (self._paused or self._left == 0):
            item = self._held or await self._fetch()
            if item is None:
                break
            batch = self._accept(item)
            if batch is not None:
                return batch
        if self._left == 0 and self._source is not None:
            # Read how the answer ended: its connection can be used again.
            while (item := await self._fetch()) is not None:
                self._accept(item)
        return None

    async def _fetch(self) -> Batch | EpochEnd | None:
        if self._source is None:
            if self._finished:
                return None
            where = (self._position, self._left)
            self._source = AsyncLanes(self._connector, self._requests, *where)
        item = await self._source.take()
        self._finished = self._source.data_finished
        self.profile = self._source.first.profile
        if item is None:
            self.notes = self._source.first.notes
            for note in self.notes:
                if note not in self._requests.info.notes:  # which were warned of at once
                    warnings.warn(note, stacklevel=4)
        return item

    def _accept(self, item: Batch | EpochEnd) -> Batch | None:
        """Move on by what came next; the batch to hand out, if any."""
        if isinstance(item, EpochEnd):
            # After a cut, the end of an epoch that is known already may come again.
            self._paused = self._selection.epoch and self._epoch is not None
            return None
        if self._selection.epoch and self._epoch not in {None, item.epoch}:
            self._held, self._paused = item, True
            return None
        self._held = None
        self._epoch = item.epoch
        self._position = Position(item.token, self._selection.every - 1)
        if self._left is not None:
            self._left -= 1
        return item

    async def aclose(self) -> None:
        """Stop early; iterating again resumes after the last batch handed out."""
        if self._held is not None:
            # It comes again.
            self._held, self._finished = None, False
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()


class AsyncPipeline:
    """A pipeline that the service knows: the result of ``AsyncClient.pipeline``.

    Attributes:
        spec: as it was given.
        id: the same for the same spec.
        token: at its beginning.
        info: the service's whole description.
        schema: fields of its batches.
        batch_size: rows of a global batch; None if it varies.
        batches_in_all: number of batches; None if there is no end, or it is unknown.
        batches_per_epoch: number of batches of an epoch; None if it is unknown.
        fingerprint: identifies the data: it differs once a file has changed.
    """

    def __init__(
        self,
        connector: AsyncConnector,
        spec: Mapping[str, Any],
        create: Request,
        info: PipelineInfo,
    ) -> None:
        self._connector = connector
        self._create = create
        self._info = info
        self.spec = dict(spec)
        self.id = info.id
        self.token = info.token
        self.info = dict(info.content)
        self.schema: tuple[Field, ...] = info.layout.fields
        self.batch_size = info.batch_size
        self.batches_in_all = info.batches
        self.batches_per_epoch = info.batches_per_epoch
        self.fingerprint = info.fingerprint

    def __bool__(self) -> bool:
        """True: the length may be unknown, or 0."""
        return True

    def __len__(self) -> int:
        """Number of batches.

        Raises:
            TypeError: there is no end, or it is not known before all have been read.
        """
        if self.batches_in_all is None:
            stages = " and ".join(undecided(self.info["spec"]["stages"]))
            raise TypeError(
                f"the number of batches is not known: with {stages} the pipeline has no end, or is"
                " read before its length is known"
            )
        return self.batches_in_all

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
    ) -> AsyncBatches:
        """Iterate over batches. Nothing is sent before the first one is asked for.

        Args:
            after: token to resume after; None for the beginning.
            rank: which rows of each global batch: those of this reader ...
            world: ... of so many. Tokens are those of the global batch, so both may differ
                when another reader resumes.
            max_batches: number of batches; None for all.
            epoch: pause where an epoch ends.
            skip: batches to pass over first.
            every: only one of so many; reader w of N has ``skip=w, every=N``.
            prefetch: batches to read ahead while the caller is busy. The service and the
                buffers of the connection, some megabytes, are ahead of the reader anyway; this
                adds where batches are larger, and spares a busy caller the time to receive and
                check them. It makes no difference to a caller that only waits for batches.
            parallel: streams to read in turn, each on a connection of its own: faster where
                batches take the service long and it has cores or servers to spare, or where one
                connection does not fill the line. Slower over loopback.

        Raises:
            ValueError: an argument is out of range.
            StateError: ``after`` is not a token.
        """
        selection = BatchSelection(
            rank=rank,
            world=world,
            max_batches=max_batches,
            epoch=epoch,
            every=every,
            prefetch=prefetch,
            parallel=parallel,
        )
        position = Position.parse({"token": after, "skip": skip})
        requests = BatchRequests(self._create, self._info, selection)
        return AsyncBatches(self._connector, requests, position)
