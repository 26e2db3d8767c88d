"""Start the server processes from settings."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from pathlib import Path

from app.datasets.files.roots import Roots
from app.server.limits import ServerLimits
from app.server.serve import serve
from app.settings import SECRETS, Settings
from app.state.storage import open_storage
from app.state.token_keys import resolve_keys
from app.telemetry import MULTIPROCESS, forget_process

from .exposure import check_exposure

_FACTORY = "app.main:from_environment"


def _allow_open_files() -> None:
    """Raise the limit of open files: a dataset may have hundreds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        header_bytes=settings.header_bytes,
        header_seconds=settings.header_seconds,
        body_idle_seconds=settings.idle_seconds,
        body_seconds=settings.body_seconds,
        write_idle_seconds=settings.write_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
        connections=settings.max_connections,
        address_connections=int(settings.max_connections * settings.owner_share),
        proxies=settings.trusted_proxies,
    )


def _prepared(settings: Settings) -> tuple[str, ...]:
    """Find out what would keep a worker from starting; return the token keys of all workers.

    Raises:
        ValueError, StorageError: see ``run_server``.
    """
    if settings.ephemeral and settings.workers > 1:
        raise ValueError(
            "several workers need a data directory to share what clients register: start one "
            "worker, or leave out --ephemeral"
        )
    Roots.parse(settings.dataset_roots, settings.kept_in)
    open_storage(settings.kept_in, settings.reserve_bytes).close()
    keys = resolve_keys(settings.token_keys, settings.kept_in)
    return tuple(key.to_text() for key in keys)


def run_server(settings: Settings) -> int:
    """Serve until a signal; return the exit code.

    Raises:
        ValueError: a token key is malformed, a dataset root contains the data directory,
            several workers are to keep nothing, or strangers could use a service without keys.
        StorageError: the data directory cannot be used.
    """
    _allow_open_files()
    settings = settings.model_copy(update={"token_keys": _prepared(settings)})
    check_exposure(settings)
    for name in SECRETS:
        # What the files hold is in the settings by now.
        os.environ.pop(f"THALWEG_{name.upper()}_FILE", None)
    os.environ.update(settings.environment())
    shared = _share_metrics() if settings.workers > 1 else None
    try:
        return serve(
            _FACTORY,
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            limits=_limits(settings),
            drain_seconds=settings.drain_seconds,
            drain_delay=settings.drain_delay,
            trusted_proxies=settings.trusted_proxies,
            on_worker_end=None if shared is None else forget_process,
        )
    finally:
        if shared is not None:
            shutil.rmtree(shared, ignore_errors=True)


def _share_metrics() -> Path:
    """Create the directory of the workers' metrics, before any metric is defined."""
    shared = Path(tempfile.mkdtemp(prefix="thalweg-metrics-"))
    os.environ[MULTIPROCESS] = str(shared)
    return shared
