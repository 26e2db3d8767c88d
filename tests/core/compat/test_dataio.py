"""Checklist of Caffe2's readers and writers, and their flaws beaten."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from core.compat.dataio import (
    CompositeReader,
    CompositeReaderBuilder,
    CounterReader,
    CountUntil,
    ExecutionStep,
    Hooks,
    Pipe,
    PipedReaderBuilder,
    Reader,
    ReaderBuilder,
    ReaderWithDelay,
    ReaderWithLimit,
    ReaderWithLimitBase,
    ReaderWithTimeLimit,
    StopFlag,
    Writer,
)
from core.compat.errors import CheckpointError
from core.compat.schema import Field, Record, Struct
from core.errors import StateError

LABEL = Struct(("label", np.int64))


class Numbers(Reader):
    """0 to n - 1; every task begins anew."""

    def __init__(self, n: int, schema: Field | None = LABEL) -> None:
        super().__init__(schema)
        self.n = n
        self.next = 0
        self.lock = threading.Lock()

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        del finish
        init.append(self.reset)

    def read(self) -> tuple[bool, tuple[Any, ...]]:
        with self.lock:
            if self.next >= self.n:
                return True, ()
            self.next += 1
            return False, (self.next - 1,)

    def reset(self) -> None:
        self.next = 0


class Kept(Writer):
    """A list of what was written."""

    def __init__(self) -> None:
        self.labels: list[int] = []
        self.committed = 0

    def write(self, fields: tuple[Any, ...]) -> None:
        self.labels.append(fields[0])

    def commit(self) -> None:
        self.committed += 1


def run(reader: Reader, threads: int = 8) -> list[int]:
    kept = Kept()
    step, _ = reader.execution_step()
    step.add(kept).run(threads)
    return sorted(kept.labels)


def test_a_reader_has_a_schema_or_says_that_it_has_not() -> None:
    with pytest.raises(AssertionError, match="has to be a Field"):
        Reader(schema=("label", np.int64))  # type: ignore[arg-type]
    reader = Reader()
    with pytest.raises(AssertionError, match=r"Schema not provided for this reader\."):
        reader.schema()
    reader._set_schema(LABEL)
    assert reader.schema() is LABEL


def test_a_reader_does_nothing_by_itself() -> None:
    reader = Reader()
    init, finish = Hooks(), Hooks()
    reader.setup_ex(init, finish)
    assert (init, finish) == ([], [])
    for call, words in (
        (reader.read, "must implement `read`"),
        (reader.reset, "This reader cannot be resetted"),
        (reader.getstate, "no checkpoints"),
        (lambda: reader.setstate({}), "no checkpoints"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            call()


def test_records_have_the_schema_if_it_is_known() -> None:
    for stop, record in (
        Numbers(3).read_record(),
        Numbers(3).read_record_ex(Hooks(), Hooks())(),
    ):
        assert not stop
        assert isinstance(record, Record)
        assert record["label"] == 0
    assert Numbers(3, None).read_record() == (False, (0,))
    assert Numbers(0).read_record() == (True, ())


def test_a_step_reads_to_the_end_and_is_called_after_its_reader() -> None:
    """Flaw beaten: without a name the peer's step is called None_step."""
    step, current = Numbers(5).execution_step()
    assert step.name == "reader_step"
    assert Numbers(5).execution_step("mine")[0].name == "mine_step"
    seen = []
    assert step.add(lambda record: seen.append((record["label"], current()["label"]))).run() == 5
    assert seen == [(k, k) for k in range(5)]
    with pytest.raises(ValueError, match="num_threads is 0"):
        step.run(0)


@pytest.mark.parametrize("as_event", [True, False])
def test_a_step_ends_from_outside_and_loses_no_record(as_event: bool) -> None:
    """Flaw beaten: the peer reads a record, then sees that it is to stop, and drops it."""
    event = threading.Event()
    reader, kept = Numbers(100), Kept()
    step, _ = reader.execution_step(external_should_stop=event if as_event else event.is_set)

    def stop_at_ten(record: Record) -> None:
        if record["label"] == 9:
            event.set()

    assert step.add(kept).add(stop_at_ten).run() == 10
    assert kept.labels == list(range(10))
    assert reader.next == 10
    assert kept.committed == 1


