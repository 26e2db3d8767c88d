# mypy: disable-error-code="import-not-found, misc, no-any-return"
"""Batches of a pipeline as a node of ``torchdata.nodes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchdata.nodes import BaseNode

from .dataset import IterableDataset, Sample


class PipelineNode(BaseNode[Sample]):
    """The batches of a pipeline, each with the token to resume with after it.

    Its state is ``{"token": ...}``, None before the first batch.

    Args:
        url: of the service.
        spec: of the pipeline, as for ``Client.pipeline``.
        options: key, rank, world, prefetch, convert, timeout and retries, as for
            ``IterableDataset``.
    """

    def __init__(self, url: str, spec: Mapping[str, Any], **options: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._dataset = IterableDataset(url, spec, **options)
        self._samples: Iterator[Sample] = iter(())

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin at a state, or at the beginning.

        Raises:
            StateError: it is not a state.
            ThalwegError: the service refused the pipeline, or could not be reached.
        """
        super().reset(initial_state)
        self._dataset.load_state_dict({"token": None} if initial_state is None else initial_state)
        self._samples = iter(self._dataset)

    def next(self) -> Sample:
        """The next batch.

        Raises:
            StopIteration: there is none left.
            ThalwegError: as for iterating over ``Batches``.
        """
        return next(self._samples)

    def get_state(self) -> dict[str, Any]:
        """Where it is, as JSON values."""
        return self._dataset.state_dict()
