"""Stages that are wrapped: put under the budget of whoever reads them, or timed.

A *wrapped* stage has another inside: it adds something to every call and changes nothing else.

Every stage of a pipeline is *metered*, so each call of one stage by another is a point where the
work is counted and may be stopped. While a stage works, it holds what the stages below it
returned and what it copied; when it returns, all of that is released, and the block it returned
is held by its caller. A stage is *timed* in the profile of a pipeline.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import overload

from ..arrays import Indices
from ..budget import UNLIMITED, current
from .base import Block, Indexed, Schema, Sequential, Stage, State
from .columns import block_bytes, block_length
from .limits import Clock


class WrappedIndexed(Indexed):
    """An indexed stage that looks like the one it wraps; subclasses read its items.

    Args:
        inner: the stage.

    Attributes:
        inner: the stage.
    """

    def __init__(self, inner: Indexed) -> None:
        self.inner = inner
        # Asked for in every call, and a chain of stages would pass it on from one to the next.
        self.schema = inner.schema
        self.length = inner.length

    def element_offsets(self, field: str) -> Indices | None:
        """Offsets of the elements of a ragged field, if the stage knows them."""
        known = getattr(self.inner, "element_offsets", None)
        offsets: Indices | None = None if known is None else known(field)
        return offsets


class WrappedSequential(Sequential):
    """The same for a sequential stage."""

    def __init__(self, inner: Sequential) -> None:
        self.inner = inner
        self.schema = inner.schema
        self.initial = inner.initial


@dataclass(slots=True)
class StageTimes:
    """Totals of one stage."""

    calls: int = 0
    seconds: float = 0.0
    """Seconds of this stage, including the stages below."""
    own_seconds: float = 0.0
    """Seconds of this stage alone, without the profiled stages below."""
    items: int = 0
    bytes: int = 0


class Profile:
    """Totals of stages by name; threads may share a profile.

    Args:
        clock: measures time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, StageTimes] = {}
        self._lock = threading.Lock()
        self._inner = threading.local()

    def current(self) -> Profile | None:
        """Return the profile that this thread records in; None for none."""
        return self

    def begin(self) -> tuple[float, float]:
        """Start to time a call; the result is for ``end``."""
        outer: float = getattr(self._inner, "seconds", 0.0)
        self._inner.seconds = 0.0
        return outer, self._clock()

    def end(self, name: str, begun: tuple[float, float], block: Block | None) -> None:
        """Add a call under a name, and count the block it returned, if it did."""
        seconds = self._clock() - begun[1]
        own_seconds = seconds - self._inner.seconds
        self._inner.seconds = begun[0] + seconds
        self._add(name, seconds, own_seconds, block)

    def _add(self, name: str, seconds: float, own_seconds: float, block: Block | None) -> None:
        with self._lock:
            times = self._times.setdefault(name, StageTimes())
            times.calls += 1
            times.seconds += seconds
            times.own_seconds += own_seconds
            if block is not None:
                times.items += block_length(block)
                times.bytes += block_bytes(block)

    def report(self) -> dict[str, dict[str, float]]:
        """Totals by name of the stage, as JSON values."""
        with self._lock:
            return {name: asdict(times) for name, times in self._times.items()}


class TimedIndexed(WrappedIndexed):
    """An indexed stage whose calls are timed."""

    def __init__(self, inner: Indexed, profile: Profile, name: str) -> None:
        super().__init__(inner)
        self._profile = profile
        self._name = name

    def at(self, positions: Indices) -> Block:
        """Read items, and count their time and volume."""
        profile = self._profile.current()
        if profile is None:
            return self.inner.at(positions)
        begun, block = profile.begin(), None
        try:
            block = self.inner.at(positions)
        finally:
            profile.end(self._name, begun, block)
        return block


class TimedSequential(WrappedSequential):
    """A sequential stage whose calls are timed."""

    def __init__(self, inner: Sequential, profile: Profile, name: str) -> None:
        super().__init__(inner)
        self._profile = profile
        self._name = name

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items, and count their time and volume."""
        profile = self._profile.current()
        if profile is None:
            return self.inner.take(state, count)
        begun, block = profile.begin(), None
        try:
            block, after = self.inner.take(state, count)
        finally:
            profile.end(self._name, begun, block)
        return block, after


@overload
def timed(stage: Indexed, profile: Profile, name: str) -> Indexed: ...
@overload
def timed(stage: Sequential, profile: Profile, name: str) -> Sequential: ...
def timed(stage: Stage, profile: Profile, name: str) -> Stage:
    """Wrap a stage so that its calls are timed under a name."""
    if isinstance(stage, Indexed):
        return TimedIndexed(stage, profile, name)
    return TimedSequential(stage, profile, name)


_INDEX_BYTES = 8
_INDICES = 3
"""Arrays of positions of an indexed stage while it reads: those asked for, and two made of them."""


def _fixed_bytes(schema: Schema) -> int:
    """Bytes of one item without the elements of ragged fields."""
    return sum(field.nbytes or _INDEX_BYTES for field in schema)


class MeteredIndexed(WrappedIndexed):
    """An indexed stage under the current budget.

    Args:
        inner: the stage.
        name: of the stage, for messages.
    """

    def __init__(self, inner: Indexed, name: str) -> None:
        super().__init__(inner)
        self._name = name
        self._item_bytes = _fixed_bytes(inner.schema)

    def at(self, positions: Indices) -> Block:
        """Read items under the budget.

        Raises:
            WorkStoppedError: the budget is exceeded, or the work was cancelled.
        """
        budget = current()
        if budget is UNLIMITED:
            return self.inner.at(positions)
        before, count = budget.held, len(positions)
        budget.spend(self._name, count)
        # The items must fit, but only what comes is held.
        indices = count * _INDICES * _INDEX_BYTES
        budget.hold(self._name, indices + count * self._item_bytes)
        budget.release(count * self._item_bytes)
        try:
            block = self.inner.at(positions)
        finally:
            budget.release(budget.held - before)
        budget.hold(self._name, block_bytes(block))
        return block


class MeteredSequential(WrappedSequential):
    """A sequential stage under the current budget.

    Args:
        inner: the stage.
        name: of the stage, for messages.
    """

    def __init__(self, inner: Sequential, name: str) -> None:
        super().__init__(inner)
        self._name = name

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items under the budget.

        Raises:
            WorkStoppedError: the budget is exceeded, or the work was cancelled.
        """
        budget = current()
        if budget is UNLIMITED:
            return self.inner.take(state, count)
        # How many items are left is unknown: only what comes is held.
        before = budget.held
        budget.spend(self._name, count)
        try:
            block, after = self.inner.take(state, count)
        finally:
            budget.release(budget.held - before)
        budget.hold(self._name, block_bytes(block))
        return block, after


@overload
def metered(stage: Indexed, name: str) -> Indexed: ...
@overload
def metered(stage: Sequential, name: str) -> Sequential: ...
def metered(stage: Stage, name: str) -> Stage:
    """Put a stage under the budget of whoever reads it."""
    if isinstance(stage, Indexed):
        return MeteredIndexed(stage, name)
    return MeteredSequential(stage, name)
