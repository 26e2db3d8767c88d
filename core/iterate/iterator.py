"""Iterators over what is stepped by states: item by item, or block by block.

An iterator holds a state, gives it out as JSON values and takes it back. It knows the
pipeline and data the state is of, so that no other state is taken for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

from ..arrays import Array
from ..errors import OptionError, StateError
from .base import Block, Ragged, Schema, Sequential, Stage, State
from .columns import block_length
from .inorder import check_state, in_order
from .sources import fingerprint_of

VERSION = 1
"""Of the states given out."""
ORDER = 1
"""Version of the order of items that they count in."""
MAX_READ = 1 << 20
"""Items an iterator over items reads at a time."""

Item = Mapping[str, Array]
"""The values of one item by field."""
T = TypeVar("T")


class Stepped(Protocol):
    """One batch and the state after it, such as a step of a pipeline."""

    @property
    def block(self) -> Block:
        """Its rows."""

    @property
    def state(self) -> State:
        """After it."""


S_co = TypeVar("S_co", bound=Stepped, covariant=True)
S = TypeVar("S", bound=Stepped)


class Stepping(Protocol[S_co]):
    """What gives batches by state, such as a pipeline."""

    @property
    def initial(self) -> State:
        """The state before the first batch."""

    def check(self, state: State) -> None:
        """Refuse what cannot be a state."""

    def step(self, state: State, rank: int = 0, world: int = 1) -> S_co | None:
        """The batch after a state; None at the end."""


class Checkpointed(ABC, Iterator[T], Generic[T]):
    """An iterator whose state can be taken, checked and restored at every item.

    Args:
        identity: of the pipeline and the data, such as digests; states of others are
            refused. None stands for what the pipeline or its sources know of themselves,
            which may read all of the data when the first state is taken or set.
        inner: what :meth:`close` closes as well, if it can be.
    """

    def __init__(self, identity: bytes | None, inner: object) -> None:
        self._given_identity = identity
        self._inner = inner
        self._closed = False

    @cached_property
    def _identity(self) -> str:
        if self._given_identity is not None:
            return self._given_identity.hex()
        known = getattr(self._inner, "identity", None)
        return known.hex() if isinstance(known, bytes) else fingerprint_of(self._inner).hex()

    @property
    @abstractmethod
    def _initial(self) -> State:
        """The state before the first item."""

    @property
    @abstractmethod
    def _state(self) -> State:
        """The state after the last item that was given."""

    @abstractmethod
    def _go(self, state: State) -> None:
        """Go on from a state, which has been checked in itself."""

    def getstate(self) -> dict[str, Any]:
        """Where it is, as JSON values; it can be asked at any time, also past the end."""
        return {
            "version": VERSION,
            "order": ORDER,
            "identity": self._identity,
            "state": list(self._state),
        }

    def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state that was taken, None for the beginning.

        Raises:
            StateError: it is malformed, of a later version, or of other data or another
                pipeline. The iterator stays where it was.
        """
        self._open()
        self._go(self._initial if state is None else self._parsed(state))

    def _parsed(self, state: object) -> State:
        if not isinstance(state, Mapping) or set(state) != {
            "version", "order", "identity", "state",
        }:  # fmt: skip
            raise StateError("a state has the members version, order, identity and state")
        for name, known in (("version", VERSION), ("order", ORDER)):
            value = state[name]
            if type(value) is not int or value < 1:
                raise StateError(f"the {name} of a state is {value!r}")
            if value > known:
                raise StateError(
                    f"a state of {name} {value}, and {known} is the latest known here",
                    hint="It was taken by a later release: use that.",
                )
        if state["identity"] != self._identity:
            raise StateError(
                "a state of another pipeline or of other data",
                hint="States go with the pipeline and the data they were taken of.",
            )
        values = state["state"]
        if not isinstance(values, list | tuple):
            raise StateError("the state of a state is no list of integers")
        parsed = tuple(values)
        check_state(parsed, self._initial)
        return parsed

    def close(self) -> None:
        """Give nothing more, and close what it is made of."""
        self._closed = True
        _close(self._inner)

    def _open(self) -> None:
        if self._closed:
            raise OptionError("the iterator was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(inner: object) -> None:
    """Close a stage and those it takes items from."""
    close = getattr(inner, "close", None)
    if callable(close):
        close()
        return
    further = getattr(inner, "inner", None)
    if further is not None:
        _close(further)


class StepIterator(Checkpointed[S]):
    """The batches of a pipeline, or one rank's rows of them.

    Args:
        stepping: what gives them.
        identity: of the pipeline and the data; None is the pipeline's own, which tells
            batch sizes apart.
        rank: which rows of each batch.
        world: number of ranks.
    """

    def __init__(
        self, stepping: Stepping[S], *, identity: bytes | None = None, rank: int = 0, world: int = 1
    ) -> None:
        super().__init__(identity, stepping)
        self._stepping = stepping
        self._rank, self._world = rank, world
        self._at = stepping.initial

    @property
    def _initial(self) -> State:
        return self._stepping.initial

    @property
    def _state(self) -> State:
        return self._at

    def _go(self, state: State) -> None:
        self._stepping.check(state)
        self._at = state

    def __next__(self) -> S:
        self._open()
        step = self._stepping.step(self._at, self._rank, self._world)
        if step is None:
            raise StopIteration
        self._at = step.state
        return step


class BlockIterator(Checkpointed[Block]):
    """The items of a stage in blocks.

    Args:
        stage: indexed or sequential.
        size: items of a block; the last may have fewer.
        identity: of the stage and its data; None is the fingerprint of the data.

    Raises:
        OptionError: a size below 1.
    """

    def __init__(self, stage: Stage, *, size: int, identity: bytes | None = None) -> None:
        super().__init__(identity, stage)
        if size < 1:
            raise OptionError(f"blocks of {size} items")
        self._stage: Sequential = in_order(stage)
        self._size = size
        self._at = self._stage.initial

    @property
    def schema(self) -> Schema:
        """Fields of the items."""
        return self._stage.schema

    @property
    def _initial(self) -> State:
        return self._stage.initial

    @property
    def _state(self) -> State:
        return self._at

    def _go(self, state: State) -> None:
        self._stage.take(state, 1)  # refuses what its shape does not tell
        self._at = state

    def __next__(self) -> Block:
        self._open()
        block, after = self._stage.take(self._at, self._size)
        if not block_length(block):
            raise StopIteration
        self._at = after
        return block


class ItemIterator(Checkpointed[Item]):
    """The items of a stage one by one, read in blocks.

    A state is that of the stage before the block at hand, and how many of its items were
    given; a restored one reads that block again.

    Args:
        stage: indexed or sequential.
        read: items read at a time.
        identity: of the stage and its data; None is the fingerprint of the data.

    Raises:
        OptionError: fewer than 1 are to be read, or more than MAX_READ.
    """

    def __init__(self, stage: Stage, *, read: int = 256, identity: bytes | None = None) -> None:
        super().__init__(identity, stage)
        if not 1 <= read <= MAX_READ:
            raise OptionError(f"reading {read} items at a time", hint=f"From 1 to {MAX_READ}.")
        self._stage: Sequential = in_order(stage)
        self._read = read
        self._go(self._initial)

    @property
    def _initial(self) -> State:
        return (0, *self._stage.initial)

    @property
    def _state(self) -> State:
        if self._served == self._held and self._held:
            return (0, *self._after)
        return (self._served, *self._before)

    def _go(self, state: State) -> None:
        served, before = state[0], state[1:]
        if served > MAX_READ:
            raise StateError(f"{served} items given of one block")
        block: Block = {}
        after, held = before, 0
        if served:
            block, after = self._stage.take(before, max(served, self._read))
            held = block_length(block)
            if held < served:
                raise StateError(f"{served} items given of {held}")
        elif before != self._stage.initial:
            self._stage.take(before, 1)  # refuses what its shape does not tell
        self._before, self._after = before, after
        self._block, self._served, self._held = block, served, held

    def __next__(self) -> Item:
        self._open()
        if self._served == self._held:
            block, after = self._stage.take(self._after, self._read)
            held = block_length(block)
            if not held:
                raise StopIteration
            self._before, self._after = self._after, after
            self._block, self._served, self._held = block, 0, held
        item = {name: _value(column, self._served) for name, column in self._block.items()}
        self._served += 1
        return item


def _value(column: Array | Ragged, index: int) -> Array:
    value: Array = column[index]
    return value
