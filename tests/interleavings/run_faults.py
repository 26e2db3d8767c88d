"""What has to hold of runs and their uploads, whatever met."""

from __future__ import annotations

import itertools
import json
import operator
import sys
from collections.abc import Sequence
from functools import cached_property

from app.errors import NotFoundError, QuotaExceededError, ServiceError
from app.runs.records import RunRecord, StreamRecord
from app.runs.sealing.jobs import MAX_DEATHS, job_of
from app.state.ownership import namespace
from core.errors import CoreError

from .pairs import Act, Done
from .points import Shared
from .runs_world import (
    ALICE,
    ANY,
    DATA,
    DAY,
    LEASE,
    MORE,
    OTHER,
    Process,
    digest,
    driven,
    published,
)


class RunsWorld:
    """One run of one owner; many orders lead to one end, which is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[bytes, str], list[str]] = {}

    def process(self, shared: Shared) -> Process:
        return Process(shared)

    def look(self, shared: Shared, done: Sequence[Done]) -> list[str]:
        """See World."""
        told = [(d.name, o.killed, o.value, o.error) for d in done for o in [d.outcome]]
        end = shared.digest(), repr(told)
        if end not in self._seen:
            self._seen[end] = _Look(shared, done).faults()
        return list(self._seen[end])


class LimitedWorld(RunsWorld):
    """The same at the limits of quotas: who is refused is so in some serial order of the acts."""

    def __init__(self, begin: Shared, acts: Sequence[Act[Process]]) -> None:
        super().__init__()
        self._begin = begin
        self._acts = acts

    def look(self, shared: Shared, done: Sequence[Done]) -> list[str]:
        """See World."""
        refused = tuple(_is_refused(d.outcome.error) for d in done)
        over = [
            f"{used} records and bytes of {kind} are stored, and allowed are {limit}"
            for (kind, _), used in shared.usage().items()
            for limit in [shared.limits.get(kind)]
            if limit is not None and (used[0] > limit.count or used[1] > limit.nbytes)
            # Whatever is stored, runs go on, and grow by that.
            if kind != "run" or used[0] > limit.count
        ]
        found = over + super().look(shared, done)
        if not any(d.outcome.killed for d in done) and not self._may_refuse(refused):
            found.append(f"quotas refuse {refused}, and serially {sorted(self._serially)}")
        return found

    def _may_refuse(self, refused: tuple[bool, ...]) -> bool:
        """Whether a serial order admits the same acts, or more if each takes bytes in parts."""
        if all(limit.nbytes == sys.maxsize for limit in self._begin.limits.values()):
            return refused in self._serially
        return any(all(map(operator.ge, refused, serial)) for serial in self._serially)

    @cached_property
    def _serially(self) -> set[tuple[bool, ...]]:
        """Which acts are refused, for each serial order."""
        found = set()
        for order in itertools.permutations(range(len(self._acts))):
            shared, refused = self._begin.copy(), [False] * len(order)
            for n in order:
                try:
                    self._acts[n].run(Process(shared))
                except (ServiceError, CoreError) as e:
                    refused[n] = _is_refused(e)
            found.add(tuple(refused))
        return found


def _is_refused(error: BaseException | None) -> bool:
    return isinstance(error, QuotaExceededError)


class _Look:
    """What is wrong with runs at the end."""

    def __init__(self, shared: Shared, done: Sequence[Done]) -> None:
        self.shared = shared
        self.done = done
        self.found: list[str] = []
        self.process = Process(shared)

    def faults(self) -> list[str]:
        self._states()
        run = self._run()
        if run is not None:
            self._streams(run)
            self._acknowledged(run)
            self._jobs(run)
        before = run
        if not self._died:
            self._bytes([] if run is None else self.process.streams.page(run, "", 1000))
        self._repair()
        run = self._run()
        if run is not None:
            self._streams(run)
            self._acknowledged(run)
            self._sealed(run)
            self._ended(before, run)
        self._usage(run)
        self._remove(run)
        return self.found

    @property
    def _died(self) -> bool:
        return "died" in self.shared.names or any(d.outcome.killed for d in self.done)

    def _did(self, name: str, *, even_in_part: bool = False) -> bool:
        return any(d.name.startswith(name) and (even_in_part or d.acknowledged) for d in self.done)

    def _run(self) -> RunRecord | None:
        try:
            run = self.process.runs.get(ALICE, self.process.run_id)
        except NotFoundError:
            was_there = "deleted" not in self.shared.names
            if was_there and not self._did("delete run", even_in_part=True):
                self.found.append("the run is gone")
            return None
        deleted = self._did("delete run") or "deleted" in self.shared.names
        if deleted and not self._did("create run", even_in_part=True):
            self.found.append("the run was deleted and is there")
        return run

    def _streams(self, run: RunRecord) -> None:
        """Every stream that is listed can be read, and there is one a partition."""
        streams = self.process.streams
        listed = streams.page(run, "", 1000)
        partitions = [s.partition for s in listed]
        if len(set(partitions)) != len(partitions):
            self.found.append(f"partitions {partitions} are listed")
        if [s.id for s in streams.of(run)] != [s.id for s in listed]:
            self.found.append("a run has other streams than are listed")
        for each in listed:
            try:
                known = streams.get(run, each.id)
            except NotFoundError:
                self.found.append(f"{each.id} is listed and cannot be read")
                continue
            data = streams.stored(known).read(0, known.offset)
            wanted = [
                ANY,
                DATA.get(known.partition, ANY),
                *([OTHER] if known.partition == 1 else []),
            ]
            if known.fault is not None or not any(whole.startswith(data) for whole in wanted):
                self.found.append(f"{each.id} has bytes that nobody sent")
            if known.complete and data not in wanted:
                self.found.append(f"{each.id} is complete and is not")

    def _acknowledged(self, run: RunRecord) -> None:
        """What was acknowledged is there; who named no partition has a stream alone."""
        made = [d.outcome.value for d in self.done if d.acknowledged and d.name.endswith(" any")]
        ids = [(each[1] if isinstance(each, tuple) else each).id for each in made]
        if len(set(ids)) < len(ids):
            self.found.append(f"several got one stream: {ids}")
        for act in self.done:
            value = act.outcome.value
            if not act.acknowledged:
                continue
            if isinstance(value, tuple):
                value = value[1]
            if isinstance(value, StreamRecord):
                self._kept(run, act.name, value)
            elif act.name.startswith("delete stream"):
                if self._has(run, value):
                    self.found.append(f"{value} was deleted and is there")
            elif act.name == "seal" and run.is_open and not self._may_have_failed():
                self.found.append("the run was sealed and is open")

    def _may_have_failed(self) -> bool:
        """Whether a run that was sealed may have been open again since."""
        acts = ["work and fail", "create run"]
        acts += ["work while busy"] if "tired" in self.shared.names else []
        # Only deaths of who computes a job alone count, and no fewer than so many.
        deaths = int(self.shared.names.get("deaths", 0)) + self._deaths
        if deaths >= MAX_DEATHS or "report" in self.shared.limits:
            return True
        return any(self._did(n, even_in_part=True) for n in acts)

    @property
    def _deaths(self) -> int:
        """How many processes may have died in the acts that computed a job alone."""
        return sum(", to die" in d.name for d in self.done)

    def _has(self, run: RunRecord, ident: str) -> bool:
        try:
            self.process.streams.get(run, ident)
        except NotFoundError:
            return False
        return True

    def _kept(self, run: RunRecord, name: str, said: StreamRecord) -> None:
        deleted = (f"delete stream {said.partition}", "delete run")
        if any(self._did(name, even_in_part=True) for name in deleted):
            return
        try:
            known = self.process.streams.get(run, said.id)
        except NotFoundError:
            self.found.append(f"what {name} was acknowledged with, {said.id}, is gone")
            return
        if known.offset < said.offset or (said.complete and not known.complete):
            self.found.append(f"what {name} was acknowledged with, {said.id}, has become less")

    def _states(self) -> None:
        """States of runs follow each other as documented; done is final."""
        following = {
            "created": {"uploading", "sealed"},
            "uploading": {"sealed"},
            "sealed": {"computing", "failed"},
            "computing": {"done", "failed"},
            "failed": {"uploading", "sealed"},
            "done": set[str](),
        }
        own = self.process.run_id
        states = [state for ident, state in self.shared.states if ident.endswith(own)]
        if self._did("create run", even_in_part=True):
            return
        for before, after in itertools.pairwise(states):
            if after != before and after not in following[before]:
                self.found.append(f"the run was {before}, then {after}")

    def _jobs(self, run: RunRecord) -> None:
        """A run that is sealed has a job that will be done; the dead may leave that to chores."""
        jobs = self.process.sealer.jobs
        waiting = {each.ident for each in jobs.claimable()}
        for each in jobs.of_run(run.owner, run.id):
            if not each.is_poisoned and each.ident not in waiting:
                self.found.append(f"nobody can claim {each.ident}")
            if each.deaths > int(self.shared.names.get("deaths", 0)) + self._deaths:
                self.found.append(f"{each.deaths} deaths of a job are counted")
        if self._died:
            return
        left = [] if run.state == "failed" else jobs.of_run(run.owner, run.id)
        if run.is_open and any(not each.suspect for each in left):
            self.found.append(f"the run is {run.state} and has a job")
        if run.state not in {"sealed", "computing"}:
            return
        job = jobs.find(job_of(run))
        if job is None:
            self.found.append(f"the run is {run.state} and has no job")
        elif job.is_poisoned and not job.worker:
            self.found.append(f"the run is {run.state} and nobody does its job")

    def _repair(self) -> None:
        """Restart the service, and let it do its chores, twice with hours between."""
        self.process = Process(self.shared)
        for _ in range(2):
            self.process.later += LEASE + DAY
            if any(kind == "sealing" for kind, _ in self.shared.all_records()):
                self.process.work()
            self._end_appends()
            self.process.sweep()
        self.process = Process(self.shared)

    def _end_appends(self) -> None:
        """Have clients ask for their offsets, which ends the appends of the dead."""
        uploads, streams = self.process.uploads, self.process.streams
        for run in self.process.runs.page(ALICE, "", 10):
            for each in streams.page(run, "", 1000):
                if each.appending:
                    driven(uploads.look(run, each.id))

    def _sealed(self, run: RunRecord) -> None:
        """A sealed run is done by now, and its report is of the streams that are there."""
        recreated = self._did("create run", even_in_part=True)
        over = run.state == "done" or self._may_have_failed()
        if self._did("seal") and not over and not recreated:
            self.found.append(f"the run was sealed, and is {run.state} for ever")
        if run.state in {"sealed", "computing"}:
            self.found.append(f"the run is {run.state} for ever")
        if run.state != "done":
            return
        files = published(self.process.sealing, run)
        file = files.find("melt.own")
        if file is None:
            self.found.append("the run is done and has no report")
            return
        rows = json.loads(b"".join(files.pieces(file)))
        streams = self.process.streams
        wanted = {
            str(s.partition): digest(streams.stored(s).read(0, s.offset))
            for s in streams.page(run, "", 1000)
        }
        if rows != wanted:
            self.found.append(f"the report is of {sorted(rows)}, and listed are {sorted(wanted)}")

    def _ended(self, before: RunRecord | None, run: RunRecord) -> None:
        """Chores end no run again that has ended, and do all that was asked for.

        They may finish a client's deletion of a stream, to which a failed run is open.
        """
        ended = {"done"} if self._did("delete stream", even_in_part=True) else {"done", "failed"}
        if before is not None and before.state in ended and run.state != before.state:
            self.found.append(f"the run was {before.state}, and chores make it {run.state}")
        left = self.process.sealer.jobs.of_run(run.owner, run.id)
        if any(not job.is_poisoned and not (job.seals and run.is_open) for job in left):
            self.found.append(f"jobs are left: {left}")
        asked = any(d.name == "compute more" and d.outcome.value for d in self.done)
        if asked and run.state == "done" and not self._did("create run", even_in_part=True):
            result = run.results.get(MORE.variant.name)
            if result is None or not (result["problem"] or "elt" in result["reports"]):
                self.found.append(f"more was asked for, and there is {result}")

    def _usage(self, run: RunRecord | None) -> None:
        """Quotas are what exists; nothing is stored that nobody can reach."""
        listed = [] if run is None else self.process.streams.page(run, "", 1000)
        space = namespace(ALICE.owner) + "."
        wanted = (len(listed), sum(s.offset for s in listed))
        usage = self.shared.usage()
        counted = usage.get(("stream", space), (0, 0))
        if counted != wanted:
            self.found.append(f"{wanted} streams and bytes exist, and {counted} are counted")
        runs = sum(kind == "run" for kind, _ in self.shared.all_records())
        if usage.get(("run", space), (0, 0))[0] != runs:
            self.found.append(f"{runs} runs exist, and others are counted")
        self._bytes(listed)

    def _bytes(self, listed: Sequence[StreamRecord]) -> None:
        """Only bytes that streams have, which quotas count, are stored."""
        counted = {s.blob(each.fence): each.length for s in listed for each in s.extents}
        for kind, ident in self.shared.all_blobs():
            if kind != "stream":
                continue
            stored = self.process.streams.blobs.info(kind, ident).size
            if ident not in counted:
                self.found.append(f"bytes of no stream are kept: {ident}")
            elif stored != counted[ident]:
                self.found.append(f"{counted[ident]} bytes of {ident} count, {stored} are stored")

    def _remove(self, run: RunRecord | None) -> None:
        """Every stream that is listed can be deleted, then the run, and nothing is left."""
        process = self.process
        if run is not None:
            if run.is_open:
                for each in process.streams.page(run, "", 1000):
                    driven(process.uploads.delete(process.run(), each.id))
                if process.streams.page(run, "", 1000):
                    self.found.append("streams were deleted and are listed")
            process.delete_run()
        for other in process.runs.page(ALICE, "", 10):
            process.removal.delete(ALICE, other.id)
        self._repair()
        left = self.shared.all_records() + self.shared.all_blobs()
        if left:
            self.found.append(f"left for ever: {left}")
