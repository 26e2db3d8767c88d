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
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import ValidationError

from app.audit import LOG, NONE
from app.cores import count_cores, count_memory
from app.datasets.files.mapped import is_local
from app.datasets.files.places import missing_roots, parse_roots
from app.datasets.spec import read_catalogue
from app.decoding.base import DecoderLimits
from app.decoding.process import DecoderProcess, StartError
from app.errors import ServiceError
from app.logs import configure_logging
from app.server.lanes.table import LONG, parse_lanes
from app.settings import MIB, Settings
from app.state.api_keys import ApiKeys
from app.state.base import RecordMissingError, StateStore
from app.state.blob_files import FileBlobStore
from app.state.durable import opened
from app.state.space import Space
from app.state.sql import IDENT, KIND
from app.state.sqlite import SqliteStateStore
from app.state.storage import BLOBS, FILES, SQLITE, redacted, try_objects
from app.state.token_keys import FILE, load_keys, shared_keys
from app.tasks import make_cluster, scheduler_of
from app.tokens import KeyRing, parse_key
from app.tracing import NO_TRACING, open_tracing
from core._jit import CACHE_VARIABLE, cache_roots, find_published

from .finding import OK, WARN, WRONG, Finding, judge
from .serving import (
    check_exposure,
    is_loopback,
    kept,
    sentence_of,
    settings_of,
    unknown_variables,
)
from .trials import EarlierStateError, existing, tried_directory, tried_records

_TOUCHES = 5
"""Commits that are measured."""
_SLOW = 0.05
"""Seconds of a commit from which on uploads are slow."""
_APART = 5.0
"""Seconds between two clocks that deserve a warning; with more, the database is refused."""
_FAR = 0.25
"""Seconds of storing a small object from which on uploads are slow."""
_LESS = (
    "Lower THALWEG_MEMORY_LIMIT, THALWEG_WORKERS or THALWEG_DECODER_MEMORY, or give it more: the"
    " kernel would end workers"
)
_OLDEST_POSTGRES = 13
_SUPERVISOR, _WORKER, _ALONE, _DECODER = 55 * MIB, 300 * MIB, 300 * MIB, 200 * MIB
"""Memory of processes, as ``deploy/README.md`` says."""
_FILES = 1024
"""Open files of a process besides its connections."""
_CLOCKS = "Have NTP set the clocks: keys expire by them, and so does what is stored"
_FREE = 5
"""What adjtimex returns where no time service sets the clock."""


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
            yield "settings", Finding(WRONG, text, "The other checks have to wait for that")
            return
        for name, check in CHECKS.items():
            yield name, run_check(check, settings)


