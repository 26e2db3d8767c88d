# mypy: disable-error-code="import-not-found, misc, no-any-return"
"""Batches as tensors, with their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch

from ..client import Client
from ..pipelines.batch import Batch, Column, Ragged
from ..pipelines.blocking import Batches
from ..transport.frames import Array

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
