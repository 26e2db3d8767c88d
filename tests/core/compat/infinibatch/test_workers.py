"""Checklist: PrefetchIterator in both variants and ParallelMapIterator, by real processes."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice, product
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from core.compat.errors import RemoteTracebackError, WorkerDiedError, WorkerError
from core.compat.infinibatch import _workers
from core.compat.infinibatch.iterators import (
    BufferedShuffleIterator,
    CheckpointableIterator,
    FixedBatchIterator,
    MapIterator,
    NativeCheckpointableIterator,
    ParallelMapIterator,
    PrefetchIterator,
)
from tests.scale import SOAK

pytestmark = pytest.mark.once

VARIANTS = [False, True]
METHODS = [
    method for method in ("fork", "spawn") if method in multiprocessing.get_all_start_methods()
]
ROOT = Path(__file__).parents[4]


class UnpicklableError(Exception):
    """Cannot be made again of what it says."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")


def native(n: int) -> NativeCheckpointableIterator:
    return NativeCheckpointableIterator(list(range(n)))


def where(item: int) -> tuple[int, int]:
    return item, os.getpid()


def double(item: int) -> int:
    return 2 * item


def fails_at_five(item: int) -> int:
    if item == 5:
        raise ValueError("five is right out")
    return item


def fails_oddly_at_five(item: int) -> int:
    if item == 5:
        raise UnpicklableError(2, 3)
    return item


def unpicklable_at_five(item: int) -> Any:  # noqa: ANN401 - a lambda, once
    return (lambda: item) if item == 5 else item


def dies_at_five(item: int) -> int:
    if item == 5:
        os._exit(7)
    return item


def leaves_at_five(item: int) -> int:
    if item == 5:
        sys.exit(3)
    return item


def sleeps(item: int) -> int:
    time.sleep(60)
    return item


def children() -> list[BaseProcess]:
    """Processes that are alive, but for servers of other tests."""
    alive = multiprocessing.active_children()
    return [process for process in alive if not isinstance(process, ForkServerProcess)]


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """No leaked processes, of no test."""
    assert children() == []
    yield
    assert children() == []


def prefetched(transform: Callable[[int], Any], in_main: bool, n: int = 10) -> PrefetchIterator:
    return PrefetchIterator(MapIterator(native(n), transform), 3, in_main)


@pytest.mark.parametrize("in_main", VARIANTS)
def test_prefetched_items_come_in_order_from_one_other_process(in_main: bool) -> None:
    iterator = PrefetchIterator(MapIterator(native(100), where), 7, in_main)
    assert children() == []  # it starts at the first item
    items, pids = zip(*iterator, strict=True)
    assert items == tuple(range(100))
    assert len(set(pids)) == 1
    assert os.getpid() not in pids
    assert children() == []  # at the end it has ended
    iterator.close()


@pytest.mark.parametrize(
    ("size", "in_main"),
    list(product([1, 5, 40], VARIANTS))
    if SOAK
    else [(1, True), (5, False), (5, True), (40, False)],
)
def test_every_place_among_prefetched_items_can_be_gone_back_to(size: int, in_main: bool) -> None:
    def make() -> PrefetchIterator:
        return PrefetchIterator(BufferedShuffleIterator(native(9), 4, 1), size, in_main)

    iterator = make()
    whole = list(iterator)
    iterator.setstate(None)
    states = [iterator.getstate()]
    for _ in whole:
        next(iterator)
        states.append(iterator.getstate())
    assert list(iterator) == []
    states.append(iterator.getstate())
    for step, state in enumerate(states):
        fresh = make()
        fresh.setstate(json.loads(json.dumps(state)))
        assert list(fresh) == whole[step:]
        with pytest.raises(StopIteration):
            next(fresh)
        fresh.close()
    iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
def test_a_checkpoint_is_near_what_was_taken(in_main: bool) -> None:
    iterator = PrefetchIterator(native(500), 400, in_main)
    list(islice(iterator, 100))
    state = iterator.getstate()
    assert state["item_offset"] == 100 % 32
    iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
