"""Profile a pipeline: time, items and bytes of each stage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import overload

from ..arrays import Indices
from .base import Block, Indexed, Schema, Sequential, Stage, State
from .columns import block_bytes, block_length
from .limits import Clock


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

    @contextmanager
    def measure(self, name: str) -> Iterator[list[Block]]:
        """Time a ``with`` block, and count the blocks appended to the list as its output."""
        blocks: list[Block] = []
        outer: float = getattr(self._inner, "seconds", 0.0)
        self._inner.seconds = 0.0
        start = self._clock()
        try:
            yield blocks
        finally:
            seconds = self._clock() - start
            own_seconds = seconds - self._inner.seconds
            self._inner.seconds = outer + seconds
            self._add(name, seconds, own_seconds, blocks)

    def _add(self, name: str, seconds: float, own_seconds: float, blocks: list[Block]) -> None:
        with self._lock:
            times = self._times.setdefault(name, StageTimes())
            times.calls += 1
            times.seconds += seconds
            times.own_seconds += own_seconds
            times.items += sum(block_length(block) for block in blocks)
            times.bytes += sum(block_bytes(block) for block in blocks)

    def report(self) -> dict[str, dict[str, float]]:
        """Totals by name of the stage, as JSON values."""
        with self._lock:
            return {name: asdict(times) for name, times in self._times.items()}


class TimedIndexed(Indexed):
    """An indexed stage whose calls are timed."""

    def __init__(self, inner: Indexed, profile: Profile, name: str) -> None:
        self.inner = inner
        self._profile = profile
        self._name = name

    @property
    def schema(self) -> Schema:
        """Fields of the stage."""
        return self.inner.schema

    @property
    def length(self) -> int | None:
        """Length of the stage."""
        return self.inner.length

    def element_offsets(self, field: str) -> Indices | None:
        """Offsets of the elements of a ragged field, if the stage knows them."""
        known = getattr(self.inner, "element_offsets", None)
        offsets: Indices | None = None if known is None else known(field)
        return offsets

    def at(self, positions: Indices) -> Block:
        """Read items, and count their time and volume."""
        with self._profile.measure(self._name) as blocks:
            block = self.inner.at(positions)
            blocks.append(block)
        return block


class TimedSequential(Sequential):
    """A sequential stage whose calls are timed."""

    def __init__(self, inner: Sequential, profile: Profile, name: str) -> None:
        self.inner = inner
        self._profile = profile
        self._name = name

    @property
    def schema(self) -> Schema:
        """Fields of the stage."""
        return self.inner.schema

    @property
    def initial(self) -> State:
        """Initial state of the stage."""
        return self.inner.initial

    def take(self, state: State, count: int) -> tuple[Block, State]:
        """Read items, and count their time and volume."""
        with self._profile.measure(self._name) as blocks:
            block, after = self.inner.take(state, count)
            blocks.append(block)
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
