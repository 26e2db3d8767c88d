"""Client of the Thalweg service: reports from loss streams, tiles of datasets, batches.

    client = thalweg.Client("http://127.0.0.1:8000")
    for rows in client.losses.post("melt", "summary.bin"):
        ...
    array = client.datasets["scan1"].view(frames=[3, 1, 5], dtype="f4").read()
    for batch in client.pipeline(spec).batches(after=token):
        ...

Rows are numpy structured arrays, tiles numpy arrays, batches mappings of fields to numpy
arrays. Whatever becomes of connections meanwhile, each is handed out once, and an answer
that is not whole never looks as if it were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._batch import Batch, Field, Ragged
from ._client import Client
from ._dataset_requests import ViewOptions
from ._datasets import Dataset
from ._errors import (
    ConnectionFailed,
    ProblemError,
    ProducerFailed,
    ProtocolError,
    SourceError,
    StateError,
    ThalwegError,
)
from ._losses import Answer
from ._pipelines import Batches, Pipeline
from ._plan import Box, Plan, Tile
from ._requests import LossOptions
from ._rows import End
from ._saving import Progress
from ._tile_files import TileProgress
from ._views import Tiles, View

if TYPE_CHECKING:
    from ._async import AsyncAnswer, AsyncClient
    from ._async_datasets import AsyncDataset, AsyncTiles, AsyncView
    from ._async_pipelines import AsyncBatches, AsyncPipeline

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncAnswer",
    "AsyncBatches",
    "AsyncClient",
    "AsyncDataset",
    "AsyncPipeline",
    "AsyncTiles",
    "AsyncView",
    "Batch",
    "Batches",
    "Box",
    "Client",
    "ConnectionFailed",
    "Dataset",
    "End",
    "Field",
    "LossOptions",
    "Pipeline",
    "Plan",
    "ProblemError",
    "ProducerFailed",
    "Progress",
    "ProtocolError",
    "Ragged",
    "SourceError",
    "StateError",
    "ThalwegError",
    "Tile",
    "TileProgress",
    "Tiles",
    "View",
    "ViewOptions",
    "__version__",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    # httpx takes three times as long to import as all the rest.
    if name in {"AsyncAnswer", "AsyncClient"}:
        from . import _async  # noqa: PLC0415

        return getattr(_async, name)
    if name in {"AsyncDataset", "AsyncTiles", "AsyncView"}:
        from . import _async_datasets  # noqa: PLC0415

        return getattr(_async_datasets, name)
    if name in {"AsyncBatches", "AsyncPipeline"}:
        from . import _async_pipelines  # noqa: PLC0415

        return getattr(_async_pipelines, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
