"""The service of durable runs: its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.engine.workers import Workers
from app.http.addresses import Addresses
from app.http.json_bodies import JsonBodies
from app.losses.service import LossService

from .describing import describe_run
from .records import RunRecord
from .reports import RunReportsService
from .store import Runs
from .streams import Streams
from .sweeping import Removal
from .uploads.uploads import Uploads


@dataclass(frozen=True, slots=True)
class RunService:
    """The parts that routes of runs use."""

    runs: Runs
    streams: Streams
    removal: Removal
    reports: RunReportsService
    losses: LossService
    threads: Workers
    bodies: JsonBodies
    addresses: Addresses
    uploads: Uploads
    without_version: bool
    """Whether uploads are taken that name no version of a protocol."""

    def describe(self, run: RunRecord) -> dict[str, Any]:
        """Describe a run and how far its streams have come."""
        has, share = self.losses.inputs.has, self.losses.ledger.share
        jobs = [job for job in self.reports.jobs.of_run(run.owner, run.id) if not job.is_poisoned]
        computing = [(job.variant.name, job.reports) for job in jobs]
        described = describe_run(run, self.streams.of(run), has, share, computing)
        described["notes"] += [
            f"to compute the reports was tried {job.attempts} times, and"
            f" {'is tried once more' if job.worker else 'will be again'}: {job.delay}"
            for job in jobs
            if job.delay
        ]
        return described