def run_check(check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    """Run a check; whatever it raises is what it has found."""
    try:
        return check(settings)
    except EarlierStateError as e:
        return Finding(WARN, str(e), "Back it up before this version is started")
    except Exception as e:  # noqa: BLE001 - the others go on
        text = " ".join(str(e).split())
        if not isinstance(e, ServiceError | OSError | ValueError | StartError):
            text = f"the check failed: {type(e).__name__}: {text}"
        return Finding(WRONG, text, getattr(e, "hint", None))


def _variables(_settings: Settings) -> Finding:
    unknown = dict(unknown_variables(os.environ))
    if not unknown:
        return Finding(OK, f"{sum(n.startswith('THALWEG_') for n in os.environ)} variables are set")
    guesses = [f"Did you mean {nearest} by {name}?" for name, nearest in unknown.items() if nearest]
    mend = " ".join(guesses) or "deploy/README.md lists the settings"
    return Finding(WARN, f"not settings, and ignored: {', '.join(unknown)}", mend)


def _data_directory(settings: Settings) -> Finding:
    directory, user = settings.data_dir, os.geteuid()
    place = existing(directory)
    room = Space(place, settings.reserve_bytes).room()
    with opened(place, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        local, owner = is_local(descriptor), os.fstat(descriptor).st_uid
    note = "" if place == directory.absolute() else ", yet to be made,"
    disk = "a disk of this machine" if local else "a file server, or a disk of an unknown kind"
    warn = wrong = ""
    if not os.access(place, os.W_OK | os.X_OK):
        wrong = f"User {user} cannot write to {place}: chown it, or set THALWEG_DATA_DIR"
    elif room.left <= 0:
        wrong = "Make room: below the reserve nothing new is stored"
    elif not local:
        warn = "Use a local disk: few servers keep the locks that SQLite needs"
    elif not note and user == 0 != owner:
        warn = f"Run doctor as its user, {owner}: root may do what the service may not"
    found = f"{_size(room.free)} free, {_size(room.reserve)} of it reserved"
    return judge(f"{directory}{note} is on {disk}: {found}", warn, wrong)


def _state(settings: Settings) -> Finding:
    with tried_records(settings) as records:
        commit, lead = _measure(records)
        slow = "Use a faster disk, or a nearer one: uploads wait for it" if commit > _SLOW else ""
        took = f"a commit takes {_milliseconds(commit)}"
        if isinstance(records, SqliteStateStore):
            return judge(f"SQLite: {took}", slow)
        database = records.describe()
    version = database["server_version"]
    standby = "a" if database["synchronous_standby_names"] else "no"
    wrong = "" if int(version.partition(".")[0]) >= _OLDEST_POSTGRES else "Use Postgres 13 or newer"
    return judge(
        f"Postgres {version} at {redacted(settings.state)}: {took}; synchronous_commit is"
        f" {database['synchronous_commit']}, with {standby} synchronous standby; its clock is"
        f" {lead:+.3f} s from this machine's",
        slow or (_CLOCKS if abs(lead) > _APART else ""),
        wrong,
    )


def _measure(records: StateStore) -> tuple[float, float]:
    """Return the seconds of a commit, and by how many the store's clock is ahead of ours."""
    commits, leads = [], []
    for _ in range(_TOUCHES):
        began, now = time.monotonic(), time.time()
        records.touch(KIND, IDENT)
        commits.append(time.monotonic() - began)
        leads.append(records.get(KIND, IDENT).used - now - commits[-1] / 2)
    return statistics.median(commits), statistics.median(leads)


def _blobs(settings: Settings) -> Finding:
    if settings.blobs == FILES:
        with (
            tried_directory(settings, BLOBS) as place,
            closing(FileBlobStore(place / BLOBS)) as blobs,
        ):
            blobs.check()
        return Finding(OK, f"files in {settings.data_dir / BLOBS} can be written")
    _, seconds = try_objects(settings.blobs)
    return judge(
        f"{redacted(settings.blobs)} heeds conditions; a write takes {_milliseconds(seconds)}",
        "Use a store that is nearer: uploads wait for it" if seconds > _FAR else "",
    )


def _api_keys(settings: Settings) -> Finding:
    with tried_records(settings) as records:
        stored = list(ApiKeys(records).records())
    check_exposure(settings, has_stored_keys=bool(stored))
    if not settings.api_keys and not stored:
        return judge(
            f"none: everybody who reaches {settings.host} is the one user of the service",
            "" if is_loopback(settings.host) else "Add keys, unless only you can reach it",
        )
    valid = sum(key.state(time.time()) == "valid" for key in stored)
    return judge(
        f"{len(settings.api_keys)} set, {valid} stored and valid, {len(stored) - valid} revoked or"
        f" expired; the service listens on {settings.host}",
        "" if settings.api_keys or valid else "Nobody is let in: thalweg-server keys add",
    )


def _token_keys(settings: Settings) -> Finding:
    place, keys = "THALWEG_TOKEN_KEYS", [parse_key(text) for text in settings.token_keys]
    if not keys and settings.state != SQLITE:
        place = "the database"
        with tried_records(settings) as records, contextlib.suppress(RecordMissingError):
            keys = shared_keys(records)
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
    root = next((root for root in cache_roots() if os.access(existing(root), os.W_OK)), None)
    if root is None:
        mend = f"Set {CACHE_VARIABLE} to a directory, or each process compiles them"
    else:
        mend = f"Run thalweg-server warmup, or the first start does it: {root} takes them"
    return Finding(WARN, "not compiled for this CPU, which takes a minute", mend)


def _memory(settings: Settings) -> Finding:
    memory, limit = count_memory(), settings.memory_limit
    workers, long = _workers(settings)
    least = _SUPERVISOR + workers * _WORKER + limit
    decoders = settings.decoders * (_DECODER + settings.decoder_memory)
    most = least + long * _ALONE + decoders
    return judge(
        f"{_size(memory)}; the service may take {_size(most)}: {_size(limit)} by"
        f" THALWEG_MEMORY_LIMIT, {_size(least - limit)} by workers,"
        f" {_size(long * _ALONE)} by runs, {_size(decoders)} by {settings.decoders} decoders",
        "" if most <= memory else _LESS,
        "" if least <= memory else _LESS,
    )


def _cpus(settings: Settings) -> Finding:
    cores, (workers, long) = count_cores(), _workers(settings)
    return judge(
        f"{cores} of the machine's {os.cpu_count()}, by affinity and quota; workers: {workers},"
        f" {long} of them for long work",
        "" if long <= cores else "Set THALWEG_WORKERS to the number of CPUs: more take turns",
    )


def _open_files(settings: Settings) -> Finding:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + _FILES
    mend = f"Raise the limit to {wanted:,} (ulimit -Hn, LimitNOFILE=), or lower the connections"
    return judge(
        f"{'any number of' if most == resource.RLIM_INFINITY else f'{most:,}'} in a process, for"
        f" {settings.max_connections:,} connections (THALWEG_MAX_CONNECTIONS) and its files",
        mend if 0 <= most < wanted else "",
    )


def _sandbox(settings: Settings) -> Finding:
    mode = settings.decoder_sandbox
    decoder = DecoderProcess(DecoderLimits(memory=settings.decoder_memory, sandbox=mode))
    with contextlib.ExitStack() as undo:
        undo.callback(decoder.kill)
        decoder.wait_until_ready()
        lacks = [name for name in ("landlock", "seccomp") if not decoder.protections.get(name)]
    mend = "Serve no files of strangers, or use a kernel, or a container, that has both"
    if mode == "off":
        mend = "Serve no files of strangers, or set THALWEG_DECODER_SANDBOX to auto"
    found = f"without {' and '.join(lacks)}" if lacks else "with landlock and seccomp"
    return judge(f"a decoder starts, {found}", mend if lacks else "")


def _dataset_roots(settings: Settings) -> Finding:
    parsed = parse_roots(settings.dataset_roots, settings.data_dir)
    names = [*parsed.roots, *(bucket.address for bucket in parsed.buckets)]
    missing = dict(missing_roots(parsed))
    closed = [root for root in parsed.roots if not os.access(root, os.R_OK | os.X_OK)]
    closed = [root for root in closed if root not in missing]
    away = "; ".join(f"make or mount {root}: {why}" for root, why in missing.items())
    return judge(
        ", ".join(names) or "none: there are no files to serve",
        away[:1].upper() + away[1:],
        f"Let user {os.geteuid()} read {', '.join(closed)}" if closed else "",
    )


def _catalogue(settings: Settings) -> Finding:
    entries = read_catalogue(settings.catalogue)
    return Finding(OK, f"{len(entries)} datasets in {settings.catalogue}" if entries else "none")


def _audit_log(settings: Settings) -> Finding:
    destination = settings.audit_log
    if destination in {LOG, NONE}:
        return Finding(OK, destination)
    path = Path(destination)
    writable = os.access(path if path.exists() else path.parent, os.W_OK) and not path.is_dir()
    wrong = f"Have user {os.geteuid()} write there, or set THALWEG_AUDIT_LOG"
    return judge(
        f"{destination} {'can' if writable else 'cannot'} be written", "", "" if writable else wrong
    )


def _traces(settings: Settings) -> Finding:
    tracing = open_tracing(settings.traces, 0.0)
    tracing.close()
    return Finding(OK, "none are sent" if tracing is NO_TRACING else "the library is installed")


def _engine(settings: Settings) -> Finding:
    if settings.engine == "local":
        return Finding(OK, "this machine computes")
    scheduler_of(settings).reach()
    with contextlib.ExitStack() as undo:
        records = undo.enter_context(tried_records(settings))
        cluster = make_cluster(settings, records, undo)
        used, reasons = cluster.describe() if cluster is not None else (0, [])
    return judge(
        f"{settings.engine} is reached; workers that do tasks of this service: {used}"
        f"{''.join(f'; {reason}' for reason in reasons)}",
        "Have all workers run this version, and use the stores of this service" if reasons else "",
        "" if used else "Start thalweg-server worker with the settings of this service",
    )


def _clock(_settings: Settings) -> Finding:
    now, installed = time.time(), Path(__file__).stat().st_mtime
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    free = adjtimex is not None and adjtimex(ctypes.create_string_buffer(512)) == _FREE
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return judge(
        f"{text}{', set by no time service' if free else ''}",
        _CLOCKS if free else "",
        f"It is before this program was installed. {_CLOCKS}" if now < installed else "",
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
    "catalogue": _catalogue,
    "audit log": _audit_log,
    "traces": _traces,
    "engine": _engine,
    "clock": _clock,
}
"""All checks by name, in the order of their lines."""


def _workers(settings: Settings) -> tuple[int, int]:
    """Return the number of all workers, and of those for long work."""
    lanes = parse_lanes(settings.lanes, settings.workers, count_cores())
    return len(lanes), sum(lane in {"", LONG} for lane in lanes)


def _size(nbytes: int) -> str:
    return f"{nbytes / MIB:,.0f} MiB" if nbytes < 10240 * MIB else f"{nbytes / MIB / 1024:,.0f} GiB"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