def test_hooks_run_once_per_task_and_once_per_thread() -> None:
    """Checklist: global counters once, those of threads per thread, at both ends."""
    calls: list[str] = []

    class Hooked(Numbers):
        def setup_ex(self, init: Hooks, finish: Hooks) -> None:
            super().setup_ex(init, finish)
            init.append(lambda: calls.append("init"))
            finish.append(lambda: calls.append("finish"))

        def read_ex(self, local_init: Hooks, local_finish: Hooks) -> Any:  # noqa: ANN401
            counts: list[int] = []
            local_init.append(lambda: calls.append("local init"))
            local_finish.append(lambda: calls.append("local finish"))
            local_finish.append(lambda: totals.append(len(counts)))

            def read() -> tuple[bool, tuple[Any, ...]]:
                result = self.read()
                if not result[0]:
                    counts.append(1)
                return result

            return read

    totals: list[int] = []
    step, _ = Hooked(100).execution_step()
    assert step.run(8) == 100
    assert (calls[0], calls[-1]) == ("init", "finish")
    assert [calls.count(name) for name in ("init", "finish")] == [1, 1]
    assert [calls.count(name) for name in ("local init", "local finish")] == [8, 8]
    assert sum(totals) == 100


def test_an_exception_ends_all_threads_and_comes_out_behind_the_finishing_hooks() -> None:
    kept = Kept()

    def fail(record: Record) -> None:
        if record["label"] == 20:
            raise ValueError("no twenty")

    step, _ = CounterReader().execution_step()  # without end
    step.add(kept).add(lambda record: fail(Record(LABEL, record.values)))
    with pytest.raises(ValueError, match="no twenty"):
        step.run(4)
    assert kept.committed == 1


def test_a_writer_writes_records_and_commits_once() -> None:
    writer = Kept()
    assert writer.schema() is None
    writer.write_record((5,))
    assert writer.schema() is None
    writer.write_record(Record(LABEL, [6]))
    assert writer.schema() is LABEL
    assert writer.labels == [5, 6]
    write, flag = writer.write_record_ex(Hooks(), Hooks())
    write((7,))
    assert writer.labels == [5, 6, 7]
    assert flag.name == "dequeue_status"
    own = StopFlag("mine")
    assert writer.write_record_ex(Hooks(), Hooks(), own)[1] is own
    finish = Hooks()
    writer.setup_ex(Hooks(), finish)
    finish.run()
    assert writer.committed == 1
    with pytest.raises(NotImplementedError, match="must implement write"):
        Writer().write(())
    Writer().commit()


def test_a_writer_that_takes_no_more_ends_the_task() -> None:
    class Full(Kept):
        def write_ex(
            self, local_init: Hooks, local_finish: Hooks, stop: StopFlag
        ) -> Callable[[Any], None]:
            del local_init, local_finish

            def write(record: Record) -> None:
                self.write_record(record)
                if len(self.labels) == 4:
                    stop.set()

            return write

    writer = Full()
    step, _ = Numbers(100).execution_step()
    assert step.add(writer).run() == 4


def test_a_counter_counts_once_over_threads_and_goes_on() -> None:
    reader = CounterReader()
    assert reader.schema() == Struct(("iter", np.int64))
    kept: list[int] = []
    for total in (1000, 1500):
        limited = ReaderWithLimit(reader, total - len(kept))
        step, _ = limited.execution_step()
        step.add(lambda record: kept.append(record["iter"])).run(8)
        assert sorted(kept) == list(range(total))
    assert reader.read() == (False, (1500,))


@pytest.mark.parametrize(
    ("limit", "read", "finished"),
    [(None, 100, True), (0, 0, False), (10, 10, False), (110, 100, True), (100, 100, False)],
)
@pytest.mark.parametrize("threads", [1, 8])
def test_a_limit_is_exact_over_threads_and_tells_whether_the_data_ended(
    limit: int | None, read: int, finished: bool, threads: int
) -> None:
    """Checklist: None, 0, 10, 110 of 100; on an exact tie data_finished is False, as there."""
    reader = ReaderWithLimit(Numbers(100), num_iter=limit)
    assert reader.data_finished() is False
    assert run(reader, threads) == list(range(read))
    assert reader.data_finished() is finished
    # Checklist: the same plan again begins limit and data_finished anew.
    assert run(reader, threads) == list(range(read))
    assert reader.data_finished() is finished


