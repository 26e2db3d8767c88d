"""Client of the Thalweg service: reports from loss streams, durable runs, tiles, batches.

    client = thalweg.Client("http://127.0.0.1:8000")
    for rows in client.losses.post("melt", "summary.bin"):
        ...
    array = client.datasets["scan1"].view(frames=[3, 1, 5], dtype="f4").read()
    for batch in client.pipeline(spec).batches(after=token):
        ...

Rows are numpy structured arrays, tiles numpy arrays, batches mappings of fields to numpy
arrays. Each comes exactly once, whatever happens to connections, and a truncated answer is
an error.

The names in ``__all__``, ``thalweg.torch`` and the ``thalweg`` command are public.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .client import Client
from .datasets.blocking import Dataset
from .errors import (
    ConnectionFailed,
    ProblemError,
    ProducerFailed,
    ProtocolError,
    SourceError,
    StateError,
    ThalwegError,
)
from .losses.blocking import Answer
from .losses.requests import LossOptions
from .losses.rows import End, EPCalc, EPType, ReportTable
from .losses.saving import Progress
from .pipelines.batch import Batch, Ragged
from .pipelines.blocking import Batches, Pipeline
from .pipelines.layout import Field
from .portfolios.requests import LossSet, PortfolioAnswer
from .runs.blocking import EventAnswer, RowAnswer
from .runs.following import RunEvent, RunRows
from .runs.requests import Part, Run, Stream
from .runs.uploading import Uploaded, Uploading
from .tiles.blocking import Tiles, View
from .tiles.plan import Box, Plan, Tile
from .tiles.requests import ViewOptions
from .tiles.saving import TileProgress

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .datasets.asynchronous import AsyncDataset
    from .losses.asynchronous import AsyncAnswer
    from .pipelines.asynchronous import AsyncBatches, AsyncPipeline
    from .runs.asynchronous import AsyncEventAnswer, AsyncRowAnswer
    from .tiles.asynchronous import AsyncTiles, AsyncView

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncAnswer",
    "AsyncBatches",
    "AsyncClient",
    "AsyncDataset",
    "AsyncEventAnswer",
    "AsyncPipeline",
    "AsyncRowAnswer",
    "AsyncTiles",
    "AsyncView",
    "Batch",
    "Batches",
    "Box",
    "Client",
    "ConnectionFailed",
    "Dataset",
    "EPCalc",
    "EPType",
    "End",
    "EventAnswer",
    "Field",
    "LossOptions",
    "LossSet",
    "Part",
    "Pipeline",
    "Plan",
    "PortfolioAnswer",
    "ProblemError",
    "ProducerFailed",
    "Progress",
    "ProtocolError",
    "Ragged",
    "ReportTable",
    "RowAnswer",
    "Run",
    "RunEvent",
    "RunRows",
    "SourceError",
    "StateError",
    "Stream",
    "ThalwegError",
    "Tile",
    "TileProgress",
    "Tiles",
    "Uploaded",
    "Uploading",
    "View",
    "ViewOptions",
    "__version__",
]


# httpx takes three times as long to import as all the rest.
_ASYNCHRONOUS = {
    "AsyncAnswer": "losses.asynchronous",
    "AsyncBatches": "pipelines.asynchronous",
    "AsyncClient": "async_client",
    "AsyncDataset": "datasets.asynchronous",
    "AsyncEventAnswer": "runs.asynchronous",
    "AsyncPipeline": "pipelines.asynchronous",
    "AsyncRowAnswer": "runs.asynchronous",
    "AsyncTiles": "tiles.asynchronous",
    "AsyncView": "tiles.asynchronous",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    if name in _ASYNCHRONOUS:
        return getattr(import_module(f".{_ASYNCHRONOUS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
