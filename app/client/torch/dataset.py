# mypy: disable-error-code="import-not-found, misc, no-any-return"
"""Batches of a pipeline for a ``DataLoader``."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset as TorchDataset
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from ..client import Client
from ..errors import ProblemError, StateError
from ..pipelines.batch import Batch, Column, Ragged
from ..pipelines.blocking import Batches, Pipeline
from ..pipelines.requests import creation
from ..pipelines.selection import BatchSelection, Position
from ..transport.frames import Array
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES
from .rooms import Rooms, tensor_in

Tensors: TypeAlias = dict[str, Any]
"""Tensors by field; text, for which torch has no dtype, stays a numpy array."""

_PIPED = 1 << 19
"""Bytes of a tensor that reaches the main process sooner through the pipe of its worker than by
a file descriptor, which torch opens, sends over a socket and maps for each."""
_SMALL = 1 << 14
"""Bytes up to which the pipe takes no longer than a room does."""
_TEXT = 1024
"""Where the state lies behind the numbers of workers; others start at the beginning."""
_STATE = 2048
"""Bytes of a state; its token has at most 512 characters."""
_DOCUMENT = "\nproblem: "


class WorkerProblemError(ProblemError, RuntimeError):
    """What the service refused a worker; PyTorch hands on its text alone, which so has it all.

    Without this it would be a RuntimeError, so it is one as well.

    Args:
        text: what is wrong, and the problem document after it.
    """

    def __init__(self, text: str) -> None:
        self._whole = text
        self._text, _, document = text.rpartition(_DOCUMENT)
        super().__init__(*json.loads(document))

    def __str__(self) -> str:
        return self._text if get_worker_info() is None else self._whole

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._whole,)


@contextlib.contextmanager
def _carried() -> Iterator[None]:
    """Have problems that a worker meets reach the main process as such."""
    try:
        yield
    except ProblemError as e:
        if get_worker_info() is None:
            raise
        document = json.dumps([e.status, e.problem, e.retry_after])
        raise WorkerProblemError(f"{e}{_DOCUMENT}{document}") from None


class Sample(NamedTuple):
    """What a dataset hands out: the pair ``(tensors, token)``.

    Attributes:
        tensors: of a batch, by field; or what ``convert`` made of it.
        token: to resume with after it.
    """

    tensors: Any
    token: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Send tensors as bytes, or in rooms."""
        return _reduced(self, None)


def _sample_with(rooms: Rooms | None) -> type[Sample]:
    """The type of samples whose large tensors go through rooms: torch makes anew those it gets."""

    class Roomy(Sample):
        def __reduce__(self) -> tuple[Any, ...]:
            return _reduced(self, rooms)

    return Roomy if rooms is not None else Sample


def _reduced(sample: Sample, rooms: Rooms | None) -> tuple[Any, ...]:
    tensors = sample.tensors
    if type(tensors) is dict:
        largest = max((value.nbytes for value in tensors.values() if _is_plain(value)), default=0)
        send = partial(_sent, rooms=rooms, largest=largest)
        tensors = {name: send(x) if _is_plain(x) else x for name, x in tensors.items()}
    return Sample, (tensors, sample.token)


