"""Profile a pipeline: time, items and bytes of each stage."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import overload

from ..arrays import Indices
from .base import Block, Indexed, Sequential, Stage, State, WrappedIndexed, WrappedSequential
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
