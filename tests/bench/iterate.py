"""Iteration against the peer: ``python -m tests.bench.iterate [--infinibatch PY]``.

In process, both in turn in every round; medians. PY is an interpreter that has
``infinibatch==0.1.1``; without it our own speeds are printed. The peer iterates items,
for it has nothing else; ours are blocks of items, and items through the adapter that has
the peer's names.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from core.iterate.base import Indexed, Stage, in_order
from core.iterate.batching import BucketBatch
from core.iterate.columns import block_length
from core.iterate.positions import Permute
from core.iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from core.iterate.sources import ArraySource
from core.warmup import warm_up
from tests.bench.__main__ import line, medians, timed

BLOCK = 16_384
BATCH = 128
BUFFERS = (1_000, 10_000, 100_000)
READ_AHEAD = 100_000
BUDGET = 4_096
WORKER = """
import collections, gc, itertools, json, pickle, sys, time
from functools import partial
from {module} import iterators as it

def drain(iterator, count=None):
    collections.deque(itertools.islice(iterator, count), 0)

def lengths(n):
    return [(i * 2654435761 % 2**32) * 100 // 2**32 + 1 for i in range(n)]

KEPT = {{}}

def kept(name, make):
    if name not in KEPT:
        KEPT[name] = make()
    return KEPT[name]

def source(n):
    return it.NativeCheckpointableIterator(kept(n, lambda: list(range(n))))

def permutation(n):
    return it.InfinitePermutationSourceIterator(kept(n, lambda: list(range(n))), seed=1)

def reservoir(n, size):
    return it.BufferedShuffleIterator(source(n), size, seed=1)

def blockwise(n, size):
    return it.BlockwiseShuffleIterator(source(n), size, seed=1)

def bucketed(n, ahead, budget):
    items = it.NativeCheckpointableIterator(kept(("lengths", n), lambda: lengths(n)))
    return it.BucketedReadaheadBatchIterator(
        items, ahead, key=lambda x: x, batch_size=lambda x: max(1, budget // x), seed=1
    )

def mapped(n, size):
    return it.FixedBatchIterator(it.MapIterator(permutation(n), lambda x: x + 1), size)

MADE = dict(permutation=permutation, reservoir=reservoir, blockwise=blockwise,
            bucketed=bucketed, mapped=mapped)

def run(what, name, args, count):
    make = partial(MADE[name], *args)
    if what == "resume":
        state = kept((name, *args, count), lambda: advanced(make, count))
    gc.collect()
    start = time.perf_counter()
    iterator = make()
    if what == "resume":
        iterator.setstate(state)
        next(iterator)
    elif what == "first":
        next(iterator)
    elif what == "size":
        drain(iterator, count)
        return len(pickle.dumps(iterator.getstate()))
    else:
        drain(iterator, count)
    return time.perf_counter() - start

def advanced(make, count):
    iterator = make()
    drain(iterator, count)
    return iterator.getstate()

for request in sys.stdin:
    what, name, args, count = json.loads(request)
    for n in args[:1]:
        kept(n, lambda: list(range(n)))
    if name == "bucketed":
        kept(("lengths", args[0]), lambda: lengths(args[0]))
    print(json.dumps(run(what, name, args, count)), flush=True)
"""


class Worker:
    """A process that runs the peer's iterators, or ours by the peer's names."""

    def __init__(self, python: str, module: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", WORKER.format(module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, name: str, *args: int, count: int | None = None) -> float:
        """Seconds, or bytes, of one run."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([what, name, args, count]) + "\n")
        process.stdin.flush()
        return float(json.loads(process.stdout.readline()))

    def contest(
        self, what: str, name: str, *args: int, count: int | None = None
    ) -> Callable[[], float]:
        """A contest of one run."""
        return lambda: self.ask(what, name, *args, count=count)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@contextmanager
def worker(python: str | None, module: str) -> Iterator[Worker | None]:
    """A worker while it is needed; None without an interpreter."""
    if python is None:
        yield None
        return
    running = Worker(python, module)
    try:
        yield running
    finally:
        running.close()


def numbers(n: int) -> ArraySource:
    """What the peer has as a list."""
    return ArraySource({"x": np.arange(n)})


def drain(stage: Stage, limit: int) -> None:
    """Read a stage in blocks."""
    reader = in_order(stage)
    state, total = reader.initial, 0
    while total < limit:
        block, state = reader.take(state, min(BLOCK, limit - total))
        if not block_length(block):
            break
        total += block_length(block)


def one(make: Callable[[], Stage], position: int) -> Callable[[], None]:
    """Make a stage and read the item at a position; the state is the position."""

    def run() -> None:
        stage = make()
        if isinstance(stage, Indexed):
            stage.at(np.array([position]))
        else:
            stage.take((position,), 1)

    return run


def drain_batches(stage: BucketBatch) -> None:
    """Read all batches, a window at a time."""
    state = stage.initial
    while (step := stage.next_window(state)) is not None:
        state = step[2]


def drain_single_batches(stage: BucketBatch) -> None:
    """Read all batches, one at a time."""
    state = stage.initial
    while (step := stage.next_batch(state)) is not None:
        state = step[1]


class Board:
    """Contests of ours and the peer's, printed as ratios."""

    def __init__(self, peer: Worker | None, rounds: int) -> None:
        self.peer = peer
        self.rounds = rounds

    def compare(
        self,
        text: str,
        ours: Callable[[], object],
        theirs: tuple[Any, ...],
        *,
        count: int | None = None,
        items: int | None = None,
        target: float | None = None,
    ) -> None:
        """Print how many times as fast ours is, and its speed."""
        gc.collect()
        contests = {"ours": timed(ours)}
        if self.peer is not None:
            contests["peer"] = self.peer.contest(*theirs, count=count)
        result = medians(contests, self.rounds)
        speed = (
            f"{result['ours'] * 1e3:.3f} ms"
            if items is None
            else f"{items / result['ours'] / 1e6:.1f} M/s"
        )
        if self.peer is None:
            print(f"{text:<62}{speed:>12}", flush=True)
            return
        line(f"{text} ({speed})", result["peer"] / result["ours"], target)


def permutations(board: Board, n: int, large: int) -> None:
    """An epoch, the first item, and the item after a resume."""
    source, huge = numbers(n), numbers(large)
    board.compare(
        f"permutation epoch of {n:,}",
        lambda: drain(Permute(source, seed=1, epochs=None), n),
        ("drain", "permutation", n),
        count=n,
        items=n,
        target=50,
    )
    board.compare(
        f"first item of a permutation of {large:,}",
        one(lambda: Permute(huge, seed=1), 0),
        ("first", "permutation", large),
        target=1000,
    )
    board.compare(
        f"resume at 90 % of {n:,}",
        one(lambda: Permute(source, seed=1), n * 9 // 10),
        ("resume", "permutation", n),
        count=n * 9 // 10,
        target=1000,
    )


def shuffles(board: Board, n: int) -> None:
    """Shuffles of nearby items, with small and large buffers."""
    source = numbers(n)
    for size in BUFFERS:
        board.compare(
            f"reservoir shuffle, {size:,}",
            lambda size=size: drain(ReservoirShuffle(source, size=size), n),  # type: ignore[misc]
            ("drain", "reservoir", n, size),
            items=n,
            target=50,
        )
        board.compare(
            f"blockwise shuffle, {size:,}",
            lambda size=size: drain(BlockShuffle(source, size=size), n),  # type: ignore[misc]
            ("drain", "blockwise", n, size),
            items=n,
            target=15,
        )
        board.compare(
            f"overlapping shuffle, {size:,} (peer: reservoir)",
            lambda size=size: drain(OverlapShuffle(source, size=size), n),  # type: ignore[misc]
            ("drain", "reservoir", n, size),
            items=n,
        )
        board.compare(
            f"reservoir shuffle, {size:,}: resume at 90 %",
            one(lambda size=size: ReservoirShuffle(source, size=size), n * 9 // 10 - size),  # type: ignore[misc]
            ("resume", "reservoir", n, size),
            count=n * 9 // 10 - size,
        )


def buckets(board: Board, n: int) -> None:
    """Batches of similar lengths."""
    keys = (np.arange(n) * 2654435761 % 2**32) * 100 // 2**32 + 1
    source = ArraySource({"k": keys})

    def make() -> BucketBatch:
        return BucketBatch(source, read_ahead=READ_AHEAD, key="k", budget=BUDGET, seed=1)

    peer = ("drain", "bucketed", n, READ_AHEAD, BUDGET)
    board.compare(
        "bucketed batches, a window at a time",
        lambda: drain_batches(make()),
        peer,
        items=n,
        target=20,
    )
    board.compare(
        "bucketed batches, one at a time", lambda: drain_single_batches(make()), peer, items=n
    )


def items(board: Board, n: int) -> None:
    """Our items by the peer's names, against the peer's."""
    with worker(sys.executable, "core.compat.infinibatch") as ours:
        assert ours is not None
        for text, theirs, count in (
            ("permutation epoch", ("permutation", n), n),
            ("permutation, map, batches of 128", ("mapped", n, BATCH), n // BATCH),
            ("reservoir shuffle of 1,000", ("reservoir", n, 1_000), None),
            ("blockwise shuffle of 1,000", ("blockwise", n, 1_000), None),
            ("bucketed batches", ("bucketed", n, READ_AHEAD, BUDGET), None),
        ):
            contests = {"ours": ours.contest("drain", *theirs, count=count)}
            if board.peer is not None:
                contests["peer"] = board.peer.contest("drain", *theirs, count=count)
            result = medians(contests, board.rounds)
            speed = f"{n / result['ours'] / 1e6:.2f} M/s"
            if board.peer is None:
                print(f"{'item by item: ' + text:<62}{speed:>12}", flush=True)
            else:
                line(f"item by item: {text} ({speed})", result["peer"] / result["ours"], 0.7)


def checkpoints(board: Board, n: int) -> None:
    """Bytes of a checkpoint half way: ours as JSON, the peer's as it says to store them."""
    source = numbers(n)
    stages: dict[str, Stage] = {"permutation": Permute(source, seed=1)}
    stages |= {f"reservoir {b}": ReservoirShuffle(source, size=b) for b in BUFFERS}
    for name, stage in stages.items():
        reader = in_order(stage)
        own = len(json.dumps(reader.skip(reader.initial, n // 2)))
        text = f"checkpoint of a {name}: {own} bytes"
        if board.peer is None:
            print(text, flush=True)
            continue
        kind, *size = name.split()
        theirs = board.peer.ask("size", kind, n, *map(int, size), count=n // 2)
        line(f"{text} against {theirs:.0f}", theirs / own)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = os.environ.get("THALWEG_INFINIBATCH_PYTHON")
    parser.add_argument("--infinibatch", metavar="PY", default=known)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=1_000_000, help="items of most contests")
    parser.add_argument("--large", type=int, default=10_000_000, help="items before the first")
    parser.add_argument(
        "--only", choices=("permutations", "shuffles", "buckets", "items", "checkpoints")
    )
    args = parser.parse_args()
    warm_up()
    with worker(args.infinibatch, "infinibatch") as peer:
        board = Board(peer, args.rounds)
        parts: dict[str, Callable[[], None]] = {
            "permutations": lambda: permutations(board, args.n, args.large),
            "shuffles": lambda: shuffles(board, args.n),
            "buckets": lambda: buckets(board, args.n),
            "items": lambda: items(board, args.n),
            "checkpoints": lambda: checkpoints(board, args.n),
        }
        for name, run in parts.items():
            if args.only in {None, name}:
                run()


if __name__ == "__main__":
    main()
