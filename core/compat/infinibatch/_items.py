"""Iterators that map, flatten, combine and group items."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

from ...errors import LimitError
from ..checkpoints import BEGINNING, Saved
from ..errors import CheckpointError, DataChangedError, SourceEndedError
from ._base import (
    Again,
    CheckpointableIterator,
    OneSource,
    Stage,
    checkpointable,
    iterate_from,
    positive,
)

_MAX_RECURRENT = 65_536


class MapIterator(OneSource):
    """``transform(item)`` for every item; its checkpoint is that of its source.

    An exception of the transform goes to the caller; the next call returns the next item.
    """

    def __init__(
        self, source_iterator: CheckpointableIterator, transform: Callable[[Any], Any]
    ) -> None:
        super().__init__(source_iterator)
        self._transform = transform

    def getstate(self) -> Any:  # noqa: ANN401 - the source's
        """A checkpoint of the chain."""
        return self._source.getstate()

    def setstate(self, checkpoint: Any) -> None:  # noqa: ANN401 - the source's
        """Go to a checkpoint, or with None to the beginning."""
        self._source.setstate(checkpoint)

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        return self._transform(next(self._source))


class _ManySources(Stage):
    """Base of the iterators over several others; the last of ``_fields`` has their states."""

    def __init__(self, source_iterators: Sequence[CheckpointableIterator]) -> None:
        self._sources = [
            checkpointable(source, "each of source_iterators") for source in source_iterators
        ]

    def _save(self) -> dict[str, Any]:
        return {self._fields[-1]: [source.getstate() for source in self._sources]}

    def _load(self, saved: Saved) -> None:
        states = saved.states(self._fields[-1], len(self._sources))
        for source, state in zip(self._sources, states, strict=True):
            source.setstate(state)

    def close(self) -> None:
        """End the processes and threads of the chain."""
        for source in self._sources:
            source.close()


class MultiplexIterator(_ManySources):
    """The next item of the source whose index the control iterator returns.

    Raises:
        SourceEndedError: (while iterating) the source has ended, or there is no source of
            that index.
    """

    _fields: ClassVar[tuple[str, ...]] = ("control", "sources")

    def __init__(
        self,
        control_iterator: CheckpointableIterator,
        source_iterators: Sequence[CheckpointableIterator],
    ) -> None:
        self._control = checkpointable(control_iterator, "control_iterator")
        super().__init__(source_iterators)
        self.setstate(None)

    def _save(self) -> dict[str, Any]:
        return {"control": self._control.getstate(), **super()._save()}

    def _load(self, saved: Saved) -> None:
        self._control.setstate(saved["control"])
        super()._load(saved)

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        index = next(self._control)
        if not 0 <= index < len(self._sources):
            raise SourceEndedError(
                f"the control iterator asks for source {index} of {len(self._sources)}"
            )
        try:
            return next(self._sources[index])
        except StopIteration:
            raise SourceEndedError(
                f"source {index} has no more items, but the control iterator asks for one",
                hint="Let the control iterator end first, or use an endless source.",
            ) from None

    def close(self) -> None:
        """End the processes and threads of the chain."""
        self._control.close()
        super().close()


class SelectManyIterator(Again):
    """The items of the collections that a source's items stand for, one by one.

    A checkpoint holds the source's state before the current collection, and the place in
    it. Going there opens that collection again and, unless it is a sequence, reads it up to
    the place.

    Args:
        source_iterator: an item for every collection.
        collection_selector: returns the collection for an item; None if items are
            collections themselves.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "flattened_items_yielded")

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        collection_selector: Callable[[Any], Iterable[Any]] | None = None,
    ) -> None:
        super().__init__(source_iterator)
        self._selector = collection_selector
        self.setstate(None)

    def _load(self, saved: Saved) -> None:
        super()._load(saved)
        self._current: Iterator[Any] = iter(())

    def _open(self) -> None:
        """Open the next collection, after the items to skip."""
        before = self._source.getstate()
        try:
            item = next(self._source)
        except StopIteration:
            if self._skip:
                raise DataChangedError(
                    "a checkpoint lies inside a collection that does not exist"
                ) from None
            self._before, self._served = before, 0
            raise
        collection = item if self._selector is None else self._selector(item)
        self._current = iterate_from(collection, self._skip)
        self._before, self._served, self._skip = before, self._skip, 0

    def __next__(self) -> Any:  # noqa: ANN401 - items are anything
        while True:
            for item in self._current:
                self._served += 1
                return item
            self._open()


class ZipIterator(_ManySources):
    """Tuples of one item of every source, until the first source ends."""

    _fields: ClassVar[tuple[str, ...]] = ("inputs",)

    def __init__(self, *source_iterators: CheckpointableIterator) -> None:
        super().__init__(source_iterators)

    def __next__(self) -> tuple[Any, ...]:
        if not self._sources:
            raise StopIteration
        # A loop: in a generator the end of a source would be an error.
        items = []
        for source in self._sources:
            items.append(next(source))  # noqa: PERF401 - see above
        return tuple(items)


