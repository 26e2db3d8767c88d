"""The program that computes one job of sealing, and nothing else; see its starter."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

import structlog

from app.decoding.worker.sandbox import die_with
from app.errors import ServiceError
from app.logs import configure_logging
from app.parts import Parts
from app.runs.sealing.alone import BESIDE_BYTES, LentLedger
from app.runs.sealing.jobs import Job
from app.server.memory import bound_memory, offer_to_be_killed
from app.settings import Settings


def main() -> None:
    """Compute the job that the parent sends."""
    descriptor, parent = map(int, sys.argv[1:])
    die_with(parent)
    # Whoever has to be ended for lack of memory, it is not to be the service.
    offer_to_be_killed(1000)
    connection = Connection(descriptor)
    settings: Settings
    job: Job
    settings, job = connection.recv()
    configure_logging(settings.log_level)
    share = int(settings.memory_limit * settings.owner_share)
    # What a job needs, but for datasets and a log of what clients do; and not the workers of a
    # cluster, which would die in its place.
    needed = {"scan": False, "catalogue": None, "audit_log": "none", "engine": "local"}
    ledger = LentLedger(connection, settings.memory_limit, share)
    parts = Parts(settings.model_copy(update=needed), lent=ledger)
    sealer = parts.sealer
    signal.signal(signal.SIGTERM, lambda *_: sealer.stop())
    bound_memory(settings.memory_limit + BESIDE_BYTES)
    connection.send(None)
    try:
        sealer.perform(job)
    except ServiceError as e:
        # The store failed, which is no fault of the job: it is late soon, and claimed again.
        structlog.get_logger().warning("a job is left", run=job.run, reason=str(e))
    parts.tracing.close()
    sys.stderr.flush()
    # Threads of pools and the decoders end with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
