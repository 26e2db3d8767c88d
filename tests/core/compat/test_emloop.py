"""Checklist of emloop's StreamWrapper, and its flaws beaten."""

from __future__ import annotations

import doctest
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.compat import emloop
from core.compat.emloop import StreamWrapper
from core.compat.errors import CheckpointError, DataChangedError
from core.compat.infinibatch.iterators import (
    BufferedShuffleIterator,
    CheckpointableIterator,
    NativeCheckpointableIterator,
)

BUFFERS = [0, 1, 4]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    until(lambda: threading.active_count() <= before)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come about")


class Stream:
    """Numbers 0 to n - 1, knowing how often it began and what was taken."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.begun = 0
        self.taken = 0

    def __call__(self) -> Iterator[int]:
        self.begun += 1
        for batch in range(self.n):
            self.taken += 1
            yield batch


def epochs(stream: StreamWrapper, count: int) -> list[list[Any]]:
    return [list(stream) for _ in range(count)]


def test_the_examples_in_the_documentation_run() -> None:
    """Flaw beaten: the constructor as the peer's documentation has it is a TypeError."""
    assert doctest.testmod(emloop).failed == 0
    assert doctest.testmod(emloop).attempted > 2


def test_the_documented_call_form_names_the_stream_and_sizes_its_buffer() -> None:
    profile: dict[str, list[float]] = {}
    stream = StreamWrapper(Stream(7), "train", buffer=4, epoch_size=3, profile=profile)
    assert stream.name == "train"
    with pytest.raises(ValueError, match="`train` with buffer of size `4` was used outside"):
        next(stream)
    with stream:
        assert epochs(stream, 3) == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    assert list(profile) == ["read_batch_train"]
    assert list(StreamWrapper(Stream(2), "train")) == [0, 1]


def test_two_names_or_two_buffer_sizes_are_refused() -> None:
    with pytest.raises(TypeError, match="two names for a stream: 'train' and 'valid'"):
        StreamWrapper(Stream(3), "train", name="valid")
    with pytest.raises(TypeError, match="two buffer sizes for a stream: 4 and 8"):
        StreamWrapper(Stream(3), 4, buffer=8)


@pytest.mark.parametrize(
    "sizes",
    [
        {"epoch_size": 1.5},
        {"epoch_size": True},
        {"epoch_size": None},
        {"buffer_size": 1.5},
        {"buffer": 2.0},
    ],
)
def test_a_size_that_is_no_integer_is_refused(sizes: dict[str, Any]) -> None:
    name, size = next(iter(sizes.items()))
    with pytest.raises(ValueError, match=f"{name}.* has to be an integer, not {size}"):
        StreamWrapper(Stream(3), **sizes)


def test_sizes_below_1_are_none_as_the_peer_documents() -> None:
    assert epochs(StreamWrapper(Stream(3), -1, 0), 2) == [[0, 1, 2]] * 2


@pytest.mark.parametrize("buffer_size", BUFFERS)
def test_natural_epochs_end_where_the_stream_does(buffer_size: int) -> None:
    """Checklist: factory called lazily and again after each end; the object is re-iterable."""
    made = Stream(3)
    with StreamWrapper(made, buffer_size) as stream:
        assert made.begun == 0
        assert iter(stream) is stream
        assert epochs(stream, 3) == [[0, 1, 2]] * 3
    assert made.begun == 3


@pytest.mark.parametrize("buffer_size", BUFFERS)
def test_fixed_epochs_leave_the_stream_where_it_is(buffer_size: int) -> None:
    """Checklist: seven batches in epochs of three."""
    with StreamWrapper(Stream(7), buffer_size, epoch_size=3) as stream:
        assert epochs(stream, 5) == [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4], [5, 6, 0]]


def test_a_fixed_epoch_does_not_touch_the_stream_to_end() -> None:
    made = Stream(9)
    stream = StreamWrapper(made, epoch_size=3)
    assert list(stream) == [0, 1, 2]
    assert made.taken == 3


@pytest.mark.parametrize("buffer_size", BUFFERS)
def test_none_is_a_batch(buffer_size: int) -> None:
    """Flaw beaten: [1, None, 2] ended after 1."""
    with StreamWrapper(lambda: [1, None, 2], buffer_size) as stream:
        assert epochs(stream, 2) == [[1, None, 2]] * 2


@pytest.mark.parametrize("buffer_size", BUFFERS)
def test_an_empty_stream_gives_empty_epochs_but_no_fixed_ones(buffer_size: int) -> None:
    """Flaw beaten: an empty stream in epochs of fixed size was waited for without end."""
    with StreamWrapper(list, buffer_size) as stream:
        assert epochs(stream, 2) == [[], []]
    with StreamWrapper(list, buffer_size, 3, "train") as stream:
        for _ in range(2):
            with pytest.raises(ValueError, match="stream `train` has no batches, so an epoch of 3"):
                next(stream)


