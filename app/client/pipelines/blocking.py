# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Pipelines and their batches with blocking calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from ..transport.blocking import BlockingRunner, BlockingShell
from ..transport.items import Closing
from ..transport.requests import Request
from .batch import Batch
from .iteration import BatchIteration
from .layout import Field
from .requests import BatchRequests, PipelineInfo, creation
from .selection import BatchSelection, Position


class Batches(Closing):
    """The batches of a pipeline as they arrive; an iterator and a context manager.

    Each batch comes once and in order, whatever happens to connections. After an error, the
    next call tries again after the last batch handed out. Where iteration paused at the end
    of an epoch (``epoch=True``), iterating again continues with the next one.

    Raises (from iteration):
        ProblemError: the service refused, or the data has changed (code ``data-changed``).
        ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
    """

    def __init__(self, runner: BlockingRunner, iteration: BatchIteration) -> None:
        self._runner = runner
        self._iteration = iteration
        self._shell: BlockingShell | None = None

    @property
    def token(self) -> str | None:
        """Token to resume with after the last batch handed out; None at the beginning."""
        return self._iteration.position.token

    @property
    def data_finished(self) -> bool:
        """Whether no batch follows the last one handed out, as far as is known."""
        return self._iteration.data_finished

    @property
    def profile(self) -> Mapping[str, Any]:
        """Seconds per stage, as the service's last answer had them."""
        return self._iteration.profile

    def getstate(self) -> dict[str, Any]:
        """Where it is, as JSON values: ``{"token": ...}``, None at the beginning.

        With ``skip`` or ``every`` it also has ``skip``: batches to pass over from there.
        """
        return self._iteration.position.json()

    def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Resume from a state; from the beginning with None. Limits count anew.

        Raises:
            StateError: it is not a state.
        """
        position = Position.parse(state)
        self.close()
        self._iteration.restart(position)

    def __iter__(self) -> Self:
        self._iteration.resume()
        return self

    def __next__(self) -> Batch:
        if self._shell is None:
            self._shell = self._runner.shell(workers=self._iteration.connections)
        try:
            batch = self._shell.run(self._iteration.advance())
        except BaseException:
            # What was on its way may be lost: the next call opens a new answer.
            self.close()
            raise
        if batch is None:
            if self._iteration.over:
                self.close()
            raise StopIteration
        return batch

    def close(self) -> None:
        """Stop early; iterating again resumes after the last batch handed out."""
        self._iteration.stop()
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()


class Pipeline:
    """A pipeline that the service knows: the result of ``Client.pipeline``.

    Attributes:
        spec: as it was given.
        id: the same for the same spec and data.
        token: at its beginning.
        info: the service's whole description.
    """

    def __init__(
        self, runner: BlockingRunner, spec: Mapping[str, Any], create: Request, info: PipelineInfo
    ) -> None:
        self._runner = runner
        self._create = create
        self._info = info
        self.spec = dict(spec)
        self.id = info.id
        self.token = info.token
        self.info = dict(info.content)

    @classmethod
    def create(cls, runner: BlockingRunner, spec: Mapping[str, Any]) -> Pipeline:
        """Have the service make a pipeline."""
        request = creation(spec)
        info = PipelineInfo.parse(runner.call(request))
        return cls(runner, spec, request, info)

    @property
    def schema(self) -> tuple[Field, ...]:
        """Fields of its batches."""
        return self._info.layout.fields

    @property
    def batch_size(self) -> int | None:
        """Rows of a global batch; None if it varies."""
        return self._info.batch_size

    @property
    def batches_in_all(self) -> int | None:
        """Number of batches; None if there is no end, or it is unknown."""
        return self._info.batches

    @property
    def batches_per_epoch(self) -> int | None:
        """Number of batches of an epoch; None if it is unknown."""
        return self._info.batches_per_epoch

    @property
    def fingerprint(self) -> str:
        """Identifies the data: it differs once a file has changed."""
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
            after: token to resume after; None for the beginning.
            rank: which rows of each global batch: those of this reader ...
            world: ... of so many. Tokens are those of the global batch, so both may differ
                when another reader resumes.
            max_batches: number of batches; None for all.
            epoch: pause where an epoch ends.
            skip: batches to pass over first.
            every: only one of so many; reader w of N has ``skip=w, every=N``.
            prefetch: batches to ask for before they are needed. Without this and
                ``parallel`` they are streamed, one after the other.
            parallel: connections to ask with; by default as many as ``prefetch``, but at
                most 4.

        Raises:
            ValueError: an argument is out of range.
            StateError: ``after`` is not a token.
        """
        selection = BatchSelection.of(
            rank=rank,
            world=world,
            max_batches=max_batches,
            epoch=epoch,
            every=every,
            prefetch=prefetch,
            parallel=parallel,
        )
        position = Position.parse({"token": after, "skip": skip})
        requests = BatchRequests(self._create, self._info, selection.rank, selection.world)
        iteration = BatchIteration(requests, position, selection, self._runner.retries)
        return Batches(self._runner, iteration)
