# mypy: disable-error-code="import-not-found, misc, no-any-return"
"""Batches of a pipeline for PyTorch; the only part of the client that needs torch.

    dataset = thalweg.torch.IterableDataset("http://127.0.0.1:8000", spec)
    for tensors, token in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
        ...

Batches come in the order of the pipeline, however many workers there are, and the token
that comes with each says where to go on: ``dataset.load_state_dict({"token": token})``, in
another process, with other numbers of workers or readers. ``PipelineNode`` is the same for
``torchdata.nodes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset as TorchDataset
from torch.utils.data import get_worker_info

from ._batch import Batch, Column, Ragged
from ._batch_requests import Place
from ._client import RETRIES, TIMEOUT, Client
from ._errors import StateError
from ._pipelines import Batches
from ._plan import Array

if TYPE_CHECKING:
    from ._torch_nodes import PipelineNode

__all__ = ["IterableDataset", "PipelineNode", "Sample", "tensors_of"]

Tensors: TypeAlias = dict[str, Any]
"""Tensors by field; what torch has no type for (text) stays a numpy array."""
Sample: TypeAlias = tuple[Tensors, str]
"""The tensors of a batch, and the token that goes on behind it."""

_TIMES = "mM"
_TEXTS = "SU"


def tensors_of(batch: Batch) -> Tensors:
    """The fields of a batch as tensors, which share its memory where they can.

    A ragged field becomes ``x`` and ``x.offsets``; the fields of a record become a dict;
    times become the int64 numbers that numpy keeps them as.

    Raises:
        TypeError: torch has no such type.
    """
    made: Tensors = {}
    for name, column in batch.items():
        made[name] = _tensor(column)
        if isinstance(column, Ragged):
            made[f"{name}.offsets"] = torch.from_numpy(column.offsets)
    return made


def _tensor(column: Column) -> Any:  # noqa: ANN401 - a tensor, or a dict of them
    array: Array = column.values if isinstance(column, Ragged) else column
    if array.dtype.names is not None:
        return {name: _tensor(array[name]) for name in array.dtype.names}
    if array.dtype.kind in _TEXTS:
        return array
    if array.dtype.kind in _TIMES:
        array = array.astype(array.dtype.newbyteorder("="), copy=False).view(np.int64)
    # Parts of a packed record lie at bytes that torch does not know.
    packed = any(step % array.itemsize for step in array.strides) or not array.flags.aligned
    if packed or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def samples(client: Client, batches: Batches, convert: Callable[[Batch], Any]) -> Iterator[Sample]:
    """Batches with their tokens; a generator, so that whoever drops it closes both."""
    with client, batches:
        for batch in batches:
            yield convert(batch), batch.token


class IterableDataset(TorchDataset[Sample]):
    """The batches of a pipeline; for a DataLoader with ``batch_size=None``.

    Worker w of N takes batches w, w + N, ..., which the DataLoader puts into order again:
    what comes does not depend on N. Every process has connections of its own.

    Its state is ``{"token": ...}``, None before the first batch. In a worker it also says
    what this worker takes next, so that a StatefulDataLoader goes on exactly; to go on
    with another number of workers, load the token that came with the last batch. A state
    is for the next iteration; the one behind it begins at the beginning again. Workers
    that are started anew for each iteration have the state of the main process: with them,
    load ``{"token": None}`` to begin at the beginning.

    Args:
        url: of the service.
        spec: of the pipeline, as for ``Client.pipeline``.
        key: bearer key, or None.
        rank: which rows of each global batch: those of this reader ...
        world: ... of so many.
        prefetch: batches that each worker asks for before they are wanted.
        convert: makes of a batch what is handed out beside its token.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: faults in a row, without progress between them, to bear.
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
        self._url = url
        self._key = key
        self._spec = dict(spec)
        self._options: dict[str, Any] = {"rank": rank, "world": world, "prefetch": prefetch}
        self._convert = convert
        self._timeout = timeout
        self._retries = retries
        self._start: dict[str, Any] = {"token": None}
        self._reading: Batches | None = None

    def __iter__(self) -> Iterator[Sample]:
        # Not a generator: whoever asks for a state before the first batch gets its place.
        start = _place(self._start)
        client = Client(self._url, self._key, timeout=self._timeout, retries=self._retries)
        with client:
            pipeline = client.pipeline(self._spec)
        batches = pipeline.batches(**start, **self._options)
        self._start = {"token": None}
        self._reading = batches
        return samples(client, batches, self._convert)

    def state_dict(self) -> dict[str, Any]:
        """Where the last iteration is, or the next one begins: JSON values."""
        info = get_worker_info()
        if self._reading is None:
            # Before the first batch: what was loaded, or the beginning.
            return dict(self._start)
        state = self._reading.getstate()
        if info is None:
            return state
        return {"skip": 0, **state, "workers": info.num_workers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration at a state.

        Raises:
            StateError: it is none, or that of a worker among others than there are now.
        """
        _place(state)
        self._start, self._reading = dict(state), None

    def __getstate__(self) -> dict[str, Any]:
        # Connections and threads stay in the process that made them.
        return self.__dict__ | {"_reading": None}


def _place(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader in this process is to begin with: after, skip and every.

    Raises:
        StateError: the state is none, or not for here.
    """
    own = {name: value for name, value in dict(state).items() if name != "workers"}
    place = Place.parse(own)
    info = get_worker_info()
    worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
    if "workers" not in state and not place.skip:
        return {"after": place.token, "skip": worker, "every": workers}
    if state.get("workers") != workers:
        raise StateError(
            f"the state is that of one of {state.get('workers')} workers, here are {workers}:"
            " load the token that came with the last batch instead"
        )
    return {"after": place.token, "skip": place.skip, "every": workers}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    # torchdata is wanted by those who use its nodes.
    if name == "PipelineNode":
        from . import _torch_nodes  # noqa: PLC0415

        return _torch_nodes.PipelineNode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
