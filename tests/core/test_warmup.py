"""The warm-up compiles everything: work of any kind then finds its kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import warmup
from core.pipelines.operations import OPERATIONS
from core.tiles.formats import FORMATS
from core.warmup import Task, tasks, warm_up

pytestmark = pytest.mark.once
needs_jit = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled in this mode"
)

LOSSES = """
import numpy as np
from app.losses.tables import FORMATS, table_encoder
from core.errors import CoreError
from core.losses.analysis import Analysis
from core.losses.inputs import Occurrence
from core.losses.policy import Policy
from core.losses.reader import LossReader
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream
from core.losses.format import Kind
from core.losses.inputs import SummaryXref
from core.losses.summaries import Summariser, SummarySets

for width in (4, 8):
    for kind in (Kind.SUMMARY, Kind.GUL):
        spec = SampleSpec(events=4, summaries=3, samples=30, kind=kind, float_width=width)
        data = b"".join(generate_stream(spec))
        names = list(REPORTS) if kind is Kind.SUMMARY else ["events"]
        options = {}
        if len(names) > 1:
            once = np.ones(1, np.int32)
            occurrence = Occurrence(1, once, once, np.zeros(1, np.int64))
            options = {"quantiles": np.array([0.5], np.float32), "occurrence": occurrence}
        for nan in ("error", "drop"):
            policy = Policy(float_width=width, nan=nan, sample_order="any")
            def sink(name, rows):
                for form in FORMATS:
                    table_encoder(form, REPORTS[name], width).encode(rows)
            for pieces in ([data], [data[:99], data[99:]], [data[:-1]], [data, b"junk" * 9]):
                analysis = Analysis(names, sink, policy=policy, **options)
                try:
                    for piece in pieces:
                        analysis.receive(bytearray(piece))
                        analysis.receive(b"")
                    state = analysis.getstate()
                    Analysis(names, sink, policy=policy, **options).setstate(state)
                    analysis.close()
                except CoreError:
                    pass
                reader = LossReader(policy)
                reader.receive(data)
                reader.drain()
        ids = np.arange(1, 4, dtype=np.int32)
        for zeros in (False, True):
            sets = SummarySets(SummaryXref(ids, ids, ids // 4 + 1, None))
            summariser = Summariser(
                sets, lambda *_: None, policy=Policy(float_width=width), zeros=zeros
            )
            try:
                summariser.receive(data)
                summariser.close()
            except CoreError:
                pass
        # Losses of the other width than the policy's: the error looks at both.
        reader = LossReader(Policy(float_width=12 - width))
        reader.receive(data)
        try:
            reader.drain()
        except CoreError:
            pass
"""

PIPELINES = """
import random
import numpy as np
from core.iterate.sources import CounterSource
from core.rng import Permutation, below, derive
from tests.core.pipelines_made import built, built_over, random_stages

rng = random.Random(3)
chains = [built(random_stages(rng)) for _ in range(150)]
source, batch = {"op": "source", "dataset": "a"}, {"op": "batch", "size": 64}
for n in (5, 1000, 70_000, 300_000):
    for stage in (
        {"op": "permute", "epochs": 2},
        {"op": "shuffle", "kind": "block", "size": 1000},
        {"op": "shuffle", "kind": "overlap", "size": 70_000},
        {"op": "shuffle", "kind": "block", "size": 70_000},
        {"op": "shuffle", "kind": "reservoir", "size": 300},
        {"op": "split", "part": "train"},
        {"op": "split", "part": "train", "key": "index"},
        {"op": "scan", "fn": "ema", "field": "index", "args": {"alpha": 0.5}},
    ):
        chains.append(built_over([source, stage, batch], CounterSource(n)))
    for padded in (True, False):
        bucket = {"op": "bucket_batch", "read_ahead": 99, "key": "index", "budget": 999}
        chains.append(built_over([source, bucket | {"padded": padded}], CounterSource(n)))
    order = Permutation(n, derive(1))
    order.inverse(order.at(np.arange(5)))
for chain in chains:
    state = chain.initial
    for _ in range(4):
        step = chain.step(state)
        if step is None:
            break
        state = step.state
"""

TILES = """
import numpy as np
from core.errors import CoreError
from core.tiles.corrections import Corrections
from core.tiles.frames import FileFrames
from core.tiles.plan import make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import Hints
from core.tiles.reduce import Reducer, parse_reduction
from core.tiles.view import parse_view
from tests.core.tiles import writers
from tests.core.tiles.files import Ranges, read, tiles_of
from tests.core.tiles.test_detect import SETS

kinds = "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8 >u2 >i4 >f4 >f8".split()
views = ({}, {"dtype": "f4"}, {"dtype": "f8"}, {"bin_sig": 2}, {"sig": {"box": [[1, 3], [0, 4]]}})
for kind in kinds:
    files = {"a.npy": writers.npy(np.ones((2, 3, 4, 6), kind))}
    recording = read(files)
    for spec in views:
        for dark in (None, np.ones((4, 6))):
            try:
                plan = make_plan(recording, parse_view(spec))
                corrections = Corrections((4, 6), dark, dark)
                frames = FileFrames(recording, Ranges(list(files.values())))
                reader = TileReader(plan, recording, frames, corrections)
                for k in range(plan.tiles):
                    reader.read(plan.tile(k))
            except CoreError:
                pass
for name, files in SETS.items():
    try:
        recording = read(files)
        tiles_of(files, recording)
    except CoreError:
        pass
for code in ("f4", "f8"):
    for op in ("sum", "mean", "std", "min", "max", "com"):
        for over in ("frames", "pixels"):
            try:
                spec = parse_reduction({"op": op, "over": over}, (4, 6))
                Reducer(spec, (4, 6), np.dtype(code)).partial(np.ones((2, 4, 6), code))
            except CoreError:
                pass
"""

CHECK = """
from core import _jit
missed = {name: k.stats.cache_misses for name, k in _jit.KERNELS.items() if k.stats.cache_misses}
assert not missed, missed
found = sum(sum(k.stats.cache_hits.values()) for k in _jit.KERNELS.values())
print(found, "kernels found")
"""


@needs_jit
@pytest.mark.parametrize("work", [LOSSES, PIPELINES, TILES], ids=["losses", "pipelines", "tiles"])
def test_nothing_is_compiled_after_a_warm_up(work: str) -> None:
    warm_up()
    ready = "from core import _jit\nassert _jit.is_build_published()\n"
    done = subprocess.run(
        [sys.executable, "-c", ready + work + CHECK],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 5


def test_it_tells_how_long_each_task_took() -> None:
    seconds = warm_up()
    assert list(seconds) == [task.name for task in tasks()]
    assert all(value >= 0 for value in seconds.values())


def test_the_tasks_come_from_the_rows() -> None:
    names = [task.name for task in tasks()]
    assert len(set(names)) == len(names)
    assert {f"format {form.name}" for form in FORMATS.values() if form.decoders} <= set(names)
    assert {f"stage {row.name}" for row in OPERATIONS.values() if row.samples} <= set(names)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in order, in a warm-up of four tasks without a published build."""
    done: list[str] = []
    listed = [Task(name, lambda name=name: done.append(name)) for name in "abcd"]  # type: ignore[misc]
    monkeypatch.setattr(warmup, "tasks", lambda: listed)
    monkeypatch.setattr(warmup, "is_build_published", lambda: False)
    monkeypatch.setattr(warmup, "publish", lambda: done.append("publish"))
    return done


def test_another_process_takes_its_share_of_the_tasks(log: list[str]) -> None:
    def claim(count: int) -> Iterator[int]:
        assert count == 4
        yield from (0, 2)
        log.append("all are done")

    seconds = warm_up(claim)
    # After that every task finds its kernels, or compiles those that the other has not.
    assert log == ["a", "c", "all are done", "a", "b", "c", "d", "publish"]
    assert sorted(seconds) == ["a", "b", "c", "d"]


def test_a_published_build_needs_no_other_process(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "is_build_published", lambda: True)

    def claim(_count: int) -> Iterator[int]:
        raise AssertionError("another process was started")

    warm_up(claim)
    assert log == ["a", "b", "c", "d", "publish"]
