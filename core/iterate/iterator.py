"""Checkpointed iteration: Python iterators over pipelines and stages.

Stages and pipelines are stateless: the caller holds the state. An iterator is such a
caller. ``getstate`` returns its state as JSON values at any time, and ``setstate`` resumes
from one, in this process or another, at the exact item. A state carries the identity of the
pipeline and the data, so that an iterator refuses the states of others::

    iterator = StepIterator(pipeline)
    for step in iterator:
        train(step.block)
        save(iterator.getstate())  # {"version": 1, "order": 1, "identity": ..., "state": [17]}
"""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

from ..arrays import Array
from ..errors import OptionError, StateError
from .base import Block, Schema, Sequential, Stage, State, check_state, in_order
from .columns import block_length
from .limits import Clock
from .sources import chain_of, fingerprint_of

VERSION = 1
"""Version of the format of states."""
ORDER = 1
"""Version of the order of items, without which a count of items means nothing."""
MAX_READ = 1 << 20
"""Most items that an iterator over items reads at a time."""

Item = Mapping[str, Array]
"""The values of one item by field."""
T = TypeVar("T")


class Stepped(Protocol):
    """A batch and the state after it, such as a step of a pipeline."""

    @property
    def block(self) -> Block:
        """Rows of the batch."""

    @property
    def state(self) -> State:
        """State after the batch."""


S_co = TypeVar("S_co", bound=Stepped, covariant=True)
S = TypeVar("S", bound=Stepped)


class Reader(Protocol[S_co]):
    """Returns batches that follow each other."""

    def step(self, state: State) -> S_co | None:
        """The batch after a state; None at the end."""


class Stepping(Protocol[S_co]):
    """Returns batches by state, as a pipeline does."""

    @property
    def initial(self) -> State:
        """The state before the first batch."""

    def check(self, state: State) -> None:
        """Check a state.

        Raises:
            StateError: it cannot be a state of this pipeline.
        """

    def reader(self, rank: int = 0, world: int = 1, clock: Clock | None = None) -> Reader[S_co]:
        """What reads the batches of a rank that follow each other."""

    def emptiness(self) -> str:
        """Why there is no batch, where there is none."""


