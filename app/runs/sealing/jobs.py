"""Jobs of sealing: what is to be computed of a run, and which worker computes it.

A job is a record. The worker that computes it writes its name there and counts up a *beat* as
long as it lives; each change is a compare-and-swap, so one worker has it at a time::

    waiting --claim--> worker A, beat 7, 8, 9 ... --finish--> (deleted)
       ^                     |
       +------ release ------+     no new beat: any worker claims it as its own

Whoever watches compares beats by its own monotonic clock. So no clock of another process or
machine matters, nor that a clock jumps. On the machine of a worker its death shows at once.

A job may be what ends its workers. So each that a dead worker had is a *suspect* from then on,
and computed alone, in a process that holds nothing else. Only deaths of such processes count, and
only where the worker that started one saw it die, and had not ended it itself::

    suspect --claim--> worker A --starts--> process alone --ends well--> (deleted)
       ^                  |                      |
       |               A died                 it died
       +---- deaths, as they were                |
       +---- deaths + 1 -------------------------+--- the third ---> poisoned

A poisoned job stays, so that it can be counted, until somebody asks for it again.

Whoever works ahead of a job keeps a record meanwhile, which outlives a death. Nobody works ahead of
that run again then, and its jobs are suspects from the beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.engine.request_budget import current_trace
from app.state.base import (
    RecordConflictError,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreDamagedError,
)
from app.state.ownership import Namespaces, OwnedRecord
from app.state.presence import Presence

from ..records import OWN, RunRecord, Stored

KIND = "sealing"
AHEAD = "ahead"
"""Kind of the records of processes that work ahead, ``<run>.<process>``."""
LEASE_SECONDS = 15.0
"""Time without a beat after which another worker takes a job over."""
ATTEMPTS = 20
"""Times that a job is tried while stores or memory fail. Then it fails; or, for room on the disk,
is tried once in each time of a lease."""
MAX_DEATHS = 3
"""Deaths of processes that computed a job alone after which it is poisoned."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Options and inputs of reports that differ from those of their run."""

    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``own``, or a digest of 16 hexadecimal digits."""
        if not self.options and not self.inputs:
            return OWN
        text = json.dumps([dict(self.options), dict(self.inputs)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Job(Stored):
    """One version of a job."""

    owner: str
    run: str
    reports: tuple[str, ...]
    variant: Variant
    seals: bool
    """Whether the run is done with it."""
    worker: str = ""
    """Who computes it; empty while it waits."""
    beat: int = 0
    attempts: int = 0
    """Times that it was given back because a store or the memory failed."""
    delay: str = ""
    """What failed the last time."""
    done: int = 0
    total: int = 0
    """Bytes of the present step."""
    suspect: bool = False
    """Whether a worker died that had it: it is computed alone."""
    deaths: int = 0
    """Processes that died while they computed it alone."""
    death: str = ""
    """How the last of them died."""
    trace: str = ""
    """``traceparent`` of the request that asked for it."""

    @property
    def is_poisoned(self) -> bool:
        """Whether it is given up, until somebody asks for it again."""
        return self.deaths >= MAX_DEATHS

    @property
    def ident(self) -> str:
        """Id of its record in the namespace of the owner."""
        names = ",".join(self.reports).encode()
        digest = hashlib.blake2b(names, digest_size=8).hexdigest()
        return f"{self.run}.{self.variant.name}.{digest}"

    def encode(self) -> dict[str, Any]:
        """Return the value of its record, as JSON values."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "reports": list(self.reports),
            "options": dict(self.variant.options),
            "inputs": dict(self.variant.inputs),
        }


_PLAIN = (
    *("run", "seals", "worker", "beat", "attempts", "delay", "done", "total"),
    *("suspect", "deaths", "death", "trace"),
)
"""Members of a job that are stored as they are."""


def _decode(owned: OwnedRecord) -> Job:
    value = owned.value
    return Job(
        owner=owned.owner,
        reports=tuple(value["reports"]),
        variant=Variant(value["options"], value["inputs"]),
        owned=owned,
        # Jobs of earlier versions have not all of them.
        **{name: value[name] for name in _PLAIN if name in value},
    )


def job_of(run: RunRecord) -> Job:
    """Return the job that a run is done with."""
    reports, trace = tuple(run.spec["reports"]), current_trace().header or ""
    return Job(run.owner, run.id, reports, Variant(), seals=True, trace=trace)


