"""Compiles every kernel by using it on a few bytes, and publishes the build.

The work is a list of tasks, most of which come from the tables of formats and stages: a new
format or stage is warmed up because its row says how. Compiling takes some 65 seconds of one
core, so where another process can be had it takes its share::

    this process    |-- losses --------------------|-- stage scan --|-- load all, publish
    another process |-- ledgers --|-- summaries --|-- tiles --| ... |

Each takes the next task when it has done one, the longest first. Two threads would not do:
compilers hold a lock. Kernels that two tasks call at the same time are compiled twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ._jit import is_build_published, publish
from .iterate.base import Indexed, in_order
from .iterate.sources import CounterSource
from .losses.inputs import ReturnPeriods
from .losses.warm import use_all_losses, use_all_summaries, use_ledgers, use_tables
from .pipelines.operations import OPERATIONS
from .pipelines.spec import parse_spec
from .pipelines.stage import BuildContext, Operation, Sample, StageSpec
from .portfolio._kernels.beta import beta_losses
from .portfolio.combining import Subject
from .portfolio.contributions import contribute
from .portfolio.curves import Question, roll_up
from .portfolio.inuring import run_programme
from .portfolio.joining import Member
from .portfolio.losses import Calendar, LossTable, OccurrenceLosses, Occurrences
from .portfolio.programme import parse_programme
from .portfolio.tails import Aim
from .portfolio.uncertainty import Doubt, bands
from .rng.keys import SMALL, Permutation, below, bits, derive, uniform
from .tiles._kernels.correct import are_delivered, copy, correct, farthest
from .tiles.formats import FORMATS, Format
from .tiles.packing import Decoder
from .tiles.reader import FAST_OUT, FAST_STORED
from .tiles.reduce import Reducer, parse_reduction
from .tiles.shuffled import Shuffled, count_keys

Claim = Callable[[int], Iterable[int]]
"""Given a number of tasks, yields those that this process is to do, and ends when all are done."""


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work."""

    name: str
    use: Callable[[], None]


def tasks() -> list[Task]:
    """All parts of the work, the longest first."""
    listed = [
        # Of both widths by one process, as they share kernels.
        Task("losses", use_all_losses),
        Task("ledgers", use_ledgers),
        Task("summaries", use_all_summaries),
        Task("roll-ups", use_roll_ups),
        Task("tiles", use_reading),
        Task("reductions", use_reductions),
        Task("random numbers", use_random_numbers),
        Task("tables", use_tables),
        Task("layers", use_layers),
        Task("event loss tables", use_event_loss_tables),
    ]
    listed += [
        Task(f"format {form.name}", partial(use_format, form))
        for form in FORMATS.values()
        if form.decoders
    ]
    listed += [
        Task(f"stage {row.name}", partial(use_operation, row))
        for row in OPERATIONS.values()
        if row.samples
    ]
    return listed


def warm_up(claim: Claim | None = None) -> dict[str, float]:
    """Compile or load every kernel; return the seconds each task took here.

    After a first call on a machine the kernels are cached, where that is possible, and later
    processes load them in less than a second.

    Args:
        claim: shares the work with another process, where it has to be done.
    """
    listed = tasks()
    seconds = {task.name: 0.0 for task in listed}
    if claim is not None and not is_build_published():
        for number in claim(len(listed)):
            seconds[listed[number].name] += _timed(listed[number])
    for task in listed:
        seconds[task.name] += _timed(task)
    publish()
    return seconds


def _timed(task: Task) -> float:
    begin = time.perf_counter()
    task.use()
    return time.perf_counter() - begin


_FEW = 8


def use_random_numbers() -> None:
    """Draw and permute a few numbers."""
    key = derive(0)
    indices = np.arange(_FEW, dtype=np.uint64)
    bits(key, indices)
    uniform(key, indices)
    below(key, indices, _FEW)
    for n in (_FEW, SMALL + 1):
        order = Permutation(n, key)
        order.inverse(order.at(np.arange(_FEW)))


def use_roll_ups() -> None:
    """Ask about two blocks of an event that happens twice, with losses of both widths."""
    for dtype in (np.float32, np.float64):
        subject = Subject([_member(np.ones(3, dtype))], 2)
        for _ in roll_up(subject, Question(("aal", "ept"), ReturnPeriods(np.ones(1, np.int32)))):
            """Ignore the rows."""
    subject.distinct_cells(0)
    whole = subject.whole().occurrence_losses()
    contribute(subject, whole, Aim((1,), leave_one_out=True, close=1e-9))
    for _ in bands(subject, Doubt((1,), replicates=100)):
        """Ignore the rows."""


