"""Jobs of sealing: what is to be computed of a run, and which worker computes it.

A job is a head. The worker that computes it writes its name there and counts up a *beat* as
long as it lives; each change is a compare-and-swap, so one worker has it at a time::

    waiting --claim--> worker A, beat 7, 8, 9 ... --finish--> (deleted)
       ^                     |
       +------ release ------+     no new beat: any worker claims it as its own

Whoever watches compares beats by its own monotonic clock. So no clock of another process or
machine matters, nor that a clock jumps. On the machine of a worker its death shows at once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.state.base import HeadConflictError, HeadExistsError, HeadMissingError, StateStore
from app.state.ownership import Namespaces, Owned

from .workers import has_died

KIND = "sealing"
OWN = "own"
"""Variant of the options and inputs that the run was created with."""
LEASE_SECONDS = 15.0
"""Time without a beat after which another worker takes a job over."""


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
class Job:
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
    done: int = 0
    total: int = 0
    """Bytes of the present step."""
    owned: Owned | None = field(default=None, compare=False, repr=False)

    @property
    def ident(self) -> str:
        """Id of its head in the namespace of the owner."""
        names = ",".join(self.reports).encode()
        digest = hashlib.blake2b(names, digest_size=8).hexdigest()
        return f"{self.run}.{self.variant.name}.{digest}"

    def encode(self) -> dict[str, Any]:
        """Return the value of its head, as JSON values."""
        return {
            "run": self.run,
            "reports": list(self.reports),
            "options": dict(self.variant.options),
            "inputs": dict(self.variant.inputs),
            "seals": self.seals,
            "worker": self.worker,
            "beat": self.beat,
            "attempts": self.attempts,
            "done": self.done,
            "total": self.total,
        }


def _decode(owned: Owned) -> Job:
    value = owned.value
    return Job(
        owned.owner,
        value["run"],
        tuple(value["reports"]),
        Variant(value["options"], value["inputs"]),
        value["seals"],
        value["worker"],
        value["beat"],
        value["attempts"],
        value["done"],
        value["total"],
        owned,
    )


class Jobs:
    """The jobs of all runs.

    Args:
        heads: holds them.
        lease: seconds without a beat after which a job may be taken over.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        heads: StateStore,
        lease: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._things = Namespaces(heads, KIND)
        self.lease = lease
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[str, int, float]] = {}

    def create(self, job: Job) -> None:
        """Create a job, unless it exists."""
        try:
            self._things.create(job.owner, job.ident, job.encode())
        except HeadExistsError:
            return

    def of_run(self, owner: str, run: str) -> list[Job]:
        """Return the jobs of a run."""
        return [_decode(owned) for owned in self._things.page(owner, f"{run}.")]

    def claimable(self) -> list[Job]:
        """Return the jobs that wait, or whose worker has died or given no sign of life for long."""
        now = self._clock()
        seen, self._seen = self._seen, {}
        found = []
        for job in map(_decode, self._things.of_all()):
            key = (job.owner, job.ident)
            state = (job.worker, job.beat)
            worker, beat, since = seen.get(key, (*state, now))
            if (worker, beat) != state:
                since = now
            self._seen[key] = (*state, since)
            if not job.worker or now - since >= self.lease or has_died(job.worker):
                found.append(job)
        return found

    def change(self, job: Job, **values: Any) -> Job | None:  # noqa: ANN401 - of Job
        """Change a job that is unchanged since; None if it is another's now, or gone."""
        new = replace(job, **values)
        assert job.owned is not None  # noqa: S101 - it was read
        try:
            return replace(new, owned=self._things.replace(job.owned, new.encode()))
        except (HeadConflictError, HeadMissingError):
            return None

    def delete(self, job: Job) -> None:
        """Delete a job, whoever has it; there may be none."""
        try:
            self._things.delete(job.owner, job.ident)
        except HeadMissingError:
            return

    def delete_all(self, owner: str, run: str) -> None:
        """Delete the jobs of a run."""
        for job in self.of_run(owner, run):
            self.delete(job)


def find_variant(jobs: Sequence[Job], variant: str) -> Job | None:
    """Return the first job of a variant; None if there is none."""
    return next((job for job in jobs if job.variant.name == variant), None)
