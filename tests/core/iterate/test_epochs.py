"""Natural and fixed epochs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from core.errors import OptionError, PipelineError, StateError
from core.iterate.epochs import Epochs


class Streams:
    """Counts how often a stream is opened, and what is read of it."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.opened = 0
        self.read = 0

    def __call__(self) -> Iterator[int]:
        self.opened += 1
        for k in range(self.length):
            self.read += 1
            yield k


def test_natural_epochs_are_passes() -> None:
    streams = Streams(3)
    epochs = Epochs(streams)
    assert streams.opened == 0
    assert [list(epochs) for _ in range(3)] == [[0, 1, 2]] * 3
    assert (epochs.epoch, streams.opened) == (3, 3)


def test_fixed_epochs_go_on_where_the_stream_is() -> None:
    streams = Streams(7)
    epochs = Epochs(streams, size=3)
    assert next(epochs) == 0
    assert list(epochs) == [1, 2]
    assert streams.read == 3
    found = [list(epochs) for _ in range(4)]
    assert found == [[3, 4, 5], [6, 0, 1], [2, 3, 4], [5, 6, 0]]
    assert epochs.epoch == 5


def test_an_epoch_longer_than_the_stream() -> None:
    epochs = Epochs(Streams(2), size=5)
    assert [list(epochs) for _ in range(2)] == [[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]]


@pytest.mark.parametrize("size", [None, 2])
def test_an_empty_stream_is_an_error_after_one_pass(size: int | None) -> None:
    streams = Streams(0)
    epochs = Epochs(streams, size=size)
    with pytest.raises(PipelineError, match="has no items"):
        next(epochs)
    assert streams.opened == 1


@pytest.mark.parametrize("size", [None, 1, 3, 7, 8])
def test_every_state_goes_on_exactly(size: int | None) -> None:
    epochs = Epochs(Streams(7), size=size)
    states, items = [epochs.getstate()], []
    for _ in range(4):
        for item in epochs:
            items.append((epochs.epoch, item))
            states.append(json.loads(json.dumps(epochs.getstate())))
    for k, state in enumerate(states):
        fresh = Epochs(Streams(7), size=size)
        fresh.setstate(state)
        rest: list[tuple[int, int]] = []
        while len(rest) < len(items) - k:
            rest.extend((fresh.epoch, item) for item in fresh)
        assert rest == items[k:]
    fresh.setstate(None)
    assert next(fresh) == 0


@pytest.mark.parametrize(
    "state",
    [7, {}, {"version": 2, "epoch": 0, "served": 0, "offset": 0},
     {"version": 1, "epoch": 0, "served": 0},
     {"version": 1, "epoch": 0, "served": -1, "offset": 0}],
)  # fmt: skip
def test_states_that_are_none(state: Any) -> None:  # noqa: ANN401 - anything is tried
    with pytest.raises(StateError):
        Epochs(Streams(3)).setstate(state)


def test_a_state_of_a_longer_stream() -> None:
    epochs = Epochs(Streams(3))
    epochs.setstate({"version": 1, "epoch": 0, "served": 5, "offset": 5})
    with pytest.raises(StateError, match="after item 5 of a stream of 3 items"):
        next(epochs)


def test_a_stream_that_fails_is_opened_again_at_the_same_place() -> None:
    opened: list[int] = []

    def flaky() -> Iterator[int]:
        opened.append(len(opened))
        for k in range(4):
            if k == 2 and len(opened) == 1:
                raise OSError("a cut")
            yield k

    epochs = Epochs(flaky)
    assert [next(epochs), next(epochs)] == [0, 1]
    with pytest.raises(OSError, match="a cut"):
        next(epochs)
    assert list(epochs) == [2, 3]
    assert (epochs.epoch, opened) == (1, [0, 1])


class Resuming(Iterator[int]):
    """0 to 6, with states."""

    read = 0

    def __init__(self) -> None:
        self.next = 0

    def __next__(self) -> int:
        if self.next == 7:
            raise StopIteration
        Resuming.read += 1
        self.next += 1
        return self.next - 1

    def getstate(self) -> dict[str, int]:
        return {"next": self.next}

    def setstate(self, state: dict[str, int] | None) -> None:
        self.next = 0 if state is None else state["next"]


def test_a_stream_with_states_is_resumed_by_them_and_not_read_again() -> None:
    epochs = Epochs(Resuming, size=5)
    first = [*epochs, next(epochs)]
    state = json.loads(json.dumps(epochs.getstate()))
    fresh = Epochs(Resuming, size=5)
    fresh.setstate(state)
    Resuming.read = 0
    assert list(fresh) == [6, 0, 1, 2]
    assert Resuming.read == 4
    assert [*first, *epochs] == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]
    other = Epochs(Streams(7), size=5)
    other.setstate(state)
    with pytest.raises(StateError, match="state of the stream, which has none"):
        next(other)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(OptionError):
        Epochs(Streams(3), size=0)
