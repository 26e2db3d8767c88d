"""The parts of a worker, as settings describe them: put together, started and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from app.audit import AuditLog
from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.places import parse_roots
from app.datasets.files.seekable import Cursors
from app.datasets.routes import DatasetService
from app.datasets.scanning import Scan, scan
from app.datasets.spec import read_catalogue
from app.decoding.base import DecoderLimits
from app.decoding.pool import DecoderPool
from app.engine.budgets import Budgets
from app.engine.buffers import Buffers
from app.engine.ledger import Kept, Ledger
from app.engine.request_budget import BudgetLimits, current_owner, current_trace
from app.engine.warmup import WarmUp
from app.engine.workers import Workers, resting, share_of_cores
from app.health.monitor import LoopLagProbe
from app.health.readiness import Readiness
from app.http.addresses import Addresses
from app.http.bodies import MinimumRate
from app.http.cookies import Cookies
from app.http.json_bodies import JsonBodies
from app.http.keys import Keys
from app.http.origins import Origins
from app.http.routes_tokens import TokenInspection
from app.http.throttle import Rate, Throttle
from app.losses import tokens as loss_tokens
from app.losses.input_store import InputStore
from app.losses.inputs import Inputs
from app.losses.service import LossService
from app.losses.spool import Spools
from app.losses.sums_room import Admission
from app.monitoring import has_long_work, monitor, noted_objects, noted_operations, timed_turns
from app.pipelines import tokens as batch_tokens
from app.pipelines.registry import Pipelines
from app.pipelines.routes import PipelineService
from app.portfolio.answering import Answers
from app.portfolio.contents import SetSource
from app.portfolio.exchanging import Importing
from app.portfolio.making import Making
from app.portfolio.records import LossSets
from app.portfolio.service import PortfolioService
from app.retention import make_quotas, make_sweeper
from app.runs.reports import RunReportsService
from app.runs.rows import tokens as row_tokens
from app.runs.sealing.alone import Alone, LentLedger
from app.runs.sealing.jobs import Jobs
from app.runs.sealing.sealer import Sealer
from app.runs.sealing.work import SealingContext
from app.runs.service import RunService
from app.runs.store import Runs
from app.runs.streams import Streams
from app.runs.sweeping import Removal
from app.runs.uploads.uploads import Uploads
from app.runs.watching import Watch
from app.server.board import Board, WorkerSlot
from app.settings import Settings
from app.state import token_keys
from app.state.api_keys import ApiKeys, digest_key
from app.state.base import StateStore
from app.state.notices import Notices
from app.state.presence import Presence
from app.state.quotas import AdmittedRecords
from app.state.reservations import Reservations
from app.state.storage import CLAIMS, NOTICES, SPOOL, Storage, open_storage
from app.tally import Column, Table
from app.tasks import make_cluster
from app.telemetry import Metrics
from app.tiles.encoding import describe_token
from app.tiles.reductions import PartialStore
from app.tiles.service import TileService
from app.tiles.views import Views
from app.tokens import KIND_BATCHES, KIND_LOSSES, KIND_ROWS, KIND_TILES, KeyRing
from app.tracing import open_tracing

_WAITING_THREADS = 8
"""Threads that wait for the store to make uploads durable."""
_TOKENS = {
    KIND_LOSSES: loss_tokens.describe,
    KIND_TILES: describe_token,
    KIND_BATCHES: batch_tokens.describe,
    KIND_ROWS: row_tokens.describe,
}


class _Closable(Protocol):
    def close(self) -> object: ...


_C = TypeVar("_C", bound=_Closable)


class Parts:
    """The parts of a worker; they are closed in the reverse of the order in which they are made.

    Args:
        settings: its settings.
        board: where its workers see how the others are; default: there are no others.
        slot: that of this worker.
        lent: the ledger of a process that computes one job alone.

    Raises:
        ValueError: a token key is malformed, or a dataset root contains the data directory.
        StorageError: the data directory cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        board: Board | None = None,
        slot: WorkerSlot | None = None,
        lent: LentLedger | None = None,
    ) -> None:
        board = board or Board()
        self.settings, self.slot = settings, slot or board.workers[0]
        self._resources = ExitStack()
        self._add_floors(lent, share_of_cores(board.count_like(self.slot)))
        self._add_losses_and_runs(lent)
        self.sweeper = self._closing(
            make_sweeper(settings, self.storage, self.quotas, self.metrics, self.runs.removal)
        )
        self._add_operations(board)

    def _closing(self, part: _C) -> _C:
        return self._resources.enter_context(closing(part))

    def _add_floors(self, lent: LentLedger | None, cores: int) -> None:
        """Make what remembers and computes, and the products that only read datasets."""
        settings = self.settings
        self.metrics = Metrics()
        self.storage = storage = self._closing(
            open_storage(
                settings.data_dir,
                settings.reserve_bytes,
                settings.state,
                settings.blobs,
                noted_objects(self.metrics),
            )
        )
        self.keys = keys = KeyRing(token_keys.resolve_keys(settings.token_keys, storage))
        self.tokens = TokenInspection(keys, _TOKENS)
        self.tracing = self._closing(
            open_tracing(settings.traces, settings.traces_sample, lane=self.slot.lane or None)
        )
        column = self.slot.column or Column(Table())
        part = settings.owner_share
        rate = settings.owner_rate and Rate(settings.owner_rate, settings.owner_burst)
        most = settings.max_requests
        self.throttle = Throttle(most, int(most * part), rate or None, column=column)
        most = settings.memory_limit
        self.ledger = ledger = lent or Ledger(most, int(most * part), column)
        most = settings.buffers
        self.buffers = Buffers(most, settings.buffer_bytes, ledger, int(most * part), column)
        self.quotas = make_quotas(settings)
        self.records = records = AdmittedRecords(
            storage.records, self.quotas, note=noted_operations(self.metrics)
        )
        self.decoders = self._closing(make_decoders(settings, column))
        catalogue = self._closing(make_catalogue(settings, records, self.decoders, ledger, column))
        views = Views(catalogue, records, keys)
        pipelines = self._closing(Pipelines(catalogue, views, records, keys))
        self.width = settings.threads or cores
        self.threads = threads = self._closing(Workers(self.width))
        self.rate = MinimumRate(settings.min_rate)
        self.bodies = JsonBodies(ledger, threads, self.rate)
        self.addresses = Addresses(settings.public_url, settings.trusted_proxies)
        self.datasets = DatasetService(catalogue, threads, self.bodies, self.addresses)
        reducing = self._closing(Workers(_WAITING_THREADS))
        kept = PartialStore(storage.blobs)
        self.cluster = make_cluster(settings, storage.records, self._resources)
        if self.cluster is not None:
            self.cluster.on_ended = self.metrics.on_task
        self.tiles = TileService(
            *(views, kept, threads, reducing, self.bodies, self.addresses),
            *(self.cluster, shared_roots(settings)),
        )
        self.pipelines = PipelineService(
            pipelines, threads, self.bodies, self.metrics, self.addresses
        )

    def _add_losses_and_runs(self, lent: LentLedger | None) -> None:
        settings, storage, records, ledger = self.settings, self.storage, self.records, self.ledger
        presence = Presence(storage.directory / CLAIMS)
        self.reservations = self._closing(
            Reservations(presence, settings.quota_spool_bytes, storage.space)
        )
        inputs = InputStore(storage.blobs, settings.input_days)
        self.losses = LossService(
            keys=self.keys,
            inputs=Inputs(
                inputs, records, timed_turns(storage.turn, self.metrics), ledger, self.decoders
            ),
            spools=Spools(
                storage.directory / SPOOL,
                settings.spool_memory,
                settings.spool_limit,
                self.reservations,
                ledger,
            ),
            threads=self.threads,
            buffers=self.buffers,
            ledger=ledger,
            metrics=self.metrics,
            rate=self.rate,
            max_body=settings.max_body,
            max_input=settings.max_input,
            max_samples=settings.max_samples,
            max_blocks=settings.max_blocks,
            admission=Admission(settings.request_memory, settings.spool_limit),
            is_spent=lambda owner: self.throttle.is_spent(owner) or ledger.is_spent(owner),
        )
        self.notices = self._closing(storage.notices())
        runs = Runs(records, settings.run_days, Watch(self.notices))
        runs.on_state = self.metrics.on_run
        streams = Streams(records, storage.blobs, runs)
        disk = self._closing(Workers(_WAITING_THREADS))
        self.sealing = sealing = SealingContext(
            streams,
            records,
            self.losses,
            self.threads,
            sums_bytes=settings.request_memory,
            tracing=self.tracing,
            cluster=self.cluster,
        )
        self.sealer = self._closing(make_sealer(settings, storage, sealing, lent))
        self.sealer.on_ended = self.metrics.on_sealed
        most = min(
            (settings.max_upload, "THALWEG_MAX_UPLOAD"),
            (settings.quota_stream_bytes, "THALWEG_QUOTA_STREAM_BYTES"),
        )
        self.runs = RunService(
            runs=runs,
            streams=streams,
            removal=Removal(streams, records),
            reports=RunReportsService(self.sealer),
            losses=self.losses,
            uploads=Uploads(streams, self.losses, disk, most),
            without_version=settings.uploads_without_version,
            threads=self.threads,
            bodies=self.bodies,
            addresses=self.addresses,
        )

        sets = LossSets(records, storage.blobs)
        source = SetSource(sets, Kept(ledger, settings.portfolio_bytes // 2, purpose="portfolio"))
        prepared: Kept[Any] = Kept(ledger, settings.portfolio_bytes // 2, purpose="portfolio")
        self.portfolios = PortfolioService(
            sets=sets,
            making=Making(sets, streams, self.losses),
            importing=Importing(sets, self.losses, self.decoders),
            answers=Answers(source, prepared, self.threads, settings.max_groups),
            threads=self.threads,
            waiting=self.tiles.reducing,
            bodies=self.bodies,
            addresses=self.addresses,
        )

    def _add_operations(self, board: Board) -> None:
        """Make who is admitted, and what watches and counts."""
        settings, ledger = self.settings, self.ledger
        self.api_keys = self._closing(
            Keys(settings.api_keys, ApiKeys(self.storage.records), digest_key)
        )
        origins = Origins(settings.hosts, settings.public_url, settings.cors_origins)
        self.cookies = Cookies(self.keys, origins)
        limits = BudgetLimits(
            settings.request_memory, settings.request_cpu_seconds, settings.request_items
        )
        self.budgets = Budgets(limits, ledger)
        self.budgets.on_exceeded = self.metrics.on_exceeded
        self.budgets.on_cancelled = self.metrics.on_cancelled
        # Closed before the pools of threads, which wait for what runs.
        self._resources.callback(self.budgets.stop)
        self.audit = self._closing(AuditLog(settings.audit_log))
        self.warm_up, self.lag_probe = WarmUp(), LoopLagProbe(self.threads.start)
        self.monitor = self._closing(monitor(self, board, self.slot, self.metrics))
        self.readiness = Readiness(
            self.monitor, board, self.slot, lambda: self.sealer.jobs.poisoned
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start what works without requests; close everything in the end."""
        self.warm_up.start()
        with self._resources:
            if has_long_work(self.slot):
                self.sweeper.start()
                self.sealer.start()
                self.notices.relay()
                if self.cluster is not None:
                    self.cluster.watch()
                # Another worker takes the job, which could not finish here.
                self.slot.on_drain = self.sealer.stop
            self.monitor.start()
            self.lag_probe.start()
            try:
                yield
            finally:
                await self.lag_probe.stop()


def make_sealer(
    settings: Settings, storage: Storage, sealing: SealingContext, lent: LentLedger | None
) -> Sealer:
    """Return the sealer; ``lent`` is the ledger of a process that computes one job alone."""
    losses = sealing.losses
    jobs = Jobs(sealing.records, presence=losses.spools.reservations.presence)
    if lent is not None:
        # It is the process alone with a job.
        return Sealer(sealing, jobs)
    notices = Notices(storage.directory / NOTICES / "jobs")
    return Sealer(sealing, jobs, alone=Alone(settings, losses.ledger), notices=notices)


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
        current_trace,
    )


def shared_roots(settings: Settings) -> list[Path]:
    """Return the directories that workers of a cluster have at the same paths.

    Raises:
        ValueError: one is no directory that may hold datasets.
    """
    return list(map(Path, parse_roots(settings.shared_roots, settings.data_dir).roots))


def make_catalogue(
    settings: Settings, store: StateStore, decoders: DecoderPool, ledger: Ledger, column: Column
) -> Catalogue:
    """Return the datasets: those found, those of the operator's catalogue, those registered.

    Raises:
        ValueError: a dataset root contains the data directory, or the catalogue is malformed.
    """
    roots = parse_roots(settings.dataset_roots, settings.data_dir, settings.max_entries, ledger)
    found = scan(roots, decoders) if settings.scan else Scan({})
    entries = found.specs | read_catalogue(settings.catalogue)
    buffers = BufferPool(max(settings.read_buffers // column.table.processes, 1))
    catalogue = Catalogue(store, roots, entries, buffers, decoders)
    catalogue.cursors = Cursors(ledger)
    catalogue.notice, catalogue.clashes = found.ended, found.clashes
    return catalogue