def test_no_more_is_made_ahead_than_was_said(in_main: bool, tmp_path: Path) -> None:
    def note(item: int) -> int:
        with (tmp_path / "made").open("a") as file:
            file.write(f"{item}\n")
        return item

    iterator = PrefetchIterator(MapIterator(native(100), note), 8, in_main)
    taken = 20
    list(islice(iterator, taken))
    time.sleep(0.2)
    made = len((tmp_path / "made").read_text().splitlines())
    assert taken < made <= taken + 8
    iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
@pytest.mark.parametrize("depth", [2, 5])
def test_prefetching_nests(depth: int, in_main: bool) -> None:
    """Checklist: five deep, and closing the last closes all."""
    iterator: CheckpointableIterator = native(60)
    for _ in range(depth):
        iterator = PrefetchIterator(iterator, 7, in_main)
    head = list(islice(iterator, 25))
    state = iterator.getstate()
    assert head + list(iterator) == list(range(60))
    iterator.setstate(state)
    assert next(iterator) == 25
    iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
@pytest.mark.parametrize("used", [False, True])
def test_after_close_items_and_states_are_refused(used: bool, in_main: bool) -> None:
    iterator = PrefetchIterator(native(50), 5, in_main)
    if used:
        next(iterator)
    iterator.close()
    iterator.close()
    with pytest.raises(RuntimeError, match="has been closed"):
        next(iterator)
    with pytest.raises(RuntimeError, match="has been closed"):
        iterator.setstate(None)
    assert iterator.getstate()["item_offset"] == used


def send_items(iterator: Iterator[Any], connection: Connection) -> None:
    connection.send([next(iterator) for _ in range(10)])


@pytest.mark.skipif("fork" not in METHODS, reason="needs fork")
@pytest.mark.parametrize("in_main", VARIANTS)
def test_a_fork_goes_on_by_itself_and_takes_nothing_of_its_parent(in_main: bool) -> None:
    prefetched = PrefetchIterator(native(50), 4, in_main, start_method="fork")
    mapped = ParallelMapIterator(native(50), double, 2, 1, start_method="fork")
    context = multiprocessing.get_context("fork")
    for iterator, factor in ((prefetched, 1), (mapped, 2)):
        first = [next(iterator) for _ in range(7)]
        ours, theirs = context.Pipe()
        child = context.Process(target=send_items, args=(iterator, theirs))
        child.start()
        assert ours.poll(60)
        assert ours.recv() == [factor * k for k in range(7, 17)]
        child.join(60)
        assert child.exitcode == 0
        assert first + list(iterator) == [factor * k for k in range(50)]
        iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
def test_an_exception_comes_in_its_place_with_its_traceback_there(in_main: bool) -> None:
    """Flaw beaten: an exception in the process left the consumer waiting for ever."""
    iterator = prefetched(fails_at_five, in_main)
    got: list[int] = []
    with pytest.raises(ValueError, match="five is right out") as caught:
        got.extend(iterator)
    assert got == [0, 1, 2, 3, 4]
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    assert "in fails_at_five" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="five"):  # begins again at the item that failed
        next(iterator)
    iterator.setstate(None)
    assert next(iterator) == 0
    iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
@pytest.mark.parametrize(
    ("transform", "error", "words"),
    [
        (fails_oddly_at_five, WorkerError, "UnpicklableError: 2 and 3"),
        (unpicklable_at_five, Exception, "(?i)pickle"),
        (dies_at_five, ChildProcessError, "ended unexpectedly, with exit code 7"),
        (leaves_at_five, WorkerDiedError, "exit code 3"),
    ],
)
def test_whatever_happens_to_the_process_is_an_error(
    transform: Callable[[int], Any], error: type[Exception], words: str, in_main: bool
) -> None:
    iterator = prefetched(transform, in_main)
    got: list[int] = []
    with pytest.raises(error, match=words):
        got.extend(iterator)
    assert got == list(range(len(got)))
    assert len(got) <= 5
    iterator.close()