def test_the_default_limit_is_one_and_negative_ones_are_refused() -> None:
    """Flaw beaten: documented as "no limit", read as nothing, or failing at run time."""
    assert run(ReaderWithLimit(Numbers(9))) == [0]
    for make in (
        lambda: ReaderWithLimit(Numbers(9), -1),
        lambda: ReaderWithTimeLimit(Numbers(9), float("nan")),
        lambda: ReaderWithTimeLimit(Numbers(9), float("-inf")),
        lambda: ReaderWithDelay(Numbers(9), -1),
    ):
        with pytest.raises(ValueError, match=r"is -|is nan"):
            make()
    wrong: Any
    for wrong in (1.5, "3", True, [3]):
        with pytest.raises(ValueError, match="num_iter is"):
            CountUntil(wrong)
    numpys: Any = np.int32(3)
    assert run(ReaderWithLimit(Numbers(9), numpys)) == [0, 1, 2]
    with pytest.raises(ValueError, match="duration is '3'"):
        ReaderWithTimeLimit(Numbers(9), "3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 is no writer, and no function"):
        CountUntil(3).execution_step()[0].add(3)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="0 readers"):
        CompositeReader([], [])


def test_a_limit_learns_the_schema_when_the_reader_does() -> None:
    class Late(Numbers):
        def read_ex(self, local_init: Hooks, local_finish: Hooks) -> Any:  # noqa: ANN401
            self._set_schema(LABEL)
            return super().read_ex(local_init, local_finish)

    for make in (ReaderWithLimit, lambda inner: ReaderWithDelay(inner, 0)):
        reader = make(Late(3, None))
        with pytest.raises(AssertionError):
            reader.schema()
        reader.read()
        assert reader.schema() is LABEL


def test_limits_of_ones_own_say_what_they_need_and_when_they_are_reached() -> None:
    class Even(ReaderWithLimitBase):
        asked = 0

        def setup_limiter(self, init: Hooks, finish: Hooks) -> None:
            del finish
            init.append(lambda: setattr(self, "asked", 0))

        def check_limiter_condition(self) -> bool:
            self.asked += 1
            return self.asked > 3

    assert run(Even(Numbers(9)), 1) == [0, 1, 2]
    base = ReaderWithLimitBase(Numbers(1))
    with pytest.raises(NotImplementedError, match="setup_limiter"):
        base.setup_ex(Hooks(), Hooks())
    with pytest.raises(NotImplementedError, match="check_limiter_condition"):
        base.read()


def test_count_until() -> None:
    reader = CountUntil(5)
    kept: list[int] = []
    step, _ = reader.execution_step()
    step.add(lambda record: kept.append(record["iter"])).run(3)
    assert sorted(kept) == [0, 1, 2, 3, 4]
    assert reader.data_finished() is False


def read_by(step: ExecutionStep, numbers: list[int]) -> list[int]:
    """What a step that appends to a list reads when it runs once more."""
    numbers.clear()
    step.run(3)
    return sorted(numbers)


def counting_step(reader: Reader) -> tuple[ExecutionStep, list[int]]:
    numbers: list[int] = []
    step, _ = reader.execution_step()
    step.add(lambda record: numbers.append(record["iter"]))
    return step, numbers


def test_a_plan_that_runs_again_counts_from_0_and_another_plan_goes_on() -> None:
    """As the peer: the plan that set the reader up first creates the counter in every run."""
    reader = CountUntil(5)
    first, second = counting_step(reader), counting_step(reader)
    assert read_by(*first) == [0, 1, 2, 3, 4]
    assert read_by(*first) == [0, 1, 2, 3, 4]
    assert read_by(*second) == [5, 6, 7, 8, 9]
    assert read_by(*second) == [10, 11, 12, 13, 14]
    assert read_by(*first) == [0, 1, 2, 3, 4]


def test_a_counter_that_was_restored_keeps_its_place_in_one_run() -> None:
    reader = CounterReader()
    step, numbers = counting_step(ReaderWithLimit(reader, 2))
    reader.setstate({"reader": "CounterReader", "version": 1, "next": 7})
    assert read_by(step, numbers) == [7, 8]
    assert read_by(step, numbers) == [0, 1]


