"""Reading ahead: order, exceptions, the position of the consumer, and an end in time."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from core.errors import OptionError, StateError, TransformError
from core.iterate.iterator import ItemIterator, StepIterator
from core.iterate.positions import Permute
from core.iterate.prefetch import Prefetch
from core.iterate.sources import CounterSource
from tests.core.pipelines_made import Stages, built

DEADLINE = 20.0


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something another thread does."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def items() -> ItemIterator:
    return ItemIterator(Permute(CounterSource(50), seed=1), read=7)


def numbers(iterator: Iterator[Any]) -> list[int]:
    return [int(item["index"]) for item in iterator]


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_the_same_items_in_the_same_order(depth: int) -> None:
    with Prefetch(items(), depth=depth) as ahead:
        assert numbers(ahead) == numbers(items())
        assert next(ahead, None) is None


def test_the_state_is_that_of_the_consumer() -> None:
    plain = items()
    with Prefetch(items(), depth=9) as ahead:
        assert ahead.getstate() == plain.getstate()
        states = [ahead.getstate()]
        for item in plain:
            assert next(ahead)["index"] == item["index"]
            assert ahead.getstate() == plain.getstate()
            states.append(ahead.getstate())
    whole = numbers(items())
    for k in range(0, 51, 5):
        with Prefetch(items(), depth=3) as fresh:
            fresh.setstate(states[k])
            assert numbers(fresh) == whole[k:]
    with Prefetch(items(), depth=3) as used:
        for _ in range(20):
            next(used)
        used.setstate(states[5])
        assert used.getstate() == states[5]
        assert numbers(used) == whole[5:]
        used.setstate(None)
        assert numbers(used) == whole


def test_pipelines_are_read_ahead() -> None:
    stages: Stages = [
        {"op": "source", "dataset": "a"}, {"op": "permute", "epochs": 3}, {"op": "batch", "size": 4}
    ]  # fmt: skip
    plain = [step.state for step in StepIterator(built(stages))]
    with Prefetch(StepIterator(built(stages)), depth=4) as ahead:
        assert [step.state for step in ahead] == plain


def test_they_nest() -> None:
    made: Any = items()
    for _ in range(5):
        made = Prefetch(made, depth=3)
    assert numbers(made) == numbers(items())
    before = made.getstate()
    assert before == made.getstate()
    made.close()
    assert threads() == 0


def failing(at: int) -> Iterator[int]:
    yield from range(at)
    try:
        int("the reason")
    except ValueError as error:
        raise TransformError(f"item {at} is broken", position=at) from error


def test_an_exception_comes_where_its_item_would_have() -> None:
    with Prefetch(failing(3), depth=50) as ahead:
        assert [next(ahead) for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(TransformError, match="item 3") as caught:
                next(ahead)
            assert caught.value.position == 3
            assert isinstance(caught.value.__cause__, ValueError)


def test_none_is_an_item() -> None:
    with Prefetch(iter([1, None, 2, None]), depth=2) as ahead:
        assert list(ahead) == [1, None, 2, None]


def test_no_more_than_the_depth_is_read() -> None:
    read = []

    def source() -> Iterator[int]:
        for k in range(100):
            read.append(k)
            yield k

    with Prefetch(source(), depth=3) as ahead:
        assert not read
        next(ahead)
        eventually(lambda: len(read) == 5)
        time.sleep(0.05)
        assert len(read) == 5  # one given, three on the shelf, one in the hand


class Stuck:
    """Gives one item, then waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.waits = threading.Event()
        self.given = 0
        self.closings = 0

    def __iter__(self) -> Stuck:
        return self

    def __next__(self) -> int:
        self.given += 1
        if self.given > 1:
            self.waits.set()
            self.go.wait(DEADLINE)
        return self.given

    def getstate(self) -> dict[str, Any]:
        return {"given": self.given}

    def setstate(self, state: dict[str, Any] | None) -> None:
        self.given = 0 if state is None else state["given"]

    def close(self) -> None:
        self.closings += 1


def test_closing_keeps_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Stuck()
    ahead = Prefetch(source, depth=2)
    assert next(ahead) == 1
    assert source.waits.wait(DEADLINE)
    start = time.monotonic()
    assert not ahead.close(0.05)
    assert time.monotonic() - start < DEADLINE / 2
    assert source.closings == 0
    source.go.set()
    eventually(lambda: threads() == 0)
    assert ahead.close()
    assert source.closings == 1
    for use in (lambda: next(ahead), lambda: ahead.setstate(None)):
        with pytest.raises(OptionError, match="closed"):
            use()
    monkeypatch.setattr("core.iterate.prefetch.CLOSE_SECONDS", 0.05)
    other = Stuck()
    again = Prefetch(other, depth=2)
    next(again)
    assert other.waits.wait(DEADLINE)
    with pytest.raises(StateError, match="did not end"):
        again.setstate(None)
    other.go.set()
    assert again.close()


def test_closing_ends_a_consumer_that_waits() -> None:
    source = Stuck()
    ahead = Prefetch(source, depth=2)
    next(ahead)
    ended: list[BaseException] = []

    def consume() -> None:
        try:
            next(ahead)
        except OptionError as error:
            ended.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert source.waits.wait(DEADLINE)
    ahead.close(0.01)
    consumer.join(DEADLINE)
    assert not consumer.is_alive()
    assert len(ended) == 1
    source.go.set()
    eventually(lambda: threads() == 0)


def test_forgotten_it_stops() -> None:
    ahead = Prefetch(iter(range(1000)), depth=2)
    next(ahead)
    assert threads() == 1
    del ahead
    gc.collect()
    eventually(lambda: threads() == 0)


def test_a_dead_thread_is_an_error_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.iterate.prefetch._read", lambda _source, _shelf: None)
    ahead = Prefetch(iter(range(3)))
    with pytest.raises(RuntimeError, match="gone"):
        next(ahead)


def test_what_has_no_state() -> None:
    with Prefetch(iter(range(3))) as ahead:
        assert next(ahead) == 0
        for use in (ahead.getstate, lambda: ahead.setstate(None)):
            with pytest.raises(StateError):
                use()
    depths: list[Any] = [0, "4", 2.5]
    for depth in depths:
        with pytest.raises(OptionError, match="depth is"):
            Prefetch(iter(range(3)), depth=depth)


def test_a_failing_read_does_not_lose_the_position() -> None:
    class Broken(CounterSource):
        broken = True

        def at(self, positions: Any) -> Any:  # noqa: ANN401 - as of the base class
            if self.broken and len(positions) and np.max(positions) >= 6:
                raise TransformError("a disk", position=6)
            return super().at(positions)

    source = Broken(10)
    with Prefetch(ItemIterator(source, read=2), depth=5) as ahead:
        assert [int(next(ahead)["index"]) for _ in range(6)] == list(range(6))
        with pytest.raises(TransformError):
            next(ahead)
        state = ahead.getstate()
        source.broken = False
        ahead.setstate(state)
        assert numbers(ahead) == [6, 7, 8, 9]
