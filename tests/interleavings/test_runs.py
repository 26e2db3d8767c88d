"""Runs and uploads: what several do at once, in every order of their calls."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.run_errors import PartitionTakenError
from app.runs.records import RunRecord, StreamRecord
from app.runs.sealing.jobs import Job, Jobs
from app.runs.sealing.sealer import Sealer
from app.runs.store import Change, Runs
from app.runs.streams import Streams
from app.runs.uploads.appending import Appending
from app.state.base import Admit, Record, RecordConflictError, RecordMissingError
from app.state.quotas import AdmittedRecords, refuse
from core.errors import CoreError
from tests.scale import CHANGED, SOAK, THOROUGH

from . import runs_world
from .exploring import Explored
from .pairs import Plan, told
from .run_acts import JOBS, STATES, alone_of_jobs, at_limits, of_jobs, plans, repairs, triples
from .runs_world import Process
from .scheduler import Scheduler

DEATHS = 12
REPAIRS = 15
TRIPLES = 15
PAIRS = 12
LIMITS = 25
ORDERS = 100 if SOAK else 5
"""Drawn orders of three acts."""
MOST = None if SOAK else 15 if CHANGED else 10
"""Executions of two acts."""
MOST_PAIRED = None if SOAK else 30 if CHANGED else 8
"""The same of clients, and drawn ones if there are more."""
MOST_DEAD = 20 if THOROUGH else 10
"""Executions with one death, and drawn ones if there are more."""
FIRST = [(state, act.name) for state, (_, acts) in STATES.items() for act in acts]


@pytest.fixture(scope="module")
def pairs(scheduler: Scheduler) -> Sequence[Plan[Process]]:
    """For tests that change nothing of the service: what one has observed, others know."""
    return plans(scheduler)


@pytest.fixture(scope="module")
def pairs_of_jobs(scheduler: Scheduler) -> Sequence[Plan[Process]]:
    """The same of jobs."""
    return of_jobs(scheduler)


@pytest.fixture(scope="module")
def drawn_triples(scheduler: Scheduler) -> Sequence[Plan[Process]]:
    """The same of three acts, or some of them."""
    return drawn(triples(scheduler), TRIPLES)


def nothing_is_wrong(plan: Plan[Process], explored: Explored) -> None:
    """Fail with the order that is the easiest to follow."""
    shortest = explored.shortest
    assert shortest is None, told(plan, shortest)
    assert explored.executions


def drawn(found: Sequence[Plan[Process]], count: int) -> Sequence[Plan[Process]]:
    """Some of the plans; all of them in a soak."""
    if SOAK or count >= len(found):
        return found
    return random.Random(27).sample(found, count)  # noqa: S311 - no secret


@pytest.mark.parametrize(("state", "first"), FIRST)
def test_two_acts_may_meet_in_any_order(
    scheduler: Scheduler, pairs: Sequence[Plan[Process]], state: str, first: str
) -> None:
    for plan in pairs:
        if (plan.state, plan.acts[0].name) == (state, first):
            nothing_is_wrong(plan, plan.explore_some(scheduler, MOST_PAIRED))


def dies(scheduler: Scheduler, plans: Sequence[Plan[Process]], state: str) -> None:
    """Let each act from a state die at some call, or at each; fail with what is wrong then."""
    for place, plan in enumerate(drawn(plans, DEATHS)):
        if plan.state == state:
            longest = plan.explore(scheduler, most=MOST_DEAD).longest
            points = [(n, k) for n, calls in enumerate(longest) for k in range(calls)]
            for death in points if SOAK else points[place % 7 :: 7][:1]:
                nothing_is_wrong(plan, plan.explore_some(scheduler, MOST_DEAD, dict([death])))


@pytest.mark.parametrize("state", STATES)
def test_a_process_may_die_before_any_call(
    scheduler: Scheduler, pairs: Sequence[Plan[Process]], state: str
) -> None:
    dies(scheduler, pairs, state)


def test_a_process_may_die_at_any_call_on_a_job(scheduler: Scheduler) -> None:
    for plan in of_jobs(scheduler, 1):
        (calls,) = plan.explore(scheduler).longest
        for call in range(calls):
            nothing_is_wrong(plan, plan.explore(scheduler, deaths={0: call}))


@pytest.mark.parametrize("state", JOBS)
def test_a_process_may_die_at_a_job_that_others_are_at(
    scheduler: Scheduler, pairs_of_jobs: Sequence[Plan[Process]], state: str
) -> None:
    dies(scheduler, pairs_of_jobs, state)


def test_a_process_may_die_that_computes_a_suspect_alone(scheduler: Scheduler) -> None:
    for plan in drawn(list(alone_of_jobs(scheduler)), PAIRS):
        nothing_is_wrong(plan, plan.explore(scheduler, MOST))


def test_who_deletes_a_poisoned_run_may_die(scheduler: Scheduler) -> None:
    plan = named(of_jobs(scheduler), "poisoned: work | delete run")
    for calls in range(plan.explore(scheduler).longest[1]):
        nothing_is_wrong(plan, plan.explore(scheduler, deaths={1: calls}))


def test_what_a_death_left_is_removed_while_others_go_on(scheduler: Scheduler) -> None:
    for plan in drawn(list(repairs(scheduler)), REPAIRS):
        nothing_is_wrong(plan, plan.explore(scheduler, MOST))


def test_workers_and_operators_may_meet_at_a_job(
    scheduler: Scheduler, pairs_of_jobs: Sequence[Plan[Process]]
) -> None:
    for plan in drawn(pairs_of_jobs, PAIRS):
        nothing_is_wrong(plan, plan.explore(scheduler, MOST))


def test_quotas_count_what_exists_and_refuse_no_more_than_they_should(
    scheduler: Scheduler,
) -> None:
    for plan in drawn(at_limits(scheduler), LIMITS):
        nothing_is_wrong(plan, plan.explore(scheduler, MOST))


@pytest.mark.parametrize("state", [*STATES, *JOBS])
def test_three_acts_may_meet_in_drawn_orders(
    scheduler: Scheduler, drawn_triples: Sequence[Plan[Process]], state: str
) -> None:
    for plan in drawn_triples:
        if plan.state == state:
            nothing_is_wrong(plan, plan.sample(scheduler, range(ORDERS)))


def found_in(plan: Plan[Process], scheduler: Scheduler, fault: str) -> bool:
    """Whether an order leads to a fault."""
    failures = plan.explore(scheduler).failures
    return any(fault in each for failure in failures for each in failure.faults)


def named(found: Sequence[Plan[Process]], name: str) -> Plan[Process]:
    (plan,) = (plan for plan in found if plan.name == name)
    return plan


class CheckingThenActing(Streams):
    """Streams that look at a partition first, and replace what is there afterwards."""

    def _create(self, run: RunRecord, stream: StreamRecord, *, repeats: bool) -> StreamRecord:  # noqa: ARG002
        known = self.find(run, stream.partition)
        if known is not None and not known.is_untouched:
            raise PartitionTakenError("the partition is being uploaded")
        with contextlib.suppress(RecordMissingError):
            self._records.delete(run.owner, stream.key)
        return StreamRecord.decode(
            self._records.insert(run.owner, stream.key, stream.encode(), size=0)
        )


def test_a_check_before_an_act_is_found(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_world, "Streams", CheckingThenActing)
    plan = named(plans(scheduler), "no stream: post 1 | create 1")
    failures = plan.explore(scheduler).failures
    lost = [f for f in failures if any("what post 1" in each for each in f.faults)]
    shortest = min(lost, key=lambda failure: failure.weight)
    calls = [f"{'AB'[number]} {text.rpartition(' ')[0]}" for number, text in shortest.steps]
    # Between B's look at the partition and its deletion, A has created it and uploaded to it.
    looked, created, deleted = map(
        calls.index, ("B get stream", "A create stream", "B delete stream")
    )
    assert looked < created < deleted, told(plan, shortest)


class Replacing(Streams):
    """Streams of which each without bytes is replaced, whoever was answered with it."""

    def _create(self, run: RunRecord, stream: StreamRecord, *, repeats: bool) -> StreamRecord:
        known = self.find(run, stream.partition)
        if known is None or not known.is_untouched:
            return super()._create(run, stream, repeats=repeats)
        assert known.owned is not None
        return StreamRecord.decode(self._records.replace(known.owned, stream.encode(), size=0))


class Taking(Streams):
    """Streams where a creation that names no partition may take another's."""

    def _create(self, run: RunRecord, stream: StreamRecord, *, repeats: bool) -> StreamRecord:  # noqa: ARG002
        return super()._create(run, stream, repeats=True)