def test_a_writer_that_is_added_later_is_set_up_too() -> None:
    step, _ = Numbers(3).execution_step()
    early, late = Kept(), Kept()
    step.add(early).run()
    step.add(late).run()
    assert (early.labels, early.committed) == ([0, 1, 2] * 2, 2)
    assert (late.labels, late.committed) == ([0, 1, 2], 1)


def test_time_is_asked_before_each_record_from_the_beginning_of_the_task() -> None:
    now = [0]

    def clock() -> int:
        return now[0]

    def pass_time(_: object) -> None:
        now[0] += 300_000_000

    reader = ReaderWithTimeLimit(Numbers(100), 1.0, clock)
    now[0] = 77_000_000_000  # nothing runs before the task
    for _ in range(2):
        step, _ = reader.execution_step()
        # 0, 0.3, 0.6 and 0.9 s are below 1 s; the record read then ends 0.2 s late.
        assert step.add(pass_time).run() == 4
        assert reader.data_finished() is False
    assert ReaderWithTimeLimit(Numbers(3), 1.0).read() == (False, (0,))


@pytest.mark.parametrize("duration", [None, 0, -0.5, -1])
def test_no_duration_is_no_limit(duration: float | None) -> None:
    """Flaws beaten: the peer's flag was then called 'None', and a negative one crashed."""
    reader = ReaderWithTimeLimit(Numbers(50), duration)
    assert run(reader) == list(range(50))
    assert reader.data_finished() is True


def test_real_time_ends_a_task_in_several_threads() -> None:
    reader = ReaderWithTimeLimit(ReaderWithDelay(CounterReader(), 0.01), 0.1)
    step, _ = reader.execution_step()
    started = time.monotonic()
    assert 1 <= step.run(4) <= 60
    assert time.monotonic() - started < 5
    assert reader.data_finished() is False


def test_a_delay_comes_before_each_record_of_any_reader() -> None:
    """Flaw beaten: the peer's could not wrap counters and limits."""
    slept: list[float] = []
    reader = ReaderWithDelay(CountUntil(3), 0.25, slept.append)
    init, finish = Hooks(), Hooks()
    reader.setup_ex(init, finish)
    init.run()
    assert [reader.read() for _ in range(4)] == [(False, (k,)) for k in range(3)] + [(True, ())]
    assert slept == [0.25] * 4
    assert reader.schema() == Struct(("iter", np.int64))
    numbers = ReaderWithDelay(Numbers(3), 0)
    numbers.read()
    numbers.reset()
    assert numbers.read() == (False, (0,))


class Builder(ReaderBuilder):
    """Builds readers of numbers, or what it is told to."""

    def __init__(self, n: int, made: Callable[[Reader], Any] = lambda reader: reader) -> None:
        self.n = n
        self.made = made
        self.setups: list[dict[str, Any]] = []

    def schema(self) -> Field:
        return LABEL

    def setup(self, **kwargs: Any) -> str:  # noqa: ANN401
        self.setups.append(kwargs)
        return "set up"

    def new_reader(self, **kwargs: Any) -> Any:  # noqa: ANN401
        return self.made(Numbers(kwargs.get("n", self.n)))


