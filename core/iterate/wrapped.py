"""Stages that are wrapped: put under the budget of whoever reads them, or timed.

A *wrapped* stage has another inside: it adds something to every call and changes nothing else.

Every stage of a pipeline is *metered*, so each call of one stage by another is a point where the
work is counted and may be stopped. While a stage works, it holds what the stages below it
returned and what it copied; when it returns, all of that is released, and the block it returned
is held by its caller. A stage is *timed* in the profile of a pipeline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import overload

from ..arrays import Indices
from ..budget import UNLIMITED, current
from .base import Block, Indexed, Sequential, Stage, State
from .columns import block_bytes, block_length
from .limits import Clock

Read = Callable[[], tuple[Block, State]]
Around = Callable[[int, Read], tuple[Block, State]]
"""What is added to each call of a stage: takes the number of items asked for at the most, and what
reads them; returns what that returns."""


class WrappedIndexed(Indexed):
    """An indexed stage that looks like the one it wraps.

    Args:
        inner: the stage.
        around: adds something to each call.

    Attributes:
        inner: the stage.
    """

    def __init__(self, inner: Indexed, around: Around) -> None:
        self.inner = inner
        self._around = around
        # Asked for in every call, and a chain of stages would pass it on from one to the next.
        self.schema = inner.schema
        self.length = inner.length

    def element_offsets(self, field: str) -> Indices | None:
        """Offsets of the elements of a ragged field, if the stage knows them."""
        known = getattr(self.inner, "element_offsets", None)
        offsets: Indices | None = None if known is None else known(field)
        return offsets

    def at(self, positions: Indices) -> Block:
        """Read items of the stage.

        Raises:
            CoreError: as the stage, or whatever is wrapped around it.
        """
        return self._around(len(positions), lambda: (self.inner.at(positions), ()))[0]


class WrappedSequential(Sequential):
    """The same for a sequential stage."""

    def __init__(self, inner: Sequential, around: Around) -> None:
        self.inner = inner
        self._around = around
        self.schema = inner.schema
        self.initial = inner.initial

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items of the stage."""
        return self._around(count, lambda: self.inner.take(state, count))


def _wrapped(stage: Stage, around: Around) -> Stage:
    if isinstance(stage, Indexed):
        return WrappedIndexed(stage, around)
    return WrappedSequential(stage, around)


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


@overload
def timed(stage: Indexed, profile: Profile, name: str) -> Indexed: ...
@overload
def timed(stage: Sequential, profile: Profile, name: str) -> Sequential: ...
def timed(stage: Stage, profile: Profile, name: str) -> Stage:
    """Wrap a stage so that its calls are timed under a name, and their items counted."""

    def around(_count: int, read: Read) -> tuple[Block, State]:
        recording = profile.current()
        if recording is None:
            return read()
        begun, block = recording.begin(), None
        try:
            block, after = read()
        finally:
            recording.end(name, begun, block)
        return block, after

    return _wrapped(stage, around)


_INDEX_BYTES = 8
_INDICES = 3
"""Arrays of positions of an indexed stage while it reads: those asked for, and two made of them."""


@overload
def metered(stage: Indexed, name: str) -> Indexed: ...
@overload
def metered(stage: Sequential, name: str) -> Sequential: ...
def metered(stage: Stage, name: str) -> Stage:
    """Put a stage under the budget of whoever reads it.

    Its calls raise ``WorkStoppedError`` where that is exceeded, or the work was cancelled.

    Args:
        stage: indexed or sequential.
        name: of the stage, for messages.
    """
    indexed = isinstance(stage, Indexed)
    # Without the elements of ragged fields.
    item_bytes = sum(field.nbytes or _INDEX_BYTES for field in stage.schema)

    def around(count: int, read: Read) -> tuple[Block, State]:
        budget = current()
        if budget is UNLIMITED:
            return read()
        before = budget.held
        budget.spend(name, count)
        # How many items a sequential stage has left is unknown.
        if indexed:
            # The items must fit, but only what comes is held.
            budget.hold(name, count * (_INDICES * _INDEX_BYTES + item_bytes))
            budget.release(count * item_bytes)
        try:
            block, after = read()
        finally:
            budget.release(budget.held - before)
        budget.hold(name, block_bytes(block))
        return block, after

    return _wrapped(stage, around)
