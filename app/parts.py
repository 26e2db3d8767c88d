"""The parts of a worker that settings describe; :mod:`app.main` puts them together."""

from __future__ import annotations

from pathlib import Path

from app.datasets.catalogue import Catalogue, read_catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.datasets.files.seekable import Cursors
from app.datasets.scanning import Scan, scan
from app.decoding.base import DecoderLimits
from app.decoding.pool import DecoderPool
from app.engine.buffers import Buffers
from app.engine.inheriting import current_owner
from app.engine.ledger import Ledger
from app.engine.workers import resting
from app.http.throttle import Rate, Throttle
from app.runs.sealing.alone import Alone, LentLedger
from app.runs.sealing.jobs import Jobs
from app.runs.sealing.sealer import Sealer
from app.runs.sealing.work import SealingContext
from app.settings import Settings
from app.state.base import StateStore
from app.state.notices import Notices
from app.state.presence import Presence
from app.state.reservations import Reservations
from app.state.storage import CLAIMS, NOTICES, Storage
from app.tally import Column


def make_ledger(settings: Settings, column: Column) -> Ledger:
    """Return the ledger of the memory that requests hold."""
    share = int(settings.memory_limit * settings.owner_share)
    return Ledger(settings.memory_limit, share, column)


def make_buffers(settings: Settings, ledger: Ledger, column: Column) -> Buffers:
    """Return the buffers into which bodies are read."""
    share = int(settings.buffers * settings.owner_share)
    return Buffers(settings.buffers, settings.buffer_bytes, ledger, share, column)


def make_reservations(settings: Settings, storage: Storage) -> Reservations:
    """Return the reservations of rows that wait on disk."""
    presence = Presence(storage.directory / CLAIMS)
    return Reservations(presence, settings.quota_spool_bytes, storage.space)


def make_sealer(
    settings: Settings, storage: Storage, sealing: SealingContext, lent: LentLedger | None
) -> Sealer:
    """Return the sealer; ``lent`` is the ledger of a process that computes one job alone."""
    losses = sealing.losses
    jobs = Jobs(sealing.heads, presence=losses.spools.reservations.presence)
    if lent is not None:
        # It is the process alone with a job.
        return Sealer(sealing, jobs)
    notices = Notices(storage.directory / NOTICES / "jobs")
    return Sealer(sealing, jobs, alone=Alone(settings, losses.ledger), notices=notices)


def make_throttle(settings: Settings, column: Column) -> Throttle:
    """Return what admits requests, by owner."""
    share = int(settings.max_requests * settings.owner_share)
    rate = settings.owner_rate and Rate(settings.owner_rate, settings.owner_burst)
    return Throttle(settings.max_requests, share, rate or None, column=column)


def make_decoders(settings: Settings, column: Column) -> DecoderPool:
    """Return the pool of decoder processes."""
    return DecoderPool(
        DecoderLimits(
            workers=settings.decoders,
            memory=settings.decoder_memory,
            seconds=settings.decoder_seconds,
            idle_seconds=settings.decoder_idle_seconds,
            sandbox=settings.decoder_sandbox,
        ),
        current_owner,
        column,
        resting,
    )


def shared_roots(settings: Settings) -> list[Path]:
    """Return the directories that workers of a cluster have at the same paths.

    Raises:
        ValueError: one is no directory that may hold datasets.
    """
    return list(map(Path, Roots.parse(settings.shared_roots, settings.data_dir).roots))


def make_catalogue(
    settings: Settings,
    store: StateStore,
    decoders: DecoderPool,
    ledger: Ledger,
    column: Column,
) -> Catalogue:
    """Return the datasets: those found, those of the operator's catalogue, those registered.

    Raises:
        ValueError: a dataset root contains the data directory, or the catalogue is malformed.
    """
    roots = Roots.parse(settings.dataset_roots, settings.data_dir, settings.max_entries)
    found = scan(roots, decoders) if settings.scan else Scan({})
    entries = found.specs | read_catalogue(settings.catalogue)
    buffers = BufferPool(max(settings.read_buffers // column.table.processes, 1))
    catalogue = Catalogue(store, roots, entries, buffers, decoders)
    catalogue.cursors = Cursors(ledger)
    catalogue.notice, catalogue.clashes = found.ended, found.clashes
    return catalogue