@pytest.mark.parametrize("in_main", VARIANTS)
def test_a_killed_process_is_an_error_and_the_next_item_starts_another(in_main: bool) -> None:
    iterator = prefetched(double, in_main, 1000)
    assert next(iterator) == 0
    (worker,) = iterator._workers
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    got: list[int] = []
    with pytest.raises(WorkerDiedError, match="exit code -9"):
        got.extend(iterator)
    assert next(iterator) == 2 * (len(got) + 1)
    iterator.close()


def test_close_keeps_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers.Worker.close, "__defaults__", (0.1,))
    monkeypatch.setattr(PrefetchIterator._stop, "__defaults__", (0.1,))
    iterator = prefetched(sleeps, True)
    iterator._start()
    started = time.monotonic()
    iterator.close()
    assert time.monotonic() - started < 3
    parallel = ParallelMapIterator(native(1), double, 2, 1)
    assert list(parallel) == [0]
    parallel.close()


@pytest.mark.parametrize("kind", ["prefetch", "prefetch in main", "map"])
def test_what_is_not_closed_warns_and_ends_with_the_iterator(kind: str) -> None:
    makers: dict[str, Callable[[], CheckpointableIterator]] = {
        "prefetch": lambda: PrefetchIterator(native(50), 5),
        "prefetch in main": lambda: PrefetchIterator(native(50), 5, True),
        "map": lambda: ParallelMapIterator(native(50), double, 2, 3),
    }
    iterator = makers[kind]()
    next(iterator)
    assert children() != []
    with pytest.warns(ResourceWarning, match="was not closed"):
        iterator.__del__()  # type: ignore[attr-defined]
    assert children() == []


def test_an_empty_buffer_is_logged_if_wanted(caplog: pytest.LogCaptureFixture) -> None:
    def slow(item: int) -> int:
        time.sleep(0.02)
        return item

    for wanted in (True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            iterator = PrefetchIterator(MapIterator(native(4), slow), 2, True, wanted)
            list(iterator)
            iterator.close()
        assert ("the prefetch buffer is empty" in caplog.text) is wanted


def test_an_interpreter_that_ends_or_is_killed_leaves_no_process_and_does_not_hang() -> None:
    """Flaw beaten: hangs when Python ends, and dangling processes."""
    program = """
import os, signal, sys
from core.compat.infinibatch.iterators import *
it = NativeCheckpointableIterator(list(range(10**6)))
for _ in range(2):
    it = PrefetchIterator(it, 5)
it = ParallelMapIterator(it, abs, 2, 2)
print(next(it), flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    for how in ("end", "kill"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, how],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # The pipes of stdout are only at their end when every process that has them is gone.
        assert done.stdout == "0\n"
        assert done.stderr == ""
        assert done.returncode == (0 if how == "end" else -signal.SIGKILL)


@pytest.mark.parametrize("method", METHODS)
def test_processes_can_be_spawned_as_well_as_forked(method: str) -> None:
    """Flaw beaten: where fork is not the default there was no prefetching at all."""
    source = MapIterator(BufferedShuffleIterator(native(30), 5, 2), double)
    expected = list(source)
    source.setstate(None)
    for in_main in VARIANTS:
        iterator = PrefetchIterator(PrefetchIterator(source, 4, start_method=method), 4, in_main)
        assert list(islice(iterator, 10)) == expected[:10]
        state = iterator.getstate()
        again = pickle.loads(pickle.dumps(iterator))  # noqa: S301 - our own
        iterator.close()
        assert list(again) == expected[10:]
        assert state == json.loads(json.dumps(state))
        again.close()
        source = MapIterator(BufferedShuffleIterator(native(30), 5, 2), double)
    parallel = ParallelMapIterator(native(10), double, 2, 2, start_method=method)
    assert list(parallel) == list(range(0, 20, 2))
    parallel.close()


def test_python_s_own_start_method_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Python's default is forkserver."""
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda *_: "forkserver")
    iterator = PrefetchIterator(MapIterator(native(5), lambda item: -item), 2)
    assert list(iterator) == [0, -1, -2, -3, -4]
    iterator.close()
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert PrefetchIterator(native(5), 2)._method == "spawn"
    with pytest.raises(ValueError, match="start_method is 'fork'"):
        PrefetchIterator(native(5), 2, start_method="fork")


