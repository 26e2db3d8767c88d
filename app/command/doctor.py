"""The command ``doctor``: what a service would meet that is started with the same settings.

A check looks at one thing and returns a finding. It changes nothing but what opening a store does;
what a service has yet to make is tried out beside it and removed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import orjson
from pydantic import ValidationError

from app.cores import count_cores, count_memory
from app.datasets.files.mapped import is_local
from app.datasets.files.roots import Roots
from app.decoding.base import DecoderLimits
from app.decoding.process import DecoderProcess, StartError
from app.errors import ServiceError
from app.logs import configure_logging
from app.server.lanes.table import LONG, parse_lanes
from app.settings import MIB, Settings, unknown_variables
from app.state.api_keys import ApiKeys
from app.state.base import HeadMissingError, StateStore
from app.state.blob_files import FileBlobStore
from app.state.durable import store_error
from app.state.remote import open_database, redacted, try_objects
from app.state.space import Space
from app.state.sqlite import SqliteStateStore
from app.state.sqlite_schema import VERSION
from app.state.storage import BLOBS, FILES, IDENT, KIND, SQLITE, STATE, Probe, place_of, unusable
from app.state.token_keys import FILE, load_keys, shared_keys
from app.tokens import KeyRing, parse_key
from core._jit import CACHE_VARIABLE, cache_roots, find_published

if TYPE_CHECKING:
    from app.state.postgres import PostgresStateStore

from .serving import check_exposure, is_loopback, kept
from .service import sentence_of, settings_of

OK, WARN, WRONG = "ok", "warn", "wrong"
_TOUCHES = 5
"""Commits that are measured."""
_SLOW = 0.05
"""Seconds of a commit from which on uploads are slow."""
_APART, _FAR_APART = 5.0, 600.0
"""Seconds between two clocks that deserve a warning, and that are wrong: the sweeper takes what
was stored an hour ago, and is in no record, for garbage."""
_FAR = 0.25
"""Seconds of storing a small object from which on uploads are slow."""
_LESS = (
    "Lower THALWEG_MEMORY_LIMIT, THALWEG_WORKERS, THALWEG_DECODERS or THALWEG_DECODER_MEMORY, or"
    " give it more: the kernel would end workers"
)
_OLDEST_POSTGRES = 13
_SUPERVISOR, _WORKER, _ALONE, _DECODER = 55 * MIB, 300 * MIB, 300 * MIB, 200 * MIB
"""Memory of processes, as ``deploy/README.md`` says."""
_FILES = 1024
"""Open files of a process besides its connections."""
_CLOCKS = "Have NTP set both clocks: keys and what is kept expire by them"
_NOT_SYNCHRONISED = 5
"""What adjtimex returns where nothing sets the clock."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found."""

    verdict: str
    """``ok``, ``warn`` or ``wrong``."""
    found: str
    mend: str | None = None
    """How to mend it; None where it is well."""


class _EarlierStateError(Exception):
    """To open the state would change it for good."""


def doctor(args: argparse.Namespace) -> int:
    """Print a line for each check; return 1 if something is wrong."""
    configure_logging(args.log_level or "warning")
    findings = {}
    for name, finding in _examine(args):
        findings[name] = finding
        if not args.json:
            mend = f". {finding.mend}" if finding.mend else ""
            print(f"{finding.verdict:<6}{name:<16}{finding.found}{mend}", flush=True)  # noqa: T201 - the command's output
    is_wrong = any(finding.verdict == WRONG for finding in findings.values())
    if args.json:
        checks = [{"check": name, **asdict(finding)} for name, finding in findings.items()]
        document = orjson.dumps({"wrong": is_wrong, "checks": checks}, option=orjson.OPT_INDENT_2)
        print(document.decode())  # noqa: T201 - as above
    return int(is_wrong)


def _examine(args: argparse.Namespace) -> Iterator[tuple[str, Finding]]:
    with contextlib.ExitStack() as undo:
        try:
            settings = undo.enter_context(kept(settings_of(args)))
        except (ValueError, ServiceError) as e:
            text = sentence_of(e) if isinstance(e, ValidationError) else str(e)
            yield "settings", Finding(WRONG, text, "The other checks need settings that can be")
            return
        for name, check in CHECKS.items():
            yield name, _finding(check, settings)


