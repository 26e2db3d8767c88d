"""Batches of a pipeline for PyTorch; the only part of the client that needs torch.

    dataset = thalweg.torch.IterableDataset("http://127.0.0.1:8000", spec)
    for tensors, token in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
        ...

Batches come in the order of the pipeline, however many workers there are. The token of each
resumes after it: ``dataset.load_state_dict({"token": token})``, in another process, with
another number of workers or readers. ``PipelineNode`` is the same for ``torchdata.nodes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dataset import IterableDataset, Sample, tensors_of

if TYPE_CHECKING:
    from .nodes import PipelineNode

__all__ = ["IterableDataset", "PipelineNode", "Sample", "tensors_of"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    # Only its nodes need torchdata.
    if name == "PipelineNode":
        from .nodes import PipelineNode  # noqa: PLC0415

        return PipelineNode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