def test_a_buffer_is_used_in_with() -> None:
    stream = StreamWrapper(Stream(3), 2, name="train")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are below
        next(stream)
    assert str(caught.value) == (
        "StreamWrapper `train` with buffer of size `2` was used outside with-resource environment."
    )
    assert stream.name == "train"
    assert StreamWrapper(Stream(3)).name is None


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_one_with_goes_on_where_another_ended(batches: int) -> None:
    """Checklist: the buffer and the stream are kept, and it may be read after the last with."""
    stream = StreamWrapper(Stream(11), 4)
    got: list[int] = []
    for _ in range(3):
        with stream, stream.allow_buffering:
            got += [next(stream) for _ in range(batches)]
        assert not any(thread.name.startswith("stream") for thread in threading.enumerate())
    assert got + list(stream) == list(range(11))
    assert list(stream) == list(range(11))


def test_nothing_is_made_ahead_unless_it_is_allowed() -> None:
    """Checklist: allow_buffering nests; waiting for a batch allows it."""
    made = Stream(50)
    with StreamWrapper(made, 4) as stream:
        time.sleep(0.05)
        assert made.taken == 0
        assert stream.empty()
        with stream.allow_buffering:
            with stream.allow_buffering:
                until(lambda: made.taken == 4)
            assert not stream.empty()
            assert next(stream) == 0
            until(lambda: made.taken == 5)
        assert [next(stream) for _ in range(4)] == [1, 2, 3, 4]
        time.sleep(0.05)
        assert made.taken == 5
        assert next(stream) == 5  # allowed by waiting
    assert StreamWrapper(made).empty()


def test_batches_are_made_ahead_up_to_the_end_of_the_epoch() -> None:
    """Checklist: the thread ends with the epoch; the next one starts when it is asked for."""
    made = Stream(3)
    with StreamWrapper(made, 10) as stream, stream.allow_buffering:
        until(lambda: made.taken == 3)
        time.sleep(0.05)
        assert made.begun == 1
        assert list(stream) == [0, 1, 2]
        assert stream.empty()
        assert list(stream) == [0, 1, 2]


def test_an_unbuffered_stream_can_be_used_in_with_and_out_of_it() -> None:
    stream = StreamWrapper(Stream(2))
    with stream as entered:
        assert entered is stream
        assert next(stream) == 0
    assert list(stream) == [1]


@pytest.mark.parametrize("buffer_size", BUFFERS)
def test_the_profile_has_an_entry_for_each_batch_and_none_for_an_end(buffer_size: int) -> None:
    profile: dict[str, list[float]] = {}
    with StreamWrapper(Stream(3), buffer_size, name="train", profile=profile) as stream:
        assert profile == {}
        epochs(stream, 2)
    assert list(profile) == ["read_batch_train"]
    assert len(profile["read_batch_train"]) == 6
    assert all(seconds >= 0 for seconds in profile["read_batch_train"])


def failing() -> Iterator[int]:
    yield 0
    yield 1
    raise RuntimeError("on purpose")


def test_an_exception_of_the_stream_comes_at_once_behind_the_batches_before() -> None:
    """Flaw beaten: it came two seconds later and without its cause."""
    with StreamWrapper(failing, 4) as stream:
        assert [next(stream), next(stream)] == [0, 1]
        for _ in range(2):  # it fails again; it does not look like an epoch that ended
            started = time.perf_counter()
            with pytest.raises(ChildProcessError, match="thread ended unexpectedly") as caught:
                next(stream)
            assert time.perf_counter() - started < 1
            assert isinstance(caught.value.__cause__, RuntimeError)
            assert str(caught.value.__cause__) == "on purpose"


def test_an_exception_of_an_unbuffered_stream_is_itself() -> None:
    stream = StreamWrapper(failing)
    assert [next(stream), next(stream)] == [0, 1]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            next(stream)


def test_buffering_does_not_sleep() -> None:
    """Flaw beaten: 20 ms of sleep for each batch, so at most 49 batches a second."""
    with StreamWrapper(Stream(1000), 16) as stream, stream.allow_buffering:
        started = time.perf_counter()
        assert list(stream) == list(range(1000))
        assert time.perf_counter() - started < 5  # asleep it would be 20


def test_leaving_keeps_its_deadline_and_loses_nothing() -> None:
    """Flaw beaten: leaving waited without end for a batch that did not come."""
    gate = threading.Event()

    def slow() -> Iterator[int]:
        yield 0
        gate.wait()
        yield 1
        yield 2

    stream = StreamWrapper(slow, 4, name="slow", stop_timeout=0.05)
    stream.__enter__()
    with stream.allow_buffering:
        assert next(stream) == 0
        time.sleep(0.05)  # the thread now waits for the second batch
    with pytest.warns(RuntimeWarning, match=r"stream `slow` takes longer than 0\.05 s"):
        stream.__exit__(None, None, None)
    gate.set()
    with stream:
        assert list(stream) == [1, 2]


