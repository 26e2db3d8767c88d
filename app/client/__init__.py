"""Client of the Thalweg service: event reports from loss streams.

    client = thalweg.Client("http://127.0.0.1:8000")
    for rows in client.losses.post("melt", "summary.bin"):
        ...

Rows are numpy structured arrays. Whatever becomes of connections meanwhile, each row
is handed out once, and an answer that is not whole never looks as if it were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._client import Client
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
from ._requests import LossOptions
from ._rows import End
from ._saving import Progress

if TYPE_CHECKING:
    from ._async import AsyncAnswer, AsyncClient

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncAnswer",
    "AsyncClient",
    "Client",
    "ConnectionFailed",
    "End",
    "LossOptions",
    "ProblemError",
    "ProducerFailed",
    "Progress",
    "ProtocolError",
    "SourceError",
    "StateError",
    "ThalwegError",
    "__version__",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    # httpx takes three times as long to import as all the rest.
    if name in {"AsyncAnswer", "AsyncClient"}:
        from . import _async  # noqa: PLC0415

        return getattr(_async, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
