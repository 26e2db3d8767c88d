"""The commands ``serve`` and ``openapi``: settings, and the server processes from them."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import ipaddress
import os
import re
import resource
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path

import orjson
import structlog
from pydantic import ValidationError

from app.audit import AuditLog
from app.cores import count_cores
from app.datasets.files.addresses import split_roots
from app.datasets.files.roots import Roots
from app.logs import configure_logging
from app.server.board import Board, WorkerSlot
from app.server.forking import in_child
from app.server.lanes.table import LONG, Table, parse_lanes, table_of
from app.server.limits import ServerLimits
from app.server.memory import raise_malloc_thresholds
from app.server.serve import Lanes
from app.server.serve import serve as serve_application
from app.server.supervisor import USAGE
from app.service_error import ServiceError
from app.settings import METRICS_DIRECTORY, PREFIX, Settings
from app.state.api_keys import ApiKeys
from app.state.base import StorageError
from app.state.presence import pids_beside
from app.state.private import private_directory
from app.state.storage import CLAIMS, FILES, SQLITE, open_storage
from app.state.token_keys import resolve_keys
from app.tokens import KeyRing
from app.wording import wording
from core.errors import CoreError, OptionError

from .parser import FLAGS

_NOWHERE = "there is no such directory"
_NO_SETTINGS = re.compile(
    r"(URL|KEY|KERNEL_CACHE|AZURITE|AGGREGATE_OPTIONS|SOAK|PEER_SEEDS|NODE_MODULES|OASIS_\w+|\w+_PYTHON)"
)
"""Variables with the prefix that something else reads: the client, commands, or tests."""
_THRESHOLDS = (2000, 10, 40)
"""New objects per collection of garbage, and collections of each generation per one of the next;
Python's default is 700, 10 and 10."""
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables that keep numpy's linear algebra and Arrow's allocator from starting threads."""


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
    directories, addresses = split_roots(settings.dataset_roots)
    missing = [(root, _NOWHERE) for root in Roots(directories, settings.data_dir).roots]
    missing = [(root, why) for root, why in missing if not Path(root).is_dir()]
    if addresses:
        # As below: their library starts threads.
        missing += in_child(partial(_missing_buckets, addresses))
    for root, why in missing:
        structlog.get_logger().warning("this dataset root is not there", path=root, reason=why)
    try:
        AuditLog(settings.audit_log).close()
    except OSError as e:
        raise ValueError(f"the audit log {settings.audit_log} cannot be written: {e}") from e
    if settings.state == SQLITE and settings.blobs == FILES:
        keys, has_stored_keys = look_into(settings)
    else:
        # Their libraries start threads, which a process that forks must not have.
        keys, has_stored_keys = in_child(partial(look_into, settings))
    if others := pids_beside(settings.data_dir / CLAIMS):
        structlog.get_logger().warning(
            "other processes use this data directory, which is safe; limits hold for each service",
            pids=others,
        )
    check_exposure(settings, has_stored_keys=has_stored_keys)
    if settings.engine != "local":
        in_child(partial(_check_engine, settings))
    return keys


def _check_engine(settings: Settings) -> None:
    from app.tasks import check_scheduler, scheduler_of  # noqa: PLC0415 - as above

    check_scheduler(scheduler_of(settings))


def _missing_buckets(addresses: list[str]) -> list[tuple[str, str]]:
    from app.datasets.files.places import missing_roots, parse_roots  # noqa: PLC0415 - as above

    return list(missing_roots(parse_roots(",".join(addresses))))


def look_into(settings: Settings) -> tuple[tuple[str, ...], bool]:
    """Return the token keys, and whether there are API keys in the stores."""
    storage = open_storage(
        settings.data_dir, settings.reserve_bytes, settings.state, settings.blobs
    )
    with contextlib.closing(storage):
        try:
            keys = resolve_keys(settings.token_keys, storage)
            KeyRing(keys)
        except ValueError as e:
            raise ValueError(f"THALWEG_TOKEN_KEYS: {e}") from e
        return tuple(key.to_text() for key in keys), ApiKeys(storage.records).exist()


def _board(settings: Settings) -> Board:
    """Return the board of so many processes as the settings say.

    Raises:
        ValueError: they are malformed.
    """
    return Board(parse_lanes(settings.lanes, settings.workers, count_cores()))


@contextlib.contextmanager
def kept(settings: Settings) -> Iterator[Settings]:
    """Provide settings whose data directory ends with the block if nothing is to be kept."""
    if not settings.ephemeral:
        yield settings
        return
    with private_directory("ephemeral") as directory:
        yield settings.model_copy(update={"data_dir": directory, "ephemeral": False})


def run_server(settings: Settings) -> int:
    """Serve until a signal; return the exit code.

    Raises:
        ValueError: token keys are malformed, or not exactly one signs, a dataset root contains
            the data directory, or strangers could use a service without keys.
        StorageError: the data directory cannot be used.
    """
    _allow_open_files()
    # Before any thread: a heap that one had of its own would be passed on to all workers.
    if reason := raise_malloc_thresholds():
        structlog.get_logger().info("malloc thresholds unchanged", reason=reason)
    board = _board(settings)
    lanes = Lanes(import_all, compiling, warm, lanes_of_routes, settings.memory_limit)
    with contextlib.ExitStack() as undo:
        settings = undo.enter_context(kept(settings))
        settings = settings.model_copy(update={"token_keys": _prepared(settings)})
        if board.has_lanes:
            # Before any metric is defined.
            os.environ[METRICS_DIRECTORY] = str(undo.enter_context(private_directory("counters")))
            undo.callback(os.environ.pop, METRICS_DIRECTORY)
        return serve_application(
            partial(create, settings, board),
            host=settings.host,
            port=settings.port,
            board=board,
            lanes=lanes if board.has_lanes else None,
            limits=_limits(settings),
            drain_seconds=settings.drain_seconds,
            drain_delay=settings.drain_delay,
            trusted_proxies=settings.trusted_proxies,
            on_worker_end=forget if board.has_lanes else None,
        )


def create(settings: Settings, board: Board, slot: WorkerSlot) -> object:
    """Build the ASGI application of a worker."""
    # What the supervisor does not import, it does not hold in memory.
    from app.main import create_app  # noqa: PLC0415

    try:
        app = create_app(settings, board, slot)
    except (ValueError, StorageError, CoreError, ServiceError) as e:
        # Settings that only workers read, such as a catalogue: no fault of ours to trace.
        # The supervisor says so, once for all workers.
        slot.publish({"refused": f"[{getattr(e, 'code', OptionError.code)}] {str(e)[:1000]}"})
        raise SystemExit(USAGE) from None
    warm_up = app.parts.warm_up
    warm_up.on_loaded = spare_collections
    if slot.lane == LONG:
        os.nice(settings.long_nice)
    if slot.lane:
        # The template has loaded the kernels, but for the front, which has no use for them.
        warm_up.warms = dict
    return app


def import_all() -> None:
    """Import the application in one thread: libraries that start others are told not to."""
    values = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(_THREADS)
    try:
        for module in ("uvloop", "app.main", "app.server.protocol", "app.server.worker"):
            importlib.import_module(module)
    finally:
        for name, value in values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    # Kept for all lanes.
    lanes_of_routes()


def compiling() -> Callable[[], None] | None:
    """Return what compiles the kernels in a process of its own; None if they are compiled."""
    from app.engine import warmup  # noqa: PLC0415 - as above

    return warmup.compiling()


def warm() -> None:
    """Load the kernels."""
    from app.engine.warmup import load_kernels  # noqa: PLC0415 - as above

    load_kernels()


@cache
def lanes_of_routes() -> Table:
    """Return the lane of every route."""
    from app.main import ROUTERS  # noqa: PLC0415 - as above

    return table_of(route for router in ROUTERS for route in router.routes)


def spare_collections() -> None:
    """Have collections of garbage come seldom, and pass over whatever was loaded.

    A full collection looks at every object, and holds the interpreter's lock meanwhile. What has
    been loaded and hundreds of requests that wait, of a hundred objects each, are enough for the
    event loop to stand still for a tenth of a second every ten seconds. Nearly all that requests
    leave is freed without a collection, as connections and requests form no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def forget(pid: int) -> None:
    """Forget a worker that has died, but for what it counted."""
    from app.telemetry import forget_process  # noqa: PLC0415 - as above

    forget_process(pid)