class Source(Pipe):
    """A pipe over one reader."""

    def __init__(self, reader: Reader | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.of = reader

    def reader(self) -> Reader:
        self._new_reader(Hooks())
        return self.of  # type: ignore[return-value]


def test_builders_are_abstract() -> None:
    builder = ReaderBuilder()
    for call in (builder.schema, builder.setup, builder.new_reader):
        with pytest.raises(NotImplementedError):
            call()


def test_piped_builders_nest_and_pass_everything_down() -> None:
    seen: list[dict[str, Any]] = []

    def piper(reader: Reader, **kwargs: Any) -> Any:  # noqa: ANN401
        seen.append(kwargs)
        return ReaderWithLimit(reader, 3) if len(seen) % 2 else Source(reader)

    inner = Builder(10)
    builder = PipedReaderBuilder(PipedReaderBuilder(inner, piper), piper)
    assert builder.schema() is LABEL
    assert builder.setup(a=1) == "set up"
    assert inner.setups == [{"a": 1}]
    reader = builder.new_reader(n=7)
    assert isinstance(reader, ReaderWithLimit)
    assert seen == [{"n": 7}, {"n": 7}]
    assert run(reader) == [0, 1, 2]


def test_a_pipe_counts_and_takes_the_first_schema() -> None:
    pipe = Pipe(obj_key="queue")
    pipe.setup(Hooks())
    init = Hooks()
    assert pipe.schema() is None
    pipe._new_writer(None, init)
    pipe._new_writer(LABEL, init)
    pipe._new_writer(Struct(), init)
    pipe._new_reader(init)
    assert (pipe.num_writers(), pipe.num_readers()) == (3, 1)
    assert pipe.schema() is LABEL
    assert init.attributes == {"queue": [pipe] * 4}
    for call in (pipe.reader, pipe.writer):
        with pytest.raises(NotImplementedError):
            call()
    given = Pipe(schema=LABEL)
    given._new_writer(Struct(), init)
    assert given.schema() is LABEL


def test_a_composite_reads_one_record_of_each_by_name() -> None:
    reader = CompositeReader(["a", "b"], [Numbers(4), CounterReader()])
    assert reader.schema() == Struct(("a", LABEL), ("b", Struct(("iter", np.int64))))
    assert reader.schema().field_names() == ["a:label", "b:iter"]
    _, record = reader.read_record()
    assert record["a"] == {"label": 0}
    assert record["b"] == {"iter": 0}
    with pytest.raises(AssertionError, match="1 names for 2 readers"):
        CompositeReader(["a"], [Numbers(4), Numbers(4)])
    with pytest.raises(AssertionError, match="Schema not provided"):
        CompositeReader(["a"], [Numbers(4, None)])


def test_threads_do_not_mix_up_the_records_of_a_composite() -> None:
    reader = CompositeReader(["a", "b"], [Numbers(500), Numbers(500)])
    kept: list[Record] = []
    step, _ = reader.execution_step()
    assert step.add(kept.append).run(8) == 500
    assert all(record["a"] == record["b"] for record in kept)


def test_what_a_composite_has_read_before_one_ended_is_not_lost() -> None:
    """Flaw beaten: the readers before the one that ended had each lost a record."""
    long, short = Numbers(9), Numbers(2)
    reader = CompositeReader(["long", "short"], [long, short])
    assert [reader.read() for _ in range(2)] == [(False, (0, 0)), (False, (1, 1))]
    assert reader.read() == reader.read() == (True, ())
    assert reader.unread == {"long": (2,)}
    assert long.next == 3
    short.n = 3  # more has come
    assert reader.read() == (False, (2, 2))
    assert reader.unread == {}


def test_a_composite_resets_all_and_begins_each_task_anew() -> None:
    reader = CompositeReader(["long", "short"], [Numbers(9), Numbers(2)])
    while not reader.read()[0]:
        pass
    reader.reset()
    assert reader.read() == (False, (0, 0))
    step, _ = reader.execution_step()
    assert (step.run(3), step.run(3)) == (2, 2)


def test_a_composite_builder_joins_readers_and_passes_a_limiter_once() -> None:
    builders = [Builder(5), Builder(6, Source)]
    builder = CompositeReaderBuilder(["a", "b"], builders)
    builder.setup(limiter="one", other=2)
    assert builders[0].setups == [{"limiter": "one", "other": 2}]
    assert builders[1].setups == [{"other": 2}]
    assert builder.schema() == Struct(("a", LABEL), ("b", LABEL))
    reader = builder.new_reader()
    assert isinstance(reader, CompositeReader)
    step, _ = reader.execution_step()
    assert step.run() == 5
    with pytest.raises(AssertionError, match="1 names for 2 builders"):
        CompositeReaderBuilder(["a"], builders)


def test_a_composite_builder_wants_readers() -> None:
    for wrong in (5, Source(), Kept()):

        def made(_: Reader, wrong: object = wrong) -> object:
            return wrong

        builder = CompositeReaderBuilder(["a"], [Builder(1, made)])
        with pytest.raises(ValueError, match="reader must be an instance of Reader or Pipe"):
            builder.new_reader()


def test_a_composite_builder_wants_the_schema_that_was_said() -> None:
    builder = CompositeReaderBuilder(["a"], [Builder(1, lambda _: CounterReader())])
    with pytest.raises(AssertionError, match="other schemas"):
        builder.new_reader()


def test_readers_have_checkpoints_of_a_few_numbers() -> None:
    """Better than the peer, which has none."""

    def make() -> CompositeReader:
        clocked = ReaderWithTimeLimit(CounterReader(), 5.0, lambda: 0)
        delayed = ReaderWithDelay(ReaderWithLimit(CounterReader(), 8), 0)
        return CompositeReader(["a", "b"], [clocked, delayed])

    first = make()
    for k in range(3):
        assert first.read() == (False, (k, k))
    state = json.loads(json.dumps(first.getstate()))
    assert len(json.dumps(state)) < 500
    second = make()
    second.setstate(state)
    kept: list[int] = []
    step, _ = second.execution_step()
    step.add(lambda record: kept.append(record["b"]["iter"])).run()
    assert kept == [3, 4, 5, 6, 7]  # a task goes on with what was left ...
    assert second.unread == {"a": (8,)}
    with pytest.raises(StateError, match=r"records of \['a'\]"):
        second.getstate()
    kept.clear()
    step.run()
    assert kept == list(range(8))  # ... and run again it begins anew, the counters too


def test_time_that_was_used_is_used_after_a_checkpoint() -> None:
    now = [0]
    first = ReaderWithTimeLimit(CounterReader(), 1.0, lambda: now[0])
    first.read()
    now[0] = 900_000_000
    state = first.getstate()
    assert state["used_ns"] == 900_000_000
    second = ReaderWithTimeLimit(CounterReader(), 1.0, lambda: now[0])
    second.setstate(state)
    assert second.read() == (False, (1,))
    now[0] += 100_000_000
    assert second.read() == (True, ())


def test_data_finished_goes_with_a_checkpoint() -> None:
    class Saved(Numbers):
        def getstate(self) -> dict[str, Any]:
            return {"next": self.next}

        def setstate(self, checkpoint: Any) -> None:  # noqa: ANN401
            self.next = checkpoint["next"]

    first = ReaderWithLimit(Saved(3), None)
    run(first)
    second = ReaderWithLimit(Saved(3), None)
    second.setstate(first.getstate())
    assert second.data_finished() is True


@pytest.mark.parametrize(
    "change",
    [
        {"reader": "CounterReader"},
        {"version": 2},
        {"left": -1},
        {"left": 6},
        {"left": None},
        {"left": True},
        {"data_finished": 1},
        {"inner": {}},
        {"inner": {"reader": "CounterReader", "version": 1, "next": 2**63}},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_checkpoint_of_a_reader_is_refused(change: dict[str, Any]) -> None:
    reader = CountUntil(5)
    with pytest.raises(CheckpointError):
        reader.setstate(reader.getstate() | change)
    composite = CompositeReader(["a"], [CounterReader()])
    with pytest.raises(CheckpointError, match="1 readers"):
        composite.setstate(composite.getstate() | {"readers": []})


def test_checkpoints_of_other_limits_and_names_are_refused() -> None:
    unlimited = CountUntil(None)
    unlimited.read()
    state = unlimited.getstate()
    assert state["left"] is None
    CountUntil(None).setstate(state)
    with pytest.raises(CheckpointError, match="left in a checkpoint of ReaderWithLimit is None"):
        CountUntil(5).setstate(state)
    with pytest.raises(CheckpointError, match="left in a checkpoint is 5, and here is no limit"):
        CountUntil(None).setstate(CountUntil(5).getstate())
    with pytest.raises(CheckpointError, match="is 50, not an integer from 0 to 5"):
        CountUntil(5).setstate(CountUntil(50).getstate())
    both = CompositeReader(["a", "b"], [CounterReader(), CounterReader()])
    other = CompositeReader(["b", "a"], [CounterReader(), CounterReader()])
    with pytest.raises(CheckpointError, match=r"has names \['a', 'b'\], but here it is \['b'"):
        other.setstate(both.getstate())
    # Those of earlier releases have no names.
    other.setstate({k: v for k, v in both.getstate().items() if k != "names"})
