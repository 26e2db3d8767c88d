"""What both clients say about a pipeline and about an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..transport.requests import Request
from .iteration import BatchIteration
from .layout import Field
from .requests import BatchRequests, PipelineInfo
from .selection import BatchSelection, Position


class PipelineDescription:
    """A pipeline that the service knows.

    Args:
        spec: as it was given.
        create: creates the pipeline again.
        info: the service's description.
    """

    def __init__(self, spec: Mapping[str, Any], create: Request, info: PipelineInfo) -> None:
        self.spec = dict(spec)
        self.id = info.id
        self.token = info.token
        self.info = dict(info.content)
        self._create = create
        self._info = info

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

    def _iteration(
        self,
        after: str | None,
        skip: int,
        retries: int,
        **choices: Any,  # noqa: ANN401 - see BatchSelection.of
    ) -> BatchIteration:
        selection = BatchSelection.of(**choices)
        position = Position.parse({"token": after, "skip": skip})
        requests = BatchRequests(self._create, self._info, selection.rank, selection.world)
        return BatchIteration(requests, position, selection, retries)


class BatchesState:
    """Where an iteration is."""

    _iteration: BatchIteration

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
