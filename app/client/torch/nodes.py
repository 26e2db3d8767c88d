# mypy: disable-error-code="import-not-found, misc, no-any-return"
"""Batches of a pipeline as a node of ``torchdata.nodes``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchdata.nodes import BaseNode

from ..client import Client
from ..pipelines.batch import Batch
from ..pipelines.blocking import Batches
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES
from .dataset import Sample, samples, tensors_of


class PipelineNode(BaseNode[Sample]):
    """The batches of a pipeline, each with the token to resume with after it.

    Its state is ``{"token": ...}``, None before the first batch.

    Args:
        url: of the service.
        spec: of the pipeline, as for ``Client.pipeline``.
        key: bearer key, or None.
        rank: which rows of each global batch: those of this reader ...
        world: ... of so many.
        prefetch: batches to ask for before they are needed.
        convert: turns a batch into what is handed out with its token.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: failures in a row, without progress between them, to tolerate.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller
        self,
        url: str,
        spec: Mapping[str, Any],
        *,
        key: str | None = None,
        rank: int = 0,
        world: int = 1,
        prefetch: int = 0,
        convert: Callable[[Batch], Any] = tensors_of,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
    ) -> None:
        super().__init__()
        self._client = Client(url, key, timeout=timeout, retries=retries)
        self._spec = dict(spec)
        self._options: dict[str, Any] = {"rank": rank, "world": world, "prefetch": prefetch}
        self._convert = convert
        self._batches: Batches | None = None
        self._samples: Iterator[Sample] = iter(())

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin at a state, or at the beginning.

        Raises:
            StateError: it is not a state.
            ThalwegError: the service refused the pipeline, or could not be reached.
        """
        super().reset(initial_state)
        if self._batches is None:
            with self._client as client:
                self._batches = client.pipeline(self._spec).batches(**self._options)
        self._batches.setstate(initial_state)
        self._samples = samples(self._client, self._batches, self._convert)

    def next(self) -> Sample:
        """The next batch.

        Raises:
            StopIteration: there is none left.
            ThalwegError: as for iterating over ``Batches``.
        """
        return next(self._samples)

    def get_state(self) -> dict[str, Any]:
        """Where it is, as JSON values."""
        # BaseNode has called reset before.
        assert self._batches is not None  # noqa: S101 - for the type checker
        return self._batches.getstate()