class _Call:
    """What is pickled as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:  # noqa: ANN401
        self._call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - a tensor, or something else
    plain = type(value) is torch.Tensor and value.layout is torch.strided
    return plain and not value.requires_grad and value.device.type == "cpu" and value.nbytes > 0


def _sent(tensor: Any, rooms: Rooms | None, largest: int) -> Any:  # noqa: ANN401 - of torch
    """What is pickled instead of a tensor."""
    octets = tensor.contiguous().flatten().view(torch.uint8).numpy()
    kind = tensor.dtype, tuple(tensor.shape)
    if tensor.nbytes > _SMALL and rooms is not None and (place := rooms.put(octets, largest)):
        return _Call(tensor_in, place, *kind)
    return _Call(_tensor_from, octets.tobytes(), *kind) if tensor.nbytes <= _PIPED else tensor


def _tensor_from(octets: bytes, dtype: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
    return torch.frombuffer(bytearray(octets), dtype=dtype).reshape(shape)


def _collate(batch: list[Sample], *, collate_fn_map: Any = None) -> Any:  # noqa: ANN401 - of torch
    """Make batches of batches, as was asked for, but say so."""
    warnings.warn(
        "the DataLoader makes batches of the pipeline's batches: give it batch_size=None, and the"
        " pipeline a stage batch of the size you want",
        stacklevel=2,
    )
    return collate([tuple(each) for each in batch], collate_fn_map=collate_fn_map)


default_collate_fn_map[Sample] = _collate

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


class _Start:
    """Where the next iteration begins: a state that one iteration takes, and no other.

    Workers are copies of the dataset, which do not see what becomes of each other: the state and
    who has taken it are in memory that all of them share.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        # The number of the state, the iteration that takes it, the last one that began, by worker
        # the number of the state it took last, and the state as text.
        self._cells = torch.zeros(_TEXT + _STATE // 8, dtype=torch.int64).share_memory_()

    def load(self, state: Mapping[str, Any]) -> None:
        """Set the state for the next iteration."""
        text = bytearray(json.dumps(dict(state)).encode().ljust(_STATE))
        self._cells[_TEXT:] = torch.frombuffer(text, dtype=torch.int64)
        self._cells[0] += 1
        self._cells[1:3] = 0

    def state(self) -> dict[str, Any]:
        """The state loaded last; the beginning if none was."""
        text = self._cells[_TEXT:].numpy().tobytes()
        return dict(json.loads(text)) if self._cells[0] else {"token": None}

    @property
    def is_with_workers(self) -> bool:
        """Whether workers read, and no iteration has begun here since."""
        return int(self._cells[2]) > 0

    def take(self) -> dict[str, Any]:
        """Where this process begins an iteration."""
        info = get_worker_info()
        # Workers of one iteration have seeds in a row.
        worker, iteration = (0, -1) if info is None else (info.id, info.seed - info.id or 1)
        cell, number = 3 + worker, self._cells[0]
        self._cells[2] = iteration
        if not self._cells[1]:
            self._cells[1] = iteration
        if cell >= _TEXT or self._cells[cell] == number or self._cells[1] != iteration:
            return {"token": None}
        self._cells[cell] = number
        return self.state()


class IterableDataset(TorchDataset[Sample]):
    """The batches of a pipeline; for a DataLoader with ``batch_size=None``.

    Worker w of N takes batches w, w + N, ..., and the DataLoader puts them into order again:
    the result does not depend on N. Every process has connections of its own.

    Its state is ``{"token": ...}``, None before the first batch. In a worker it also says
    what this worker takes next, so that a StatefulDataLoader resumes exactly. To resume with
    another number of workers, load the token of the last batch. A state is for the next
    iteration only; those after it are whole again, whether workers persist or not.

    Its length is the number of batches of the pipeline, if that is known.

    Args:
        url: of the service.
        spec: of the pipeline, as for ``Client.pipeline``.
        key: bearer key, or None.
        rank: which rows of each global batch: those of this reader ...
        world: ... of so many.
        prefetch: batches to read ahead while the caller is busy, as for ``Pipeline.batches``.
            Workers are ahead by the ``prefetch_factor`` of their DataLoader: leave it 0 there.
        convert: turns a batch into what is handed out with its token.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: failures in a row, without progress between them, to tolerate.

    Raises:
        TypeError, ValueError: an argument is not one of these, or the spec cannot be JSON.
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
        self._options: dict[str, Any] = {"rank": rank, "world": world, "prefetch": prefetch}
        self._convert = convert
        self._timeout = timeout
        self._retries = retries
        # Here rather than in a worker, whose errors come late and wrapped.
        if not callable(convert):
            raise TypeError(f"convert is {convert!r}: give a function of a batch")
        self._client().close()
        creation(spec)
        BatchSelection(**self._options)
        self._spec = dict(spec)
        self._start = _Start()
        self._rooms = Rooms.where_possible()
        self._length: int | None = None
        self._reading: Batches | None = None

    def __iter__(self) -> Iterator[Sample]:
        # Not a generator: a state asked for before the first batch must be the start.
        with _carried():
            client, pipeline = self._open()
            self._reading = pipeline.batches(**_arguments(self._start.take()), **self._options)
        return self._samples(client, self._reading)

    def _samples(self, client: Client, batches: Batches) -> Iterator[Sample]:
        # Dropping the generator closes both.
        with _carried(), client, batches:
            make = Sample if get_worker_info() is None else _sample_with(self._rooms)
            for batch in batches:
                yield make(self._convert(batch), batch.token)

    def _client(self) -> Client:
        return Client(self._url, self._key, timeout=self._timeout, retries=self._retries)

    def _open(self) -> tuple[Client, Pipeline]:
        client = self._client()
        with client:
            pipeline = client.pipeline(self._spec)
        self._length = pipeline.batches_in_all
        return client, pipeline

    def __bool__(self) -> bool:
        """True: the length may be unknown, or 0."""
        return True

    def __len__(self) -> int:
        """Number of batches of the whole pipeline.

        Raises:
            TypeError: there is no end, or it is not known before all have been read.
        """
        if self._length is not None:
            return self._length
        client, pipeline = self._open()
        with client:
            return len(pipeline)

    def state_dict(self) -> dict[str, Any]:
        """Where the last iteration is, or the next one begins, as JSON values."""
        info = get_worker_info()
        if info is None and self._start.is_with_workers:
            warnings.warn(
                "workers of a DataLoader are reading, and the dataset does not know how far:"
                " keep the token of the last batch, or use a StatefulDataLoader",
                stacklevel=2,
            )
        if self._reading is None:
            # No iteration yet: the state loaded, or the beginning.
            return self._start.state()
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
        if self._start.process != os.getpid():
            self._start = _Start()  # a StatefulDataLoader loads what is for this worker only
        self._start.load(state)
        self._reading = None

    def __getstate__(self) -> dict[str, Any]:
        # Connections and threads stay in the process that made them.
        return self.__dict__ | {"_reading": None, "_rooms": None}


def _arguments(state: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a reader in this process: after, skip and every.

    Raises:
        StateError: it is not a state, or one of another number of workers.
    """
    if not isinstance(state, Mapping):
        raise StateError('a state of batches is {"token": ...}')
    own = {name: value for name, value in state.items() if name != "workers"}
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