class Untidy(Appending):
    """Appends that leave what they wrote to the sweeper."""

    def drop(self) -> None:
        self.close()


class Generous(Appending):
    """Appends that keep what they stored, whatever of it was acknowledged."""

    def drop(self) -> None:
        self._stored = 0
        super().drop()


class Refusing(Sealer):
    """What leaves its job when it is refused to seal."""

    def _take_back(self, job: Job, run: RunRecord) -> None:
        pass


class Open(Appending):
    """Appends that end before their blob is closed."""

    def commit(self, *, final: bool = False) -> bool:
        self._told = 0
        if not final:
            return super().commit()
        super().commit()
        if self._is_last(self._snapshot) and self._snapshot.fault is None:
            with contextlib.suppress(CoreError):
                self.finish()
        new = replace(self._with(self._snapshot), complete=self._snapshot.complete, appending=False)
        self._swap(new)
        return True


@pytest.mark.parametrize(
    ("broken", "name", "fault"),
    [
        (Replacing, "no stream: create any | create any", "is gone"),
        (Replacing, "no stream: create any | post any", "is gone"),
        (Taking, "no stream: create any | create any", "several got one stream"),
        (Untidy, "half: continue 1 | continue 1", "bytes of no stream are kept"),
        (Untidy, "half: continue 1 | delete stream 1", "bytes of no stream are kept"),
        (Open, "half: continue 1 | delete run", "bytes of no stream are kept"),
        (Refusing, "whole: seal | post 2", "the run is uploading and has a job"),
        (Generous, "half: continue 1 | look at 1", "59 bytes of"),
        (Generous, "bytes for one append: continue 1 | continue 2", "59 bytes of"),
    ],
)
def test_addresses_that_go_and_bytes_and_jobs_that_stay_are_found(
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    broken: type,
    name: str,
    fault: str,
) -> None:
    plan = named(plans(scheduler) + at_limits(scheduler), name)
    monkeypatch.setattr(runs_world, broken.__mro__[1].__name__, broken)
    assert found_in(plan, scheduler, fault)