def test_a_parallel_map_uses_its_processes_and_keeps_the_order() -> None:
    iterator = ParallelMapIterator(native(50), where, 3, 4)
    items, pids = zip(*iterator, strict=True)
    assert items == tuple(range(50))
    assert len(set(pids)) == 3
    assert os.getpid() not in pids
    iterator.close()


def test_a_parallel_map_is_closed_and_refuses_afterwards() -> None:
    """Flaw beaten: the pool was never closed."""
    iterator = ParallelMapIterator(native(50), double, 2, 4)
    next(iterator)
    assert len(children()) == 2
    iterator.close()
    assert children() == []
    with pytest.raises(RuntimeError, match="has been closed"):
        next(iterator)
    with pytest.raises(RuntimeError, match="has been closed"):
        iterator.setstate(None)


def test_a_parallel_map_transforms_nothing_twice_when_it_is_resumed(tmp_path: Path) -> None:
    """Flaw beaten: up to a whole window was computed again."""

    def note(item: int) -> int:
        (tmp_path / f"{item}").touch(exist_ok=False)
        return 2 * item

    first = ParallelMapIterator(native(40), double, 2, 5)
    list(islice(first, 13))
    state = json.loads(json.dumps(first.getstate()))
    first.close()
    second = ParallelMapIterator(native(40), note, 2, 5)
    second.setstate(state)
    assert list(second) == list(range(26, 80, 2))
    assert {int(path.name) for path in tmp_path.iterdir()} == set(range(13, 40))
    second.close()


def test_every_place_of_a_parallel_map_can_be_gone_back_to() -> None:
    iterator = ParallelMapIterator(native(11), double, 2, 2)
    states = [iterator.getstate()]
    for _ in range(11):
        next(iterator)
        states.append(iterator.getstate())
    assert list(iterator) == []
    states.append(iterator.getstate())
    for step, state in enumerate(states):
        iterator.setstate(json.loads(json.dumps(state)))
        assert list(iterator) == list(range(2 * step, 22, 2))
    iterator.close()


@pytest.mark.parametrize("transform", [fails_at_five, fails_oddly_at_five, unpicklable_at_five])
def test_a_parallel_map_fails_at_the_item_and_goes_on_behind_it(
    transform: Callable[[int], Any],
) -> None:
    iterator = ParallelMapIterator(native(12), transform, 2, 2)
    assert list(islice(iterator, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(Exception, match=r"five|2 and 3|(?i:pickle)") as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    assert list(iterator) == [6, 7, 8, 9, 10, 11]
    iterator.close()


def test_a_process_of_a_parallel_map_that_dies_is_an_error_and_no_wait() -> None:
    iterator = ParallelMapIterator(native(12), dies_at_five, 2, 2)
    assert list(islice(iterator, 4)) == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(WorkerDiedError, match=r"map process 0 ended .* exit code 7"):
            next(iterator)
    iterator.close()


def test_a_checkpoint_serves_another_number_of_processes_and_another_buffer() -> None:
    """Windows differ, items do not."""
    wide = ParallelMapIterator(native(30), double, 2, 6)
    list(islice(wide, 11))
    narrow = ParallelMapIterator(native(30), double, 1, 2)
    narrow.setstate(wide.getstate())
    assert list(narrow) == [2 * k for k in range(11, 30)]
    large = PrefetchIterator(native(90), 30)
    list(islice(large, 25))
    small = PrefetchIterator(native(90), 4)
    small.setstate(large.getstate())
    assert list(islice(small, 20)) == list(range(25, 45))
    assert small.getstate()["item_offset"] <= 4
    assert list(small) == list(range(45, 90))
    for iterator in (wide, narrow, large, small):
        iterator.close()


def test_parallel_maps_and_prefetching_nest() -> None:
    inner = ParallelMapIterator(FixedBatchIterator(native(30), 3), sum, 2, 2)
    iterator = PrefetchIterator(inner, 4)
    assert list(islice(iterator, 4)) == [3, 12, 21, 30]
    iterator.close()