def _finding(check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    """Run a check; whatever it raises is what it has found."""
    try:
        return check(settings)
    except _EarlierStateError as e:
        return Finding(WARN, str(e), "Back it up before this version starts, which is then checked")
    except (ServiceError, OSError, ValueError, StartError) as e:
        return Finding(WRONG, str(e), getattr(e, "hint", None))
    except Exception as e:  # noqa: BLE001 - the others go on
        return Finding(WRONG, f"the check failed: {type(e).__name__}: {e}")


_Advice = tuple[bool, str]
"""Whether something has to be mended, and how."""


def _judge(
    found: str, *, warn: tuple[_Advice, ...] = (), wrong: tuple[_Advice, ...] = ()
) -> Finding:
    """Return a finding with the advice that holds: the worst of it decides."""
    faults, warnings = ([text for holds, text in advice if holds] for advice in (wrong, warn))
    verdict = WRONG if faults else WARN if warnings else OK
    return Finding(verdict, found, ". ".join([*faults, *warnings]) or None)


def _variables(_settings: Settings) -> Finding:
    unknown = dict(unknown_variables(os.environ))
    if not unknown:
        return Finding(OK, f"{sum(n.startswith('THALWEG_') for n in os.environ)} variables are set")
    nearest = [f"Did you mean {near} by {name}?" for name, near in unknown.items() if near]
    mend = " ".join(nearest) or "See Settings in deploy/README.md"
    return Finding(WARN, f"not settings, and ignored: {', '.join(unknown)}", mend)


def _data_directory(settings: Settings) -> Finding:
    directory, user = settings.data_dir, os.geteuid()
    place = _existing(directory)
    room = Space(place, settings.reserve_bytes).room()
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        local, owner = is_local(descriptor), os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
    is_there = place == directory.absolute()
    disk = "a disk of this machine" if local else "a file server, or a disk of an unknown kind"
    root = f"Run doctor as user {owner}, who owns {place}: root may do what the service may not"
    return _judge(
        f"{directory}{'' if is_there else ', yet to be made,'} is on {disk}: {_size(room.free)}"
        f" free, {_size(room.reserve)} of it reserved",
        warn=(
            (not local, "Use a local disk: few servers keep the locks that SQLite needs"),
            (is_there and not user and owner > 0, root),
        ),
        wrong=(
            (
                not os.access(place, os.W_OK | os.X_OK),
                f"User {user} cannot write to {place}: chown it, or set THALWEG_DATA_DIR",
            ),
            (room.left <= 0, "Make room: below the reserve nothing new is stored"),
        ),
    )


def _state(settings: Settings) -> Finding:
    with _heads(settings) as heads:
        commit, apart = _measure(heads)
        slow = (commit > _SLOW, "Use a faster disk, or a nearer one: parts of uploads wait for it")
        if isinstance(heads, SqliteStateStore):
            return _judge(f"SQLite: a commit takes {_milliseconds(commit)}", warn=(slow,))
        database = heads.describe()
    version = database["server_version"]
    standby = "a" if database["synchronous_standby_names"] else "no"
    return _judge(
        f"Postgres {version} at {redacted(settings.state)}: a commit takes {_milliseconds(commit)};"
        f" synchronous_commit is {database['synchronous_commit']}, with {standby} synchronous"
        f" standby; its clock is {apart:+.3f} s from ours",
        warn=(slow, (_FAR_APART >= abs(apart) > _APART, _CLOCKS)),
        wrong=(
            (int(version.partition(".")[0]) < _OLDEST_POSTGRES, "Use Postgres 13 or newer"),
            (abs(apart) > _FAR_APART, _CLOCKS),
        ),
    )


def _measure(heads: StateStore | PostgresStateStore) -> tuple[float, float]:
    """Return the seconds of a commit, and by how many the store's clock is ahead of ours."""
    commits, apart = [], []
    for _ in range(_TOUCHES):
        began, now = time.monotonic(), time.time()
        heads.touch(KIND, IDENT)
        commits.append(time.monotonic() - began)
        apart.append(heads.get(KIND, IDENT).used - now - commits[-1] / 2)
    return statistics.median(commits), statistics.median(apart)


def _blobs(settings: Settings) -> Finding:
    if settings.blobs == FILES:
        with _tried(settings, BLOBS) as directory:
            with contextlib.closing(FileBlobStore(directory / BLOBS)) as blobs:
                blobs.check()
        return Finding(OK, f"files in {settings.data_dir / BLOBS} can be written")
    _, seconds = try_objects(settings.blobs)
    return _judge(
        f"{redacted(settings.blobs)} keeps the conditions of writes; one takes"
        f" {_milliseconds(seconds)}",
        warn=((seconds > _FAR, "Use a store that is nearer: each part of an upload waits for it"),),
    )


def _api_keys(settings: Settings) -> Finding:
    with _heads(settings) as heads:
        stored = list(ApiKeys(heads).records())
    check_exposure(settings, has_stored_keys=bool(stored))
    if not settings.api_keys and not stored:
        return _judge(
            f"none: everybody who reaches {settings.host} is the one user of the service",
            warn=((not is_loopback(settings.host), "Add keys, unless others cannot reach it"),),
        )
    valid = sum(key.state(time.time()) == "valid" for key in stored)
    return _judge(
        f"{len(settings.api_keys)} set, {valid} stored and valid, {len(stored) - valid} revoked or"
        f" expired; the service listens on {settings.host}",
        warn=(
            (
                not settings.api_keys and not valid,
                "Add one: nobody is let in (thalweg-server keys add)",
            ),
        ),
    )


def _token_keys(settings: Settings) -> Finding:
    place, keys = "THALWEG_TOKEN_KEYS", [parse_key(text) for text in settings.token_keys]
    if not keys and settings.state != SQLITE:
        place = "the database"
        with _heads(settings) as heads, contextlib.suppress(HeadMissingError):
            keys = shared_keys(heads)
    elif not keys:
        place = str(settings.data_dir / FILE)
        keys = load_keys(settings.data_dir) if (settings.data_dir / FILE).exists() else []
    if not keys:
        return Finding(OK, f"none: the service will create one in {place}")
    try:
        signer = KeyRing(keys).signer
    except ValueError as e:
        return Finding(WRONG, f"{place}: {e}", "Give each an id of its own, and one the use sign")
    uses = ", ".join(f"{key.ident} ({key.use})" for key in keys)
    return Finding(OK, f"{uses} in {place}: {signer} signs")


def _kernels(_settings: Settings) -> Finding:
    if (build := find_published()) is not None:
        return Finding(OK, f"compiled for this CPU in {build}")
    root = next((root for root in cache_roots() if os.access(_existing(root), os.W_OK)), None)
    return _judge(
        f"not compiled for this CPU; {root or 'no directory'} can take them",
        warn=(
            (
                root is not None,
                "Run thalweg-server warmup, or the first start takes a minute of two CPUs",
            ),
            (root is None, f"Set {CACHE_VARIABLE} to a directory, or each process compiles them"),
        ),
    )


def _memory(settings: Settings) -> Finding:
    lanes = _lanes(settings)
    there, limit = count_memory(), settings.memory_limit
    least = _SUPERVISOR + len(lanes) * _WORKER + limit
    alone = sum(lane in {"", LONG} for lane in lanes) * _ALONE
    most = least + alone + settings.decoders * (_DECODER + settings.decoder_memory)
    return _judge(
        f"{_size(there)}; the service may take {_size(most)}: {_size(limit)} of"
        f" THALWEG_MEMORY_LIMIT, {_size(least - limit)} of {len(lanes)} workers, {_size(alone)} of"
        f" runs that are computed, the rest of {settings.decoders} decoders",
        warn=((least <= there < most, _LESS),),
        wrong=((there < least, _LESS),),
    )


def _cpus(settings: Settings) -> Finding:
    cores, lanes = count_cores(), _lanes(settings)
    long = sum(lane in {"", LONG} for lane in lanes)
    return _judge(
        f"{cores} of the machine's {os.cpu_count()}, by affinity and quota, for {len(lanes)}"
        f" workers, {long} of them for long work",
        warn=((long > cores, "Set THALWEG_WORKERS to the number of CPUs: more take turns"),),
    )


def _open_files(settings: Settings) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + _FILES
    most = "any number of" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    return _judge(
        f"{most} in a process, for {settings.max_connections:,} connections and files of datasets",
        warn=(
            (
                0 <= hard < wanted,
                f"Raise the limit (ulimit -n, LimitNOFILE, --ulimit nofile) to {wanted:,}, or lower"
                " THALWEG_MAX_CONNECTIONS",
            ),
        ),
    )


def _sandbox(settings: Settings) -> Finding:
    limits = DecoderLimits(memory=settings.decoder_memory, sandbox=settings.decoder_sandbox)
    decoder = DecoderProcess(limits)
    try:
        decoder.wait_until_ready()
        held = decoder.protections
    finally:
        decoder.kill()
    missing = [name for name in ("Landlock", "seccomp") if not held.get(name.lower())]
    if settings.decoder_sandbox == "off":
        mend = "Set THALWEG_DECODER_SANDBOX to auto unless all files are yours"
    else:
        mend = "Use a kernel, and a container, that has them before you open files of strangers"
    return _judge(
        f"a decoder starts, without {' and '.join(missing)}"
        if missing
        else "a decoder starts, with Landlock and seccomp",
        warn=((bool(missing), mend),),
    )


def _dataset_roots(settings: Settings) -> Finding:
    roots = [Path(root) for root in Roots.parse(settings.dataset_roots, settings.data_dir).roots]
    missing = [str(root) for root in roots if not root.is_dir()]
    closed = [
        str(root) for root in roots if root.is_dir() and not os.access(root, os.R_OK | os.X_OK)
    ]
    return _judge(
        ", ".join(map(str, roots)) or "none: there are no files to serve",
        warn=((bool(missing), f"Make or mount {', '.join(missing)}"),),
        wrong=((bool(closed), f"Let user {os.geteuid()} read {', '.join(closed)}"),),
    )


def _clock(_settings: Settings) -> Finding:
    now, installed = time.time(), Path(__file__).stat().st_mtime
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    state = adjtimex(ctypes.create_string_buffer(512)) if adjtimex else 0
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    mend = "Have NTP set the clock: keys and what is kept expire by it"
    return _judge(
        f"{text}{'' if state != _NOT_SYNCHRONISED else ', which nothing keeps right'}",
        warn=((state == _NOT_SYNCHRONISED and now >= installed, mend),),
        wrong=((now < installed, f"It is before this program was installed. {mend}"),),
    )


CHECKS: dict[str, Callable[[Settings], Finding]] = {
    "settings": _variables,
    "data directory": _data_directory,
    "state": _state,
    "blobs": _blobs,
    "API keys": _api_keys,
    "token keys": _token_keys,
    "kernels": _kernels,
    "memory": _memory,
    "CPUs": _cpus,
    "open files": _open_files,
    "sandbox": _sandbox,
    "dataset roots": _dataset_roots,
    "clock": _clock,
}
"""All checks by name, in the order of their lines."""


def _lanes(settings: Settings) -> list[str]:
    return parse_lanes(settings.lanes, settings.workers, count_cores())


def _existing(path: Path) -> Path:
    """Return a path, or the nearest directory above it that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


@contextlib.contextmanager
def _tried(settings: Settings, name: str) -> Iterator[Path]:
    """Provide the data directory; where it lacks a name, one beside it that is removed.

    Who starts the service later may be another user, to whom it would not belong.

    Raises:
        StorageError: it cannot be written.
    """
    if (settings.data_dir / name).exists():
        yield settings.data_dir
        return
    with contextlib.ExitStack() as undo:
        try:
            place = TemporaryDirectory(prefix=".doctor-", dir=_existing(settings.data_dir))
        except OSError as e:
            raise unusable(settings.data_dir, store_error(e, settings.data_dir)) from e
        yield Path(undo.enter_context(place))


@contextlib.contextmanager
def _heads(settings: Settings) -> Iterator[SqliteStateStore | PostgresStateStore]:
    """Open the heads of the service, and check that they can be written.

    Raises:
        StorageError, StoreError: they cannot.
    """
    if settings.state != SQLITE:
        database = open_database(settings.state, place_of(settings.data_dir, settings.blobs))
        with contextlib.closing(database):
            database.check()
            yield database
        return
    with _tried(settings, STATE) as directory:
        path = directory / STATE
        _check_version(path)
        heads = SqliteStateStore(path, space=Space(directory, settings.reserve_bytes))
        with contextlib.closing(Probe(heads, path)) as probe, contextlib.closing(heads):
            probe.check()
            yield heads


def _check_version(path: Path) -> None:
    """Check that opening a state of an earlier version would not bring it up to date.

    Raises:
        _EarlierStateError: it would.
    """
    with contextlib.suppress(sqlite3.Error):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if 0 < version < VERSION:
                raise _EarlierStateError(
                    f"{path} has version {version}: a start brings it to {VERSION}, which earlier"
                    " servers cannot read"
                )


def _size(nbytes: int) -> str:
    return f"{nbytes / MIB:,.0f} MiB" if nbytes < 10240 * MIB else f"{nbytes / MIB / 1024:,.0f} GiB"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