def _member(losses: np.ndarray) -> Member:
    one, ids = np.ones(1, np.int32), np.arange(1, 3, dtype=np.int32)
    places = np.array([0, 2])
    counts = np.array([2, 1], np.int32)
    samples = np.array([0, 1, 1], np.int32)
    table = LossTable(one, np.array([0, 2]), ids, places, places, counts, samples, losses)
    twice = np.ones(2, np.int32)
    calendar = Calendar(1, Occurrences(twice, twice, np.zeros(2, np.int64)), np.zeros(0))
    return Member(table, calendar, ids, ids - ids[0], 1)


def use_layers() -> None:
    """Run a layer with reinstatements, and one whose hours clause the cedant reads."""
    one = np.ones(1, np.int32)
    dates = np.zeros(1, np.int64)
    calendar = Calendar(1, Occurrences(one, one, dates), np.zeros(0))
    subject = OccurrenceLosses(np.array([0, 1]), one, one, one - one, np.ones(1))
    terms = {"ReinsType": "CXL", "OccLimit": 1}
    layers = [
        {**terms, "ReinsNumber": 1, "Reinstatement": 1},
        {**terms, "ReinsNumber": 2, "HoursClause": {"Hours": 72, "Start": "cedant"}},
    ]
    programme = parse_programme({"layers": [{**layer, "CededPercent": 0.5} for layer in layers]})
    recoveries = run_programme(programme, subject, calendar, 1)
    recoveries.reinstatement_premiums(0)
    recoveries.results()


def use_event_loss_tables() -> None:
    """Draw a loss."""
    beta_losses(np.ones(1), np.ones(1), np.ones(1), np.ones(1), np.empty(1))


_SHAPE = (2, 3, 5)
_REDUCTIONS = ({"op": "sum"}, {"op": "std"}, {"op": "std", "over": "pixels"}, {"op": "com"})


def use_reading() -> None:
    """Locate, copy, convert and correct a few values of every dtype that has kernels."""
    frames, rows, columns = _SHAPE
    starts = np.arange(frames, dtype=np.int64) * rows * columns
    for stored in FAST_STORED:
        values = np.zeros(frames * rows * columns, stored)
        values.flags.writeable = False
        for dtype in FAST_OUT:
            out = np.zeros(_SHAPE, dtype)
            dark, gain = np.zeros(_SHAPE[1:], dtype), np.ones(_SHAPE[1:], dtype)
            copy(values, starts, columns, out)
            correct(values, starts, columns, dark, gain, out)
    octets = np.zeros(frames * rows * columns, np.uint8)
    octets.flags.writeable = False
    copy(octets, starts, columns, np.zeros(_SHAPE, np.uint8))
    Shuffled.of(0, 0, frames).box((0,), (frames,))
    count_keys(np.uint64(0), 0, frames, np.uint64(63), np.zeros(2, np.int64))
    farthest(starts)
    are_delivered(np.ones(1, np.int32), starts, 12, 1)


def use_reductions() -> None:
    """Run each reduction kernel on a few frames."""
    for code in ("f4", "f8"):
        for spec in _REDUCTIONS:
            reducer = Reducer(parse_reduction(spec, _SHAPE[1:]), _SHAPE[1:], np.dtype(code))
            reducer.partial(np.ones(_SHAPE, code))


def use_format(form: Format) -> None:
    """Decode a frame of zeros with each decoder of a format."""
    for decoder in form.decoders:
        use_decoder(decoder)


def use_decoder(decoder: Decoder) -> None:
    """Decode a frame of zeros, if the decoder has a sample shape."""
    shape = decoder.sample_shape
    if shape is not None:
        size = decoder.frame_bytes(shape)
        out = np.empty((1, shape[0] * shape[1]), decoder.dtype)
        decoder.decode(np.zeros(size, np.uint8), size, out, shape)


_ITEMS_READ = 8


def use_operation(operation: Operation) -> None:
    """Build every sample of a stage, read its first items, and resume after them."""
    for sample in operation.samples:
        spec = _parsed(operation, sample)
        source = CounterSource(sample.items)
        if operation.make_batches is not None:
            batches = operation.make_batches(spec, source, ())
            batches.next_batch(batches.initial)
        elif operation.make is not None:
            context = BuildContext(spec, (), _no_source, inner=source)
            reader = in_order(operation.make(context))
            _, state = reader.take(reader.initial, _ITEMS_READ)
            in_order(operation.make(context)).take(state, _ITEMS_READ)


def _parsed(operation: Operation, sample: Sample) -> StageSpec:
    stage = {"op": operation.name, **sample.options}
    return parse_spec({"stages": [{"op": "source", "dataset": "none"}, stage]}).stages[1]


def _no_source(dataset: str, _options: Mapping[str, Any]) -> Indexed:
    raise KeyError(dataset)
