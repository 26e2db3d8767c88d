"""What the routes of one process share."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from app.datasets.catalogue import Catalogue, read_catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.datasets.scanning import scan
from app.engine.base import Engine
from app.engine.local import LocalEngine
from app.engine.workers import Buffers, Workers
from app.losses.input_store import InputStore
from app.losses.inputs import Inputs
from app.losses.spool import Spool
from app.pipelines.registry import Pipelines
from app.settings import Settings
from app.state.base import StateStore, StoreReadOnlyError
from app.state.memory import MemoryStateStore
from app.state.sqlite import SqliteStateStore
from app.state.token_keys import load_keys
from app.telemetry import Metrics
from app.tiles.partials import PartialStore
from app.tiles.views import Tiles
from app.tokens import Key, KeyRing, new_key, parse_key
from core.warmup import warm_up

SPOOL = "spool"
INPUTS = "inputs"
PARTIALS = "partials"
STATE = "state.sqlite"


def resolve_keys(settings: Settings) -> list[Key]:
    """The token keys of the settings, else of the data directory, else for this run only.

    Raises:
        ValueError: they are malformed.
    """
    if settings.token_keys:
        return [parse_key(text) for text in settings.token_keys]
    kept = load_keys(settings.data_dir)
    if kept is not None:
        return kept
    structlog.get_logger().warning(
        "tokens will not outlive this process: the data directory cannot be written to",
        data_dir=str(settings.data_dir),
        hint="set THALWEG_TOKEN_KEYS",
    )
    return [new_key()]


def _store(settings: Settings) -> StateStore:
    """The state of all workers; of this process alone if it cannot be kept."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        return SqliteStateStore(settings.data_dir / STATE)
    except (OSError, StoreReadOnlyError) as e:
        structlog.get_logger().warning("what is registered will not be kept", error=str(e))
        return MemoryStateStore()


def _share_of_cores(workers: int) -> int:
    """Threads of one of several processes: two at least, as one answer must not hold up all."""
    return max(2, len(os.sched_getaffinity(0)) // workers)


@dataclass(slots=True)
class Services:
    """The parts of a running service."""

    settings: Settings
    keys: KeyRing
    inputs: Inputs
    workers: Workers
    buffers: Buffers
    metrics: Metrics
    tiles: Tiles
    pipelines: Pipelines
    store: StateStore
    engine: Engine
    partials: PartialStore
    warm: threading.Event = field(default_factory=threading.Event)
    """Set when the kernels are compiled or loaded."""

    @classmethod
    def of(cls, settings: Settings) -> Services:
        """Everything made anew.

        Raises:
            ValueError: the token keys are malformed.
        """
        keys = KeyRing(resolve_keys(settings))
        store = _store(settings)
        roots = Roots.parse(settings.dataset_roots)
        entries = scan(roots) if settings.scan else {}
        catalogue = Catalogue(
            store,
            roots,
            entries | read_catalogue(settings.catalogue),
            BufferPool(settings.read_buffers),
        )
        tiles = Tiles(catalogue, store, keys)
        return cls(
            settings,
            keys,
            Inputs(InputStore(settings.data_dir / INPUTS, settings.input_days)),
            Workers(settings.threads or _share_of_cores(settings.workers)),
            Buffers(settings.buffers, settings.buffer_bytes),
            Metrics(),
            tiles,
            Pipelines(tiles, store, keys),
            store,
            LocalEngine(settings.threads or _share_of_cores(settings.workers)),
            PartialStore(settings.data_dir / PARTIALS, settings.input_days),
        )

    def start(self) -> None:
        """Get kernels ready, beside the event loop."""
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()

    def _warm_up(self) -> None:
        seconds = warm_up()
        self.warm.set()
        structlog.get_logger().info("kernels ready", seconds=round(sum(seconds.values()), 2))

    def spool(self) -> Spool:
        """Room for the rows of one answer."""
        settings = self.settings
        return Spool(self._spool_directory(), settings.spool_memory, settings.spool_limit)

    def _spool_directory(self) -> Path:
        directory = self.settings.data_dir / SPOOL
        # If it cannot be made, readiness says so, and the first row that does not fit in
        # memory.
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
        return directory

    def address(self, base: str, path: str) -> str:
        """The absolute address of a path, as clients reach it; ``base`` if nothing is said."""
        return (self.settings.public_url or base).rstrip("/") + path

    def unready(self) -> list[str]:
        """Why requests should go elsewhere; empty if they need not."""
        reasons = []
        if not self.warm.is_set():
            reasons.append("kernels are being compiled")
        if not os.access(self._spool_directory(), os.W_OK):
            reasons.append("the data directory cannot be written to")
        return reasons

    def close(self) -> None:
        """End the threads, close the files."""
        self.engine.close()
        self.workers.close()
        self.pipelines.close()
        self.tiles.catalogue.close()
        self.store.close()
