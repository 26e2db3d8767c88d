"""How much of everything an owner may store, and for how long it is kept."""

from __future__ import annotations

from functools import partial

from app.datasets import catalogue as datasets
from app.losses import input_store
from app.monitoring import measured_quotas, noted_sweeps
from app.pipelines import registry
from app.portfolio import records as loss_sets
from app.runs import records as run_records
from app.runs import sweeping as run_sweeping
from app.runs.sweeping import Removal
from app.settings import Settings
from app.state import sweeper, token_keys
from app.state.ownership import record_id
from app.state.quotas import NOTED, Limit, Quotas
from app.state.shares import Shares
from app.state.storage import SWEEPER, Storage
from app.state.sweeper import Sweeper
from app.telemetry import Metrics
from app.tiles import reductions, views

_DAY = 86400.0
_ORPHAN_SECONDS = 60.0
"""Age of content without an owner that spares it: whoever stores it may be about to own it."""


def make_quotas(settings: Settings) -> Quotas:
    """Return how much each owner may store."""
    kinds = {
        views.KIND: "views",
        registry.KIND: "pipelines",
        datasets.KIND: "datasets",
        run_records.RUN: "runs",
        run_records.STREAM: "streams",
        run_records.SEGMENT: "segments",
        run_records.REPORT: "reports",
        input_store.KIND: "inputs",
        loss_sets.KIND: "loss_sets",
    }
    limits = {}
    for kind, name in kinds.items():
        count, nbytes = f"quota_{name}", f"quota_{name.removesuffix('s')}_bytes"
        limits[kind] = Limit(name, getattr(settings, count), getattr(settings, nbytes))
    return Quotas(limits)


def make_sweeper(
    settings: Settings, storage: Storage, quotas: Quotas, metrics: Metrics, removal: Removal
) -> Sweeper:
    """Return the sweeper, with the chores of all products."""
    days = {
        views.KIND: settings.view_days,
        registry.KIND: settings.pipeline_days,
        datasets.KIND: settings.dataset_days,
        loss_sets.KIND: settings.loss_set_days,
    }
    chores = {
        f"expired {kind}s": sweeper.expired_records(storage.records, kind, life * _DAY)
        for kind, life in days.items()
        if life is not None
    }
    # A record is noted as used once an hour; its file, every time.
    chores["expired owners of inputs"] = sweeper.expired_records(
        storage.records,
        input_store.KIND,
        settings.input_days * _DAY + NOTED,
        named=lambda: {record_id(*owned) for owned in run_sweeping.named_inputs(storage.records)},
    )
    chores["owners of inputs that are not stored"] = sweeper.records_without_blobs(
        storage.records, storage.blobs, input_store.KIND, NOTED
    )
    owners = Shares(storage.records, input_store.KIND, storage.turn)
    chores["inputs without owners"] = sweeper.blobs_without_owners(
        storage.blobs, owners, input_store.KIND, _ORPHAN_SECONDS
    )
    seconds = settings.input_days * _DAY
    chores["expired inputs"] = sweeper.expired_blobs(
        storage.blobs,
        input_store.KIND,
        seconds,
        named=lambda: {ident for _, ident in run_sweeping.named_inputs(storage.records)},
    )
    chores[f"expired {reductions.KIND}s"] = sweeper.expired_blobs(
        storage.blobs, reductions.KIND, seconds
    )
    chores["content without loss sets"] = loss_sets.blobs_without_sets(
        storage.records, storage.blobs
    )
    chores |= run_sweeping.chores(removal, storage.records, storage.blobs)
    chores["unfinished blobs"] = sweeper.always_done(storage.blobs.clean)
    chores["ballast"] = sweeper.always_done(storage.space.restore)
    chores["unfinished keys"] = sweeper.always_done(partial(token_keys.clean, settings.data_dir))
    chores["quotas"] = sweeper.always_done(measured_quotas(storage, quotas, metrics))
    note = noted_sweeps(metrics)
    return Sweeper(chores, storage.directory / SWEEPER, note=note, check=storage.check_clock)