class WindowedIterator(OneSource):
    """Tuples of ``width`` consecutive items, one item apart; none for a shorter source.

    A checkpoint holds the source's state at most ``width - 1`` items before the window.
    Going there reads those items and the window again.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "item_index")

    def __init__(self, source_iterator: CheckpointableIterator, width: int) -> None:
        super().__init__(source_iterator)
        self._width = positive(width, "width")
        self.setstate(None)

    def _arguments_saved(self) -> dict[str, Any]:
        return {"width": self._width}

    def _save(self) -> dict[str, Any]:
        first, state = self._anchors[0]
        return {"source": state, "item_index": self._first - first}

    def _load(self, saved: Saved) -> None:
        index = saved.count("item_index", self._width - 1)
        super()._load(saved)
        self._anchors: deque[tuple[int, Any]] = deque([(0, self._source.getstate())])
        self._window: deque[Any] = deque(maxlen=self._width)
        self._first = index
        self._read = 0

    def __next__(self) -> tuple[Any, ...]:
        while self._read < self._first + self._width:
            self._window.append(next(self._source))
            self._read += 1
            # A state before every width-th item, so that a checkpoint is never far away.
            if self._read % self._width == 0:
                self._anchors.append((self._read, self._source.getstate()))
        self._first += 1
        while len(self._anchors) > 1 and self._anchors[1][0] <= self._first:
            self._anchors.popleft()
        return tuple(self._window)


class FixedBatchIterator(OneSource):
    """Lists of ``batch_size`` consecutive items; the last may be shorter.

    Args:
        source_iterator: the items.
        batch_size: from 1.
        drop_last: omit a shorter last list.
    """

    def __init__(
        self, source_iterator: CheckpointableIterator, batch_size: int, drop_last: bool = False
    ) -> None:
        super().__init__(source_iterator)
        self._size = positive(batch_size, "batch_size")
        self._drop_last = bool(drop_last)
        self.setstate(None)

    def _arguments_saved(self) -> dict[str, Any]:
        return {"batch_size": self._size, "drop_last": self._drop_last}

    def __next__(self) -> list[Any]:
        batch = list(islice(self._source, self._size))
        if not batch or (self._drop_last and len(batch) < self._size):
            raise StopIteration
        return batch


class RecurrentIterator(OneSource):
    """The outputs of ``(state, output) = step_function(state, item)``.

    The checkpoint holds the state. So a state consists of None, numbers, strings, lists,
    tuples and dicts with string keys, unless ``encode`` and ``decode`` convert it, and is
    not larger than ``max_state_bytes``. A step may change its state in place.

    Args:
        source_iterator: the items.
        step_function: see above.
        initial_state: state before the first item.
        encode: converts a state to JSON values.
        decode: converts JSON values to a state.
        max_state_bytes: largest JSON text of a state.
    """

    _fields: ClassVar[tuple[str, ...]] = ("source", "recurrent_state")

    def __init__(  # noqa: PLR0913 - the peer's arguments and ours
        self,
        source_iterator: CheckpointableIterator,
        step_function: Callable[[Any, Any], tuple[Any, Any]],
        initial_state: Any = None,  # noqa: ANN401 - the caller's
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
        max_state_bytes: int = _MAX_RECURRENT,
    ) -> None:
        super().__init__(source_iterator)
        self._step = step_function
        self._initial = copy.deepcopy(initial_state)
        self._encode = _tagged if encode is None else encode
        self._decode = _untagged if decode is None else decode
        self._max_bytes = positive(max_state_bytes, "max_state_bytes")
        self.setstate(None)

    def _save(self) -> dict[str, Any]:
        text = json.dumps(self._encode(self._state))
        if len(text) > self._max_bytes:
            raise LimitError(
                f"the recurrent state has {len(text)} bytes, over {self._max_bytes}",
                limit="max_state_bytes",
                allowed=self._max_bytes,
                hint="Keep a smaller state, or raise max_state_bytes.",
            )
        return {**super()._save(), "recurrent_state": json.loads(text)}

    def _load(self, saved: Saved) -> None:
        super()._load(saved)
        if saved is BEGINNING:
            self._state = copy.deepcopy(self._initial)
        else:
            # Through text, so that no step can change the checkpoint.
            self._state = self._decode(json.loads(json.dumps(saved["recurrent_state"])))

    def __next__(self) -> Any:  # noqa: ANN401 - outputs are anything
        self._state, output = self._step(self._state, next(self._source))
        return output


_TUPLE = "__tuple__"


def _tagged(value: object) -> Any:  # noqa: ANN401 - JSON
    """A state as JSON values, with tuples marked as such."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {_TUPLE: [_tagged(part) for part in value]}
    if isinstance(value, list):
        return [_tagged(part) for part in value]
    plain = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if isinstance(value, dict) and plain and _TUPLE not in value:
        return {key: _tagged(part) for key, part in value.items()}
    raise CheckpointError(
        f"a recurrent state holds {type(value).__name__}, which a checkpoint cannot carry",
        hint="Pass encode and decode, which convert a state to JSON values and back.",
    )


def _untagged(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_untagged(part) for part in value]
    if isinstance(value, dict):
        if set(value) == {_TUPLE} and isinstance(value[_TUPLE], list):
            return tuple(_untagged(part) for part in value[_TUPLE])
        return {key: _untagged(part) for key, part in value.items()}
    return value
