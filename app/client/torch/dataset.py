# mypy: disable-error-code="import-not-found, misc, no-any-return"
"""Batches of a pipeline for a ``DataLoader``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset as TorchDataset
from torch.utils.data import get_worker_info

from ..client import Client
from ..errors import StateError
from ..pipelines.batch import Batch, Column, Ragged
from ..pipelines.blocking import Batches
from ..pipelines.selection import Position
from ..transport.frames import Array
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES

Tensors: TypeAlias = dict[str, Any]
"""Tensors by field; text, for which torch has no dtype, stays a numpy array."""
Sample: TypeAlias = tuple[Tensors, str]
"""The tensors of a batch, and the token to resume with after it."""

_TIMES = "mM"
_TEXTS = "SU"


def tensors_of(batch: Batch) -> Tensors:
    """The fields of a batch as tensors, which share its memory where they can.

    A ragged field becomes ``x`` and ``x.offsets``, a record a dict of its fields, and times
    the int64 numbers by which numpy stores them.

    Raises:
        TypeError: torch has no such dtype.
    """
    tensors: Tensors = {}
    for name, column in batch.items():
        tensors[name] = _tensor(column)
        if isinstance(column, Ragged):
            tensors[f"{name}.offsets"] = torch.from_numpy(column.offsets)
    return tensors


def _tensor(column: Column) -> Any:  # noqa: ANN401 - a tensor, or a dict of them
    array: Array = column.values if isinstance(column, Ragged) else column
    if array.dtype.names is not None:
        return {name: _tensor(array[name]) for name in array.dtype.names}
    if array.dtype.kind in _TEXTS:
        return array
    if array.dtype.kind in _TIMES:
        array = array.astype(array.dtype.newbyteorder("="), copy=False).view(np.int64)
    # Torch knows no strides that are not multiples of the item, as packed records have.
    packed = any(step % array.itemsize for step in array.strides) or not array.flags.aligned
    if packed or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def samples(client: Client, batches: Batches, convert: Callable[[Batch], Any]) -> Iterator[Sample]:
    """Batches with their tokens; a generator, so that dropping it closes both."""
    with client, batches:
        for batch in batches:
            yield convert(batch), batch.token


class IterableDataset(TorchDataset[Sample]):
    """The batches of a pipeline; for a DataLoader with ``batch_size=None``.

    Worker w of N takes batches w, w + N, ..., and the DataLoader puts them into order again:
    the result does not depend on N. Every process has connections of its own.

    Its state is ``{"token": ...}``, None before the first batch. In a worker it also says
    what this worker takes next, so that a StatefulDataLoader resumes exactly. To resume with
    another number of workers, load the token of the last batch. A state is for the next
    iteration only; the one after it starts over. Workers that are started anew for each
    iteration inherit the state of the main process: with them, load ``{"token": None}`` to
    start over.

    Args:
        url: of the service.
        spec: of the pipeline, as for ``Client.pipeline``.
        key: bearer key, or None.
        rank: which rows of each global batch: those of this reader ...
        world: ... of so many.
        prefetch: batches that each worker asks for before they are needed.
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
        # Not a generator: a state asked for before the first batch must be the start.
        start = _arguments(self._start)
        client = Client(self._url, self._key, timeout=self._timeout, retries=self._retries)
        with client:
            pipeline = client.pipeline(self._spec)
        batches = pipeline.batches(**start, **self._options)
        self._start = {"token": None}
        self._reading = batches
        return samples(client, batches, self._convert)

    def state_dict(self) -> dict[str, Any]:
        """Where the last iteration is, or the next one begins, as JSON values."""
        info = get_worker_info()
        if self._reading is None:
            # No iteration yet: the state loaded, or the beginning.
            return dict(self._start)
        state = self._reading.getstate()
        if info is None:
            return state
        return {"skip": 0, **state, "workers": info.num_workers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration at a state.

        Raises:
            StateError: it is not a state, or one of another number of workers.
        """
        _arguments(state)
        self._start, self._reading = dict(state), None

    def __getstate__(self) -> dict[str, Any]:
        # Connections and threads stay in the process that made them.
        return self.__dict__ | {"_reading": None}


def _arguments(state: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a reader in this process: after, skip and every.

    Raises:
        StateError: it is not a state, or one of another number of workers.
    """
    own = {name: value for name, value in dict(state).items() if name != "workers"}
    position = Position.parse(own)
    info = get_worker_info()
    worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
    if "workers" not in state and not position.skip:
        return {"after": position.token, "skip": worker, "every": workers}
    if state.get("workers") != workers:
        raise StateError(
            f"the state is that of one of {state.get('workers')} workers, but there are {workers}:"
            " load the token of the last batch instead"
        )
    return {"after": position.token, "skip": position.skip, "every": workers}