@pytest.mark.parametrize("buffer_size", BUFFERS)
@pytest.mark.parametrize("epoch_size", [-1, 3])
def test_a_checkpoint_is_where_the_consumer_is(epoch_size: int, buffer_size: int) -> None:
    """Better than the peer, which has none: at every step, whatever was made ahead."""

    def make() -> StreamWrapper:
        return StreamWrapper(Stream(7), buffer_size, epoch_size)

    def walk(stream: StreamWrapper, steps: int) -> Iterator[Any]:
        for _ in range(steps):
            try:
                yield next(stream)
            except StopIteration:
                yield "end"

    with make() as stream, stream.allow_buffering:
        states = [stream.getstate()]
        whole = []
        for item in walk(stream, 20):
            whole.append(item)
            states.append(stream.getstate())
    for step, state in enumerate(states):
        with make() as fresh:
            fresh.setstate(json.loads(json.dumps(state)))
            assert list(walk(fresh, 20 - step)) == whole[step:]


@pytest.mark.parametrize("buffer_size", BUFFERS)
def test_a_checkpoint_has_the_state_of_a_stream_that_has_one(buffer_size: int) -> None:
    def shuffled() -> CheckpointableIterator:
        return BufferedShuffleIterator(NativeCheckpointableIterator(list(range(20))), 5, 1)

    with StreamWrapper(shuffled, buffer_size) as stream:
        head = [next(stream) for _ in range(8)]
        state = json.loads(json.dumps(stream.getstate()))
        rest = list(stream)
    assert sorted(head + rest) == list(range(20))
    assert state["source"]["iterator"] == "BufferedShuffleIterator"
    with StreamWrapper(shuffled, buffer_size) as fresh:
        fresh.setstate(state)
        assert list(fresh) == rest
    with StreamWrapper(Stream(20), buffer_size) as other:
        other.setstate(state)
        with pytest.raises(DataChangedError, match="has none"):
            next(other)


def test_going_elsewhere_drops_what_was_made_ahead() -> None:
    made = Stream(9)
    with StreamWrapper(made, 4) as stream, stream.allow_buffering:
        first = stream.getstate()
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
        until(lambda: not stream.empty())
        stream.setstate(first)
        assert list(stream) == list(range(9))
        stream.setstate(None)
        assert list(stream) == list(range(9))


def test_a_thread_still_at_a_batch_of_before_does_not_disturb() -> None:
    gates = [threading.Event(), threading.Event()]
    gates[1].set()
    opened = iter(gates)

    def slow() -> Iterator[int]:
        gate = next(opened)
        yield 0
        gate.wait()
        yield 1

    with StreamWrapper(slow, 4) as stream, stream.allow_buffering:
        assert next(stream) == 0
        time.sleep(0.02)
        stream.setstate(None)
        gates[0].set()
        assert list(stream) == [0, 1]


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {},
        {"position": -1},
        {"count": True},
        {"version": 2},
        {"iterator": "ZipIterator"},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_checkpoint_is_refused_and_all_stays_as_it_is(broken: Any) -> None:  # noqa: ANN401
    stream = StreamWrapper(Stream(3))
    assert next(stream) == 0
    state = {**stream.getstate(), **broken} if broken else broken
    with pytest.raises(CheckpointError):
        stream.setstate(state)
    assert list(stream) == [1, 2]


@pytest.mark.parametrize(("saved", "here"), [(5, 2), (-1, 2), (2, -1)])
def test_a_checkpoint_of_another_epoch_size_is_refused(saved: int, here: int) -> None:
    stream = StreamWrapper(Stream(9), epoch_size=saved)
    assert [next(stream) for _ in range(2)] == [0, 1]
    other = StreamWrapper(Stream(9), epoch_size=here)
    sizes = f"epoch_size {max(saved, 0)}, but here it is {max(here, 0)}"
    with pytest.raises(CheckpointError, match=sizes):
        other.setstate(stream.getstate())
    assert next(other) == 0


def test_a_checkpoint_of_an_earlier_release_lacks_the_epoch_size_and_is_taken() -> None:
    stream = StreamWrapper(Stream(9), epoch_size=2)
    assert next(stream) == 0
    state = stream.getstate()
    del state["epoch_size"]
    stream.setstate(state)
    assert epochs(stream, 2) == [[1], [2, 3]]
    with pytest.raises(CheckpointError, match=r"count .* is 3, not an integer from 0 to 2"):
        stream.setstate({**state, "count": 3})


def test_a_stream_that_shrank_is_told() -> None:
    stream = StreamWrapper(Stream(5))
    for _ in range(4):
        next(stream)
    short = StreamWrapper(Stream(2))
    short.setstate(stream.getstate())
    with pytest.raises(RuntimeError, match="lies after item 4 of a stream of 2 items"):
        next(short)