class Jobs:
    """The jobs of all runs.

    Args:
        records: holds them.
        lease: seconds without a beat after which a job may be taken over.
        clock: monotonic seconds.
        presence: of this worker among those that compute them; default: there are no others.

    Attributes:
        waiting: number of jobs that no worker had when it was last looked for jobs.
        computing: number of those that one had.
        suspects: number of suspects then.
        poisoned: number of poisoned jobs then.
    """

    def __init__(
        self,
        records: StateStore,
        lease: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        presence: Presence | None = None,
    ) -> None:
        self.presence = presence or Presence()
        self.waiting = self.computing = self.suspects = self.poisoned = 0
        self._things = Namespaces(records, KIND)
        self._ahead = Namespaces(records, AHEAD)
        self.lease = lease
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[str, int, float]] = {}

    def create(self, job: Job, *, anew: bool = False) -> None:
        """Create a job, unless it exists; one that is poisoned is tried again, alone.

        Args:
            job: what is to be computed.
            anew: whether its run was sealed a moment ago. Who has the job then may be about to end
                it for a term that is over, so the job is taken away.
        """
        if self.died_ahead(job.owner, job.run):
            job = replace(job, suspect=True)
        while True:
            with contextlib.suppress(RecordExistsError, StoreDamagedError):
                self._things.create(job.owner, job.ident, job.encode())
                return
            known = self.find(job)
            # Unless it has ended in the meantime:
            if known is None:
                continue
            stays = not anew if known.worker else not known.is_poisoned
            deaths = 0 if known.is_poisoned else known.deaths
            if stays or self.change(known, worker="", deaths=deaths, attempts=0) is not None:
                return

    def find(self, job: Job) -> Job | None:
        """Return the present version of a job; None if there is none.

        One that is damaged is deleted: all that it says can be asked for again.
        """
        with contextlib.suppress(RecordMissingError):
            try:
                return _decode(self._things.get(job.owner, job.ident))
            except StoreDamagedError:
                # Where others have made it again by now, the sweeper does so once more.
                self._things.delete(job.owner, job.ident)
        return None

    def of_run(self, owner: str, run: str) -> list[Job]:
        """Return the jobs of a run."""
        return [_decode(owned) for owned in self._things.page(owner, f"{run}.")]

    def claimable(self) -> list[Job]:
        """Return the jobs that wait, or whose worker has died or given no sign of life for long.

        Suspects come last: each of them takes a process to start.
        """
        now = self._clock()
        seen, self._seen = self._seen, {}
        found, computing, suspects, poisoned = [], 0, 0, 0
        for job in map(_decode, self._things.intact()):
            if job.is_poisoned and not job.worker:
                poisoned += 1
                continue
            suspects += job.suspect
            computing += bool(job.worker)
            key = (job.owner, job.ident)
            state = (job.worker, job.beat)
            worker, beat, since = seen.get(key, (*state, now))
            if (worker, beat) != state:
                since = now
            self._seen[key] = (*state, since)
            late = now - since >= self.lease
            free = not job.worker and job.attempts < ATTEMPTS
            if free or late or self.presence.has_ended(job.worker):
                found.append(job)
        self.waiting, self.computing = len(self._seen) - computing, computing
        self.suspects, self.poisoned = suspects, poisoned
        return sorted(found, key=lambda job: job.suspect)

    def claim(self, job: Job) -> Job | None:
        """Claim a job; None if another worker was first."""
        worker = job.worker
        # Who is near, runs and gives no sign of life is not dead: its store may be slow.
        died = worker != "" and (
            self.presence.has_ended(worker) or not self.presence.is_near(worker)
        )
        return self.change(
            job, worker=self.presence.name, beat=job.beat + 1, suspect=job.suspect or died
        )

    def change(self, job: Job, **values: Any) -> Job | None:  # noqa: ANN401 - of Job
        """Change a job that is unchanged since; None if it is another's now, or gone."""
        new = replace(job, **values)
        try:
            return replace(new, owned=self._things.replace(job.version, new.encode()))
        except (RecordConflictError, RecordMissingError):
            return None

    def delete(self, job: Job) -> bool:
        """Delete a job unless it is another's now; return whether it is gone."""
        with contextlib.suppress(RecordMissingError):
            try:
                self._things.delete(job.owner, job.ident, job.owned)
            except RecordConflictError:
                return False
        return True

    def delete_all(self, owner: str, run: str) -> None:
        """Delete the jobs of a run that is gone, whoever has them, and what worked ahead of them.

        One of a run that was created since by the same key is made again by the sweeper.
        """
        for ident in self._things.ids(owner, prefix=f"{run}."):
            with contextlib.suppress(RecordMissingError):
                self._things.delete(owner, ident)
        for ident in self._ahead.ids(owner, prefix=f"{run}."):
            self._forget(owner, ident)

    @contextlib.contextmanager
    def ahead(self, owner: str, run: str) -> Iterator[None]:
        """Work ahead of the jobs of a run; where the process dies, that is known."""
        name = self.presence.name
        ident = f"{run}.{name.rpartition(' ')[2]}"
        self._ahead.create(owner, ident, name)
        try:
            yield
        finally:
            self._forget(owner, ident)

    def died_ahead(self, owner: str, run: str) -> bool:
        """Whether a process died that worked ahead of the jobs of a run."""
        return any(self.presence.has_ended(o.value) for o in self._ahead.page(owner, f"{run}."))

    def _forget(self, owner: str, ident: str) -> None:
        with contextlib.suppress(RecordMissingError):
            self._ahead.delete(owner, ident)
