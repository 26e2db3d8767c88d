"""Factories of readers and writers: builders and pipes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError, ContractError
from ..schema import Field, Struct
from ._base import Hooks, Reader, Writer
from ._readers import CompositeReader


class ReaderBuilder:
    """Makes any number of readers of one dataset."""

    def schema(self) -> Field:
        """Schema of the readers."""
        raise NotImplementedError

    def setup(self, **kwargs: Any) -> Any:  # noqa: ANN401 - the builder's
        """Prepare, once, before the first reader."""
        raise NotImplementedError

    def new_reader(self, **kwargs: Any) -> Any:  # noqa: ANN401 - a Reader, or what has one
        """Make a reader."""
        raise NotImplementedError


class PipedReaderBuilder(ReaderBuilder):
    """Passes each reader of another builder through ``piper(reader=..., **kwargs)``."""

    def __init__(self, builder: ReaderBuilder, piper: Callable[..., Any]) -> None:
        self._builder = builder
        self._piper = piper

    def schema(self) -> Field:
        """Schema of the inner builder."""
        return self._builder.schema()

    def setup(self, **kwargs: Any) -> Any:  # noqa: ANN401 - the builder's
        """Set up the inner builder."""
        return self._builder.setup(**kwargs)

    def new_reader(self, **kwargs: Any) -> Any:  # noqa: ANN401 - a Reader, or what has one
        """Make a reader and pipe it; a result that is no Reader must have ``reader()``."""
        output = self._piper(reader=self._builder.new_reader(**kwargs), **kwargs)
        return output if isinstance(output, Reader) else output.reader()


class Pipe:
    """Connects writers to readers, which read the records that the writers write."""

    def __init__(self, schema: Field | None = None, obj_key: str | None = None) -> None:
        self._schema = schema
        self._obj_key = obj_key
        self._num_writers = 0
        self._num_readers = 0
        self._lock = threading.Lock()

    def schema(self) -> Field | None:
        """The schema of the constructor, or else that of the first writer that has one."""
        return self._schema

    def setup(self, init: Hooks) -> None:
        """Add functions to call once."""

    def reader(self) -> Reader:
        """Make a reader."""
        raise NotImplementedError

    def writer(self) -> Writer:
        """Make a writer."""
        raise NotImplementedError

    def num_readers(self) -> int:
        """Number of its readers."""
        return self._num_readers

    def num_writers(self) -> int:
        """Number of its writers."""
        return self._num_writers

    def _new_writer(self, writer_schema: Field | None, writer_init: Hooks) -> None:
        with self._lock:
            if self._schema is None:
                self._schema = writer_schema
            self._num_writers += 1
        self._register(writer_init)

    def _new_reader(self, reader_init: Hooks) -> None:
        with self._lock:
            self._num_readers += 1
        self._register(reader_init)

    def _register(self, init: Hooks) -> None:
        if self._obj_key is not None:
            init.add_attribute(self._obj_key, self)


class CompositeReaderBuilder(ReaderBuilder):
    """Makes composite readers from the readers of several builders.

    Raises:
        ContractError: the numbers of names and builders differ.
    """

    def __init__(self, names: Sequence[str], reader_builders: Sequence[ReaderBuilder]) -> None:
        if len(names) != len(reader_builders):
            raise ContractError(f"{len(names)} names for {len(reader_builders)} builders")
        self._names = list(names)
        self._builders = list(reader_builders)

    def schema(self) -> Field:
        """Schemas of the builders by name."""
        pairs = zip(self._names, self._builders, strict=True)
        return Struct(*((name, builder.schema()) for name, builder in pairs))

    def setup(self, **kwargs: Any) -> None:  # noqa: ANN401 - the builders'
        """Set up every builder; only the first gets a ``limiter``, which must count once."""
        for builder in self._builders:
            builder.setup(**kwargs)
            kwargs.pop("limiter", None)

    def new_reader(self, **kwargs: Any) -> CompositeReader:  # noqa: ANN401 - the builders'
        """Make a reader from one reader of every builder.

        Raises:
            ArgumentError: a builder returns neither a reader nor an object with one.
            ContractError: a reader's schema differs from that of its builder.
        """
        readers = [_reader_of(builder.new_reader(**kwargs)) for builder in self._builders]
        composite = CompositeReader(self._names, readers)
        if composite.schema() != self.schema():
            raise ContractError("the readers have other schemas than their builders")
        return composite


def _reader_of(built: object) -> Reader:
    if isinstance(built, Reader):
        return built
    reader = getattr(built, "reader", None)
    result = reader() if callable(reader) else None
    if not isinstance(result, Reader):
        raise ArgumentError("reader must be an instance of Reader or Pipe")
    return result
