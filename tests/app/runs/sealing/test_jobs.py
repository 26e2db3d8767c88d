"""Jobs whose workers died: suspects, their deaths alone, and their end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.ledger import Ledger
from app.errors import ForbiddenError
from app.http.identity import ADMIN, SINGLE_USER, Identity
from app.runs.records import RunRecord
from app.runs.sealing.ahead import SegmentsAhead
from app.runs.sealing.alone import Alone, Death
from app.runs.sealing.jobs import MAX_DEATHS, Job, Jobs, Variant
from app.runs.sealing.sealer import Sealer
from app.runs.sealing.work import SealingWork
from app.settings import Settings
from app.state.storage import CLAIMS
from tests.app.runs.uploaded import Uploads
from tests.app.state.memory import MemoryStateStore
from tests.runs import RunCase, random_run
from tests.server_process import ROOT

DIED = Death(own=True, reason="SIGKILL at 7 MiB of memory")


class Fates(Alone):
    """Computes suspects in this process, or says how their own one died."""

    def __init__(self, service: Uploads) -> None:
        super().__init__(Settings(), Ledger(1, 1))
        self.fates: list[Death | Callable[[], Death]] = []
        self.seen: list[Job] = []
        self._worker = Sealer(service.sealer.sealing, service.sealer.jobs)

    def run(self, job: Job) -> Death | None:
        self.seen.append(job)
        if self.fates:
            fate = self.fates.pop(0)
            return fate if isinstance(fate, Death) else fate()
        runs = self._worker.sealing.runs
        # Another process counts nothing here.
        count, runs.on_state = runs.on_state, lambda _state: None
        self._worker.perform(job)
        runs.on_state = count
        return None


class Suspects:
    """A service that has a sealed run."""

    def __init__(self, directory: Path, case: RunCase) -> None:
        self.service = Uploads(directory)
        self.sealer = self.service.sealer
        self.jobs: Jobs = self.sealer.jobs
        self.alone = self.sealer._alone = Fates(self.service)
        self.sealer._interval = 0.0
        self.run = self.service.run(["melt"])
        self.service.upload(self.run, case.stream.encode())
        self.sealer.seal(self.now)

    @property
    def now(self) -> RunRecord:
        return self.service.now(self.run)

    @property
    def job(self) -> Job:
        (job,) = self.jobs.of_run(self.run.owner, self.run.id)
        return job

    def take(self, worker: str) -> None:
        """Let another worker have the job."""
        assert self.jobs.change(self.job, worker=worker, beat=self.job.beat + 1) is not None

    def kill(self) -> None:
        """Let a worker die that has the job, on this machine."""
        machine = self.jobs.presence.name.partition(" ")[0]
        self.take(f"{machine} 1-dead")

    def get(self, path: str = "") -> Any:  # noqa: ANN401 - of httpx
        return asyncio.run(self.service.get(f"/v1/runs/{self.run.id}{path}"))


@pytest.fixture(scope="module")
def case() -> RunCase:
    return random_run(np.random.default_rng(4))


@pytest.fixture
def suspects(tmp_path: Path, case: RunCase) -> Suspects:
    return Suspects(tmp_path, case)


def test_jobs_of_a_dead_worker_are_computed_alone_and_cleared(suspects: Suspects) -> None:
    suspects.kill()
    suspects.sealer.look()
    assert [(job.suspect, job.deaths) for job in suspects.alone.seen] == [(True, 0)]
    assert suspects.now.state == "done"
    assert b'thalweg_runs_total{state="done"} 1.0' in suspects.service.state.metrics.text()
    suspects.sealer.look()
    assert (suspects.jobs.suspects, suspects.jobs.poisoned) == (0, 0)
    assert suspects.jobs.of_run(suspects.run.owner, suspects.run.id) == []


def test_jobs_that_wait_or_were_given_back_are_no_suspects(suspects: Suspects) -> None:
    suspects.take("")
    suspects.sealer.look()
    assert suspects.now.state == "done"
    assert suspects.alone.seen == []


OTHER = """
import sys
from pathlib import Path
from app.state.presence import Presence
print(Presence(Path(sys.argv[1])).name, flush=True)
sys.stdin.read()
"""


def test_a_death_is_news_to_all_others(
    suspects: Suspects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", OTHER, str(tmp_path / CLAIMS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        suspects.take(other.stdout.readline().strip())
        looked = threading.Event()

        def work() -> bool:
            looked.set()
            return False

        monkeypatch.setattr(suspects.sealer.ahead, "work", work)
        suspects.sealer._interval = 1000.0
        suspects.sealer.start()
        assert looked.wait(60)
        assert suspects.now.state == "sealed"
        other.kill()

        async def done() -> None:
            follower = suspects.service.runs.watch.follow(suspects.run.id)
            while suspects.now.state != "done":
                await follower.changed()
            follower.close()

        asyncio.run(asyncio.wait_for(done(), 60))
    suspects.sealer.close()
    assert [job.suspect for job in suspects.alone.seen] == [True]


@pytest.mark.parametrize("near", [False, True])
def test_who_gives_no_sign_of_life_is_dead_unless_it_is_seen_to_run(
    suspects: Suspects, near: bool
) -> None:
    own = suspects.jobs.presence.name
    suspects.take(own if near else "another-machine 1-x")
    now = [0.0]
    watching = Jobs(suspects.sealer.sealing.records, 15.0, lambda: now[0], suspects.jobs.presence)
    suspects.sealer.jobs = watching
    suspects.sealer.look()
    assert suspects.job.worker != ""
    now[0] = 15.0
    suspects.sealer.look()
    assert suspects.now.state == "done"
    assert bool(suspects.alone.seen) is not near


def test_the_third_death_alone_is_final(suspects: Suspects) -> None:
    suspects.kill()
    suspects.alone.fates = [DIED] * MAX_DEATHS
    for deaths in range(1, MAX_DEATHS):
        suspects.sealer.look()
        assert (suspects.job.deaths, suspects.job.worker) == (deaths, "")
        assert suspects.now.state == "computing"
    suspects.sealer.look()
    problem = suspects.now.problem
    assert problem is not None
    assert suspects.now.state == "failed"
    assert (problem["code"], problem["deaths"]) == ("process-died", MAX_DEATHS)
    assert "SIGKILL at 7 MiB" in problem["detail"]
    # Nobody tries it again, and it is counted.
    suspects.sealer.look()
    assert len(suspects.alone.seen) == MAX_DEATHS
    assert (suspects.jobs.suspects, suspects.jobs.poisoned) == (0, 1)
    assert suspects.get("/reports/melt").json()["code"] == "report-not-ready"


def test_a_poisoned_run_is_tried_again_when_it_is_sealed_again(suspects: Suspects) -> None:
    suspects.kill()
    suspects.alone.fates = [DIED] * MAX_DEATHS
    for _ in range(MAX_DEATHS):
        suspects.sealer.look()
    # A user without the run's scope may not, an administrator may: it is another's run.
    reports = suspects.service.state.runs.reports
    admin = Identity("operator", frozenset({ADMIN}))
    assert reports.seal(admin, suspects.run.id).state == "sealed"
    with pytest.raises(ForbiddenError):
        reports.seal(admin, suspects.run.id)
    suspects.sealer.look()
    # Still alone: nothing says that it has changed.
    assert suspects.alone.seen[-1].suspect
    assert (suspects.alone.seen[-1].deaths, suspects.now.state) == (0, "done")
    assert suspects.now.problem is None
    suspects.sealer.look()
    assert suspects.jobs.poisoned == 0


def test_a_deleted_run_takes_its_poison_along(suspects: Suspects) -> None:
    suspects.kill()
    suspects.alone.fates = [DIED] * MAX_DEATHS
    for _ in range(MAX_DEATHS):
        suspects.sealer.look()
    suspects.service.state.runs.removal.delete(SINGLE_USER, suspects.run.id)
    suspects.sealer.look()
    assert suspects.jobs.poisoned == 0


def test_further_reports_are_poisoned_without_the_run(suspects: Suspects) -> None:
    suspects.sealer.look()
    suspects.sealer.compute(suspects.now, ("selt",), Variant())
    suspects.kill()
    suspects.alone.fates = [DIED] * MAX_DEATHS
    for _ in range(MAX_DEATHS):
        suspects.sealer.look()
    assert suspects.now.state == "done"
    answer = suspects.get("/reports/selt")
    assert (answer.status_code, answer.json()["problem"]["code"]) == (404, "process-died")
    suspects.sealer.compute(suspects.now, ("selt",), Variant())
    assert suspects.get("/reports/selt").status_code == 202
    suspects.sealer.look()
    assert suspects.get("/reports/selt").status_code == 200


def test_deaths_that_are_not_its_own_do_not_count(suspects: Suspects) -> None:
    sealer = suspects.sealer
    suspects.kill()

    def stopped() -> Death:
        sealer._stopped.set()
        return DIED

    def taken_over() -> Death:
        suspects.take("another")
        return DIED

    # The worker died with its process, time and again.
    for _ in range(MAX_DEATHS):
        suspects.kill()
        suspects.alone.fates = [Death(own=False, reason="no memory")]
        sealer.look()
        assert (suspects.job.deaths, suspects.job.worker) == (0, "")
    assert suspects.job.attempts == MAX_DEATHS
    suspects.alone.fates = [stopped]
    sealer.look()
    assert (suspects.job.deaths, suspects.job.worker) == (0, "")
    sealer._stopped.clear()
    suspects.alone.fates = [taken_over]
    sealer.look()
    assert (suspects.job.deaths, suspects.job.worker) == (0, "another")


def test_no_process_is_started_for_a_run_that_is_open_or_gone(suspects: Suspects) -> None:
    run = suspects.service.run(["melt"])
    jobs = suspects.jobs
    for name in (run.id, "gone"):
        jobs.create(Job(run.owner, name, ("melt",), Variant(), seals=True, suspect=True))
    suspects.sealer.look()
    assert suspects.alone.seen == []
    assert jobs.of_run(run.owner, "gone") == []
    (left,) = jobs.of_run(run.owner, run.id)
    assert (left.worker, left.attempts) == ("", 1)
    for _ in range(20):
        suspects.sealer.look()
    assert jobs.of_run(run.owner, run.id) == []


def test_a_process_that_cannot_be_started_is_tried_again(
    suspects: Suspects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: object, _job: Job) -> None:
        raise OSError(12, "Cannot allocate memory")

    suspects.kill()
    with monkeypatch.context() as patch:
        patch.setattr(Fates, "run", fail)
        suspects.sealer.look()
    assert (suspects.job.deaths, suspects.job.attempts) == (0, 1)
    suspects.sealer.look()
    assert suspects.now.state == "done"


def test_a_worker_that_dies_before_it_said_so_leaves_that_to_the_next(suspects: Suspects) -> None:
    suspects.kill()
    assert suspects.jobs.change(suspects.job, deaths=MAX_DEATHS, death="SIGSEGV") is not None
    # A run that is sealed again at this instant is told, too.
    suspects.sealer.seal(suspects.now)
    suspects.sealer.look()
    assert suspects.alone.seen == []
    assert suspects.now.state == "failed"
    assert suspects.job.worker == ""


def test_what_has_no_memory_left_fails_and_says_so(
    suspects: Suspects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def huge(_self: object) -> None:
        raise MemoryError

    monkeypatch.setattr(SealingWork, "run", huge)
    suspects.sealer.look()
    assert suspects.now.problem is not None
    assert suspects.now.problem["code"] == "too-large"


def test_jobs_give_way_to_suspects_only_after_all_others(suspects: Suspects, case: RunCase) -> None:
    suspects.kill()
    other = suspects.service.run(["melt"])
    suspects.service.upload(other, case.stream.encode())
    suspects.sealer.seal(suspects.service.now(other))
    claimed = suspects.jobs.claim(suspects.job)
    assert claimed is not None
    suspects.take("")
    assert [job.suspect for job in suspects.jobs.claimable()] == [False, True]


def test_who_dies_while_it_works_ahead_makes_suspects_of_the_jobs_to_come(
    suspects: Suspects, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, jobs, ahead = suspects.service, suspects.jobs, suspects.sealer.ahead
    tried: list[str] = []
    monkeypatch.setattr(SegmentsAhead, "_add_up", lambda _self, run, *_rest: tried.append(run.id))
    service.streams.grown = ahead.note
    run = service.run(["aal"], {"occurrence": service.occurrence(case)})
    service.upload(run, case.stream.encode())
    assert ahead.work()
    assert tried == [run.id]
    # Who works there and ends well, or runs, leaves no trace.
    with jobs.ahead(run.owner, run.id):
        assert not jobs.died_ahead(run.owner, run.id)
    assert jobs._ahead.page(run.owner) == []
    machine = jobs.presence.name.partition(" ")[0]
    jobs._ahead.create(run.owner, f"{run.id}.1-dead", f"{machine} 1-dead")
    service.upload(run, case.stream.encode())
    assert ahead.work()
    assert tried == [run.id]
    jobs.create(Job(run.owner, run.id, ("aal",), Variant(), seals=True))
    (job,) = jobs.of_run(run.owner, run.id)
    assert job.suspect
    service.state.runs.removal.delete(SINGLE_USER, run.id)
    assert jobs._ahead.page(run.owner) == []


def test_all_jobs_are_seen_and_those_of_earlier_versions_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.state.ownership.MAX_PAGE", 2)
    jobs = Jobs(MemoryStateStore())
    job = Job("alice", "run", ("melt",), Variant(), seals=True)
    for number in range(5):
        jobs.create(replace(job, run=f"run{number}"))
    assert len(jobs.claimable()) == 5
    old = job.encode()
    for name in ("suspect", "deaths", "death"):
        del old[name]
    jobs._things.create("alice", job.ident, old | {"worker": "another"})
    found = jobs.find(job)
    assert found == replace(job, worker="another")
