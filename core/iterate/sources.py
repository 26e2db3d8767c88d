"""Sources of items: columns in memory, and a counter.

This package opens no files: sources that do implement :class:`Source` elsewhere.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ..arrays import Indices
from .base import MAX_ITEMS, Block, Column, Field, Indexed, Ragged
from .columns import check_positions, schema_of, take_column
from .options import refuse
from .wrapped import WrappedIndexed, WrappedSequential

_DIGEST_SIZE = 16


class Source(Indexed):
    """The first stage of a pipeline."""

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """Identity of the data; equal fingerprints mean equal items."""


def fingerprint_of(stage: object) -> bytes:
    """The joined fingerprints of the sources below a stage; b"" if none has one."""
    fingerprint = getattr(stage, "fingerprint", None)
    if isinstance(fingerprint, bytes):
        return fingerprint
    return b"".join(fingerprint_of(source) for source in _below(stage))


def _below(stage: object) -> Sequence[object]:
    inner = getattr(stage, "inner", None)
    return getattr(stage, "inputs", ()) if inner is None else (inner,)


def chain_of(stage: object) -> tuple[object, ...]:
    """The names of the stages above the sources, with those of their options that JSON can hold.

    Options of a stage that are as by default are left out, as if nobody had given them.
    """
    below = _below(stage)
    if not below or isinstance(getattr(stage, "fingerprint", None), bytes):
        return ()
    chains = tuple(chain_of(inner) for inner in below)
    if isinstance(stage, WrappedIndexed | WrappedSequential):
        return chains[0]
    options = getattr(stage, "given", {})
    parameters = inspect.signature(type(stage).__init__).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    plain = [
        (name, _json(value))
        for name, value in sorted(options.items())
        if name not in defaults or value != defaults[name]
    ]
    return (type(stage).__name__, *(each for each in plain if each[1] is not None), chains)


def _json(value: object) -> str | None:
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return None


class ArraySource(Source):
    """Items in memory, a column for every field.

    Args:
        columns: of equal length; arrays with the items along the first axis, or ragged.

    Raises:
        PipelineError: there are no columns, their lengths differ, a name is no text, or one is no
            array, or an array of Python objects.
        TypeError: ``columns`` is no mapping, such as an array.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        value: object = columns
        if not isinstance(value, Mapping):
            found = type(value).__name__
            raise TypeError(f"columns is a {found}: name it, as in ArraySource({{'x': array}})")
        self.schema = schema_of(columns)
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            hint = "There must be columns, all of one length."
            raise refuse(f"columns of lengths {sorted(lengths)}", hint, "columns")
        for name, column in columns.items():
            if isinstance(column, Ragged):
                _check_offsets(name, column)
        self._columns = dict(columns)
        self.length: int = lengths.pop()
        self.scan = (self.length,)

    @cached_property
    def fingerprint(self) -> bytes:
        """BLAKE2b over names, types and every byte; computed once, on first use."""
        digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        for field, column in zip(self.schema, self._columns.values(), strict=True):
            ragged = isinstance(column, Ragged)
            head = (field.name, field.dtype.descr, field.shape, ragged, self.length)
            digest.update(repr(head).encode())
            parts = (column.values, column.offsets) if isinstance(column, Ragged) else (column,)
            for part in parts:
                digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        return digest.digest()

    def places(self, positions: Indices) -> Indices:
        """As frames in the order of a scan: labels are one for each item."""
        return positions

    def at(self, positions: Indices) -> Block:
        """Copy the items out of the columns."""
        positions = check_positions(positions, self.length)
        return {name: take_column(column, positions) for name, column in self._columns.items()}


def _check_offsets(name: str, column: Ragged) -> None:
    offsets = column.offsets
    rising = offsets.dtype == np.int64 and len(offsets) > 0 and bool(np.all(np.diff(offsets) >= 0))
    if not rising or offsets[0] != 0 or offsets[-1] > len(column.values):
        hint = "Offsets are int64, begin with 0, never descend and end within the values."
        raise refuse(f"the offsets of column {name!r} are invalid", hint, name)


class CounterSource(Source):
    """The numbers 0, 1, 2, ... as int64.

    Args:
        n: count of numbers; None for no end.
        name: of the one field.

    Raises:
        PipelineError: n is negative or above 2**62.
    """

    def __init__(self, n: int | None = None, name: str = "index") -> None:
        if n is not None and not 0 <= n <= MAX_ITEMS:
            raise refuse(f"a counter to {n}", "From 0 to 2**62, or None.", "n")
        self._n = n
        self._name = name
        self.schema = (Field(self._name, np.dtype(np.int64)),)
        self.length = self._n

    @property
    def fingerprint(self) -> bytes:
        """BLAKE2b over the name and the count."""
        identity = f"counter {self._name!r} {self._n}".encode()
        return hashlib.blake2b(identity, digest_size=_DIGEST_SIZE).digest()

    def at(self, positions: Indices) -> Block:
        """Return a copy of the positions, which are the items."""
        return {self._name: check_positions(positions, self._n).copy()}