def check_exposure(settings: Settings, *, has_stored_keys: bool) -> None:
    """Check that a service without API keys listens where only its user can reach it.

    Raises:
        ValueError: it would listen elsewhere.
    """
    if settings.api_keys or has_stored_keys:
        return
    if not is_loopback(settings.host) and not settings.allow_anonymous:
        raise ValueError(
            f"without API keys everybody who reaches {settings.host} could use and delete"
            " everything: set THALWEG_API_KEYS, run thalweg-server keys add, listen on"
            " 127.0.0.1, or set THALWEG_ALLOW_ANONYMOUS=true"
        )
    structlog.get_logger().info(
        "there are no API keys: everybody who reaches the service is its one user",
        host=settings.host,
    )


def is_loopback(host: str) -> bool:
    """Whether an address, or every address of a name, is one of loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    # The zone of a link-local address is no part of it.
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    return bool(addresses) and all(ipaddress.ip_address(a).is_loopback for a in addresses)


@contextlib.contextmanager
def as_option_errors() -> Iterator[None]:
    """Translate what settings and stores raise that cannot be used.

    Raises:
        OptionError: as commands say it.
    """
    try:
        yield
    except ValidationError as e:
        raise OptionError(sentence_of(e)) from e
    except (ServiceError, ValueError) as e:
        raise OptionError(str(e), hint=getattr(e, "hint", None)) from e


@as_option_errors()
def serve(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    settings = settings_of(args)
    configure_logging(settings.log_level)
    for name, nearest in unknown_variables(os.environ):
        structlog.get_logger().warning(
            "this variable is not a setting and is ignored", variable=name, nearest=nearest
        )
    return run_server(settings)


def unknown_variables(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each variable that looks like a setting and is none, with the one that it is most like.

    Args:
        names: of all variables.
    """
    known = [name.upper() for name in Settings.model_fields]
    for name in sorted(names):
        short = name.upper().removeprefix(PREFIX)
        if short in known or short == name.upper() or _NO_SETTINGS.fullmatch(short):
            continue
        nearest = get_close_matches(short, known, 1)
        yield name, PREFIX + nearest[0] if nearest else None


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings that options and variables say.

    Raises:
        ValidationError: they cannot be.
    """
    names = [*FLAGS, "scan", "allow_anonymous", "ephemeral", "log_level"]
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return Settings(**options)


def sentence_of(error: ValidationError) -> str:
    """Say in one line what is wrong with settings, without their values: some are secret."""
    found = error.errors(include_url=False, include_input=False)
    sentences = []
    for each in found:
        names = [f"THALWEG_{str(name).upper()}" for name in each["loc"][:1]]
        sentences.append(("".join(names) + wording(each)).removeprefix(": "))
    return "; ".join(sentences)


def openapi(_args: argparse.Namespace) -> int:
    """Print the OpenAPI document."""
    from app.main import create_app  # noqa: PLC0415 - seconds that the supervisor saves

    with kept(Settings(ephemeral=True)) as settings:
        document = create_app(settings).openapi()
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return 0