class Checkpointed(ABC, Iterator[T], Generic[T]):
    """An iterator whose state can be saved and restored at every item.

    Args:
        identity: a digest of the pipeline and the data; states of another identity are
            refused. None uses the identity of the pipeline; or the fingerprints of those
            sources that have one, with the names and options of the stages, but not what
            their functions do. A source in memory then reads all of its data when the
            first state is saved or restored.
        inner: stage or pipeline, which :meth:`close` closes if it has a ``close``.
        initial: the state before the first item.
    """

    def __init__(self, identity: bytes | None, inner: object, initial: State) -> None:
        self._given_identity = identity
        self._inner = inner
        self._initial = initial
        self._at = initial
        self._closed = False

    @cached_property
    def _identity(self) -> str:
        if self._given_identity is not None:
            return self._given_identity.hex()
        known = getattr(self._inner, "identity", None)
        if isinstance(known, bytes):
            return known.hex()
        data, chain = fingerprint_of(self._inner).hex(), chain_of(self._inner)
        return f"{data}.{hashlib.blake2b(repr(chain).encode(), digest_size=8).hexdigest()}"

    @property
    def _state(self) -> State:
        """The state after the last item."""
        return self._at

    @abstractmethod
    def _go(self, state: State) -> None:
        """Continue from a state of the right form."""

    def getstate(self) -> dict[str, Any]:
        """The current state as JSON values, also at the end."""
        return {
            "version": VERSION,
            "order": ORDER,
            "identity": self._identity,
            "state": list(self._state),
        }

    def setstate(self, state: Mapping[str, Any] | None) -> None:
        """Continue from a saved state; None is the beginning.

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
            raise StateError("a state has exactly the members version, order, identity and state")
        for name, known in (("version", VERSION), ("order", ORDER)):
            value = state[name]
            if type(value) is not int or value < 1:
                raise StateError(f"the {name} of a state is {value!r}")
            if value > known:
                raise StateError(
                    f"a state of {name} {value}, but this release knows {known} at most",
                    hint="It was saved by a later release. Use that one.",
                )
        # States once had the data alone.
        if state["identity"] not in (self._identity, self._identity.partition(".")[0]):
            raise StateError(
                "a state of another pipeline or of other data",
                hint="Use a state with the pipeline and the data that it was saved with.",
            )
        values = state["state"]
        if not isinstance(values, list | tuple):
            raise StateError("the member state is not a list of integers")
        parsed = tuple(values)
        check_state(parsed, self._initial)
        return parsed

    def close(self) -> None:
        """End the iteration, and close the pipeline or stages."""
        self._closed = True
        _close(self._inner)

    def _open(self) -> None:
        if self._closed:
            raise OptionError("the iterator is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(inner: object) -> None:
    """Call ``close`` on a stage, or on the first stage below that has one."""
    close = getattr(inner, "close", None)
    if callable(close):
        close()
        return
    further = getattr(inner, "inner", None)
    if further is not None:
        _close(further)


class StepIterator(Checkpointed[S]):
    """The batches of a pipeline, or one rank's rows of them; a warning says why there is none.

    Args:
        stepping: the pipeline.
        identity: of the pipeline and the data; None for the pipeline's own, which differs
            for another batch size.
        rank: of this process, which gets its share of the rows of every batch.
        world: number of ranks.
        clock: has small batches that take little time read several at once, such as
            ``time.perf_counter``; None to read each alone.

    Raises:
        TypeError: it is not a pipeline.
    """

    def __init__(
        self,
        stepping: Stepping[S],
        *,
        identity: bytes | None = None,
        rank: int = 0,
        world: int = 1,
        clock: Clock | None = None,
    ) -> None:
        if not hasattr(stepping, "reader"):
            found = type(stepping).__name__
            raise TypeError(
                f"a StepIterator takes a pipeline, such as build_pipeline returns, not a {found}:"
                " ItemIterator and BlockIterator take stages of items"
            )
        super().__init__(identity, stepping, stepping.initial)
        self._stepping = stepping
        self._reader = stepping.reader(rank, world, clock)

    def _go(self, state: State) -> None:
        self._stepping.check(state)
        self._at = state

    def __next__(self) -> S:
        self._open()
        step = self._reader.step(self._at)
        if step is None:
            if self._at == self._initial:
                why = self._stepping.emptiness()
                warnings.warn(f"there is no batch: {why}", UserWarning, stacklevel=2)
            raise StopIteration
        self._at = step.state
        return step


class BlockIterator(Checkpointed[Block]):
    """The items of a stage in blocks.

    States are those of the stage, so blocks may have another size after a restart.

    Args:
        stage: indexed or sequential.
        size: items of a block; the last may have fewer.
        identity: of the stage and its data; None as in :class:`Checkpointed`.

    Raises:
        OptionError: the size is not a whole number of at least 1.
        TypeError: it is no stage of items.
    """

    def __init__(self, stage: Stage, *, size: int, identity: bytes | None = None) -> None:
        if size < 1 or size % 1:
            raise OptionError(
                f"size is {size}", hint="Blocks have a whole number of items, 1 or more."
            )
        self._stage: Sequential = in_order(stage)
        self._size = size
        super().__init__(identity, stage, self._stage.initial)

    @property
    def schema(self) -> Schema:
        """Fields of the items."""
        return self._stage.schema

    def _go(self, state: State) -> None:
        self._stage.take(state, 1)  # checks more than the form
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

    A state is the number of items served from the current block, and the state of the stage
    before that block. Restoring it reads the block again.

    Args:
        stage: indexed or sequential.
        read: items read at a time.
        identity: of the stage and its data; None as in :class:`Checkpointed`.

    Raises:
        OptionError: ``read`` is not from 1 to MAX_READ.
        TypeError: it is no stage of items.
    """

    def __init__(self, stage: Stage, *, read: int = 256, identity: bytes | None = None) -> None:
        if not 1 <= read <= MAX_READ:
            raise OptionError(f"read is {read}", hint=f"From 1 to {MAX_READ}.")
        self._stage: Sequential = in_order(stage)
        self._read = read
        super().__init__(identity, stage, (0, *self._stage.initial))
        self._go(self._initial)

    @property
    def _state(self) -> State:
        if self._served == self._held and self._held:
            return (0, *self._after)
        return (self._served, *self._before)

    def _go(self, state: State) -> None:
        served, before = state[0], state[1:]
        if served > MAX_READ:
            raise StateError(f"{served} items served of one block")
        block: Block = {}
        after, held = before, 0
        if served:
            block, after = self._stage.take(before, max(served, self._read))
            held = block_length(block)
            if held < served:
                raise StateError(f"{served} items served of a block of {held}")
        elif before != self._stage.initial:
            self._stage.take(before, 1)  # checks more than the form
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
        item = {name: column[self._served] for name, column in self._block.items()}
        self._served += 1
        return item