class Overtaken(Streams):
    """Streams to which an append goes on that another has taken over."""

    def swap(self, seen: StreamRecord, new: StreamRecord) -> StreamRecord:
        with contextlib.suppress(RecordConflictError):
            return super().swap(seen, new)
        return super().swap(StreamRecord.decode(self._records.get(seen.owner, seen.key)), new)


def test_an_append_that_was_taken_over_and_goes_on_is_found(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = named(plans(scheduler), "half: continue 1 | look at 1")
    monkeypatch.setattr(runs_world, "Streams", Overtaken)
    assert found_in(plan, scheduler, "has become less")


class Forgetful(Jobs):
    """Jobs of which each is deleted whoever has it now."""

    def delete(self, job: Job) -> bool:
        with contextlib.suppress(RecordMissingError):
            self._things.delete(job.owner, job.ident)
        return True


class Unasked(Jobs):
    """Jobs that whoever has them keeps when their run is sealed again."""

    def create(self, job: Job, *, anew: bool = False) -> None:
        super().create(job, anew=anew and self.find(job) is None)


@pytest.mark.parametrize(
    ("broken", "name", "fault"),
    [
        (Forgetful, "claimable: seal | work and fail", "the run is sealed and has no job"),
        (Unasked, "claimable: seal | work and fail", "the run is sealed and has no job"),
        (Unasked, "died for good: seal | work", "the run is sealed and nobody does its job"),
    ],
)
def test_jobs_that_are_lost_are_found(
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    broken: type[Jobs],
    name: str,
    fault: str,
) -> None:
    assert not found_in(named(of_jobs(scheduler), name), scheduler, "")
    monkeypatch.setattr(runs_world, "Jobs", broken)
    assert found_in(named(of_jobs(scheduler), name), scheduler, fault)


class CountingThenCreating(AdmittedRecords):
    """Records whose quota is counted before they are created, or grow."""

    def create(
        self,
        kind: str,
        record_id: str,
        value: bytes,
        *,
        size: int | None = None,
        admit: Admit | None = None,
    ) -> Record:
        limit = self._quotas.limits.get(kind)
        if limit is not None:
            count = len(self._records.list(kind, record_id.partition(".")[0]).records)
            if count >= limit.count:
                refuse(f"{limit.name}.count", limit.count, count, retry_after=1)
        return self._records.create(kind, record_id, value, size=size, admit=admit)

    def compare_and_swap(
        self, seen: Record, value: bytes, *, size: int | None = None, admit: Admit | None = None
    ) -> Record:
        limit, more = self._quotas.limits.get(seen.kind), (size or 0) - seen.size
        if limit is not None and more > 0:
            records = self._records.list(seen.kind, seen.id.partition(".")[0]).records
            used = sum(record.size for record in records)
            if used + more > limit.nbytes:
                refuse(f"{limit.name}.bytes", limit.nbytes, used, retry_after=1)
        return self._records.compare_and_swap(seen, value, size=size, admit=admit)


class Refused(Runs):
    """Runs that cannot go on once their owner has no room for more of them."""

    def change(
        self,
        record: RunRecord,
        change: Change,
        *,
        admit: Admit | None = None,  # noqa: ARG002
    ) -> RunRecord:
        return super().change(record, change)


@pytest.mark.parametrize(
    ("acts", "fault"),
    [("work | seal", "the run is sealed for ever"), ("work | compute more", "jobs are left")],
)
def test_runs_that_end_nowhere_because_of_a_quota_are_found(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, acts: str, fault: str
) -> None:
    monkeypatch.setattr(runs_world, "Runs", Refused)
    plan = named(at_limits(scheduler), f"no bytes for a run: {acts}")
    assert found_in(plan, scheduler, fault)


def test_a_quota_that_is_counted_before_is_found(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = named(at_limits(scheduler), "room for one stream: create 1 | create 2")
    monkeypatch.setattr(runs_world, "AdmittedRecords", CountingThenCreating)
    assert found_in(plan, scheduler, "quotas refuse (False, False)")


def test_bytes_that_are_counted_before_they_are_stored_are_found(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_world, "AdmittedRecords", CountingThenCreating)
    plan = named(at_limits(scheduler), "bytes for one append: continue 1 | continue 2")
    failures = plan.explore(scheduler, 200).failures
    assert any("are stored, and allowed are" in each for f in failures for each in f.faults)
