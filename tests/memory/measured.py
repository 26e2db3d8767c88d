"""A server whose memory is measured while it answers one request: charged, and grown."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from obstore.store import LocalStore

from app.command import serving
from app.command.main import main
from app.datasets.files import objects
from app.engine.ledger import Ledger
from app.server.board import Board, WorkerSlot
from app.settings import Settings
from tests.app.harness import Service
from tests.server_process import children_of

PAUSE = 0.002
"""Seconds between two looks at the memory of all processes."""
KIB = 1 << 10
_MAPPED = 4 << 20
"""Bytes of files that are mapped, from which on samples alone count."""
_FRAMES = 12


def serve_measured(arguments: Sequence[str]) -> int:
    """Run the command, with a thread in its worker that is asked about memory."""
    create = serving.create

    def create_measured(settings: Settings, board: Board, slot: WorkerSlot) -> Any:  # noqa: ANN401
        app: Any = create(settings, board, slot)
        ledger = app.parts.ledger
        threading.Thread(target=_answer, args=(ledger,), daemon=True).start()
        return app

    # In this process alone, which ends with its server.
    serving.create = create_measured
    vars(objects)["from_url"] = _open_bucket
    return main(arguments)


BUCKET = "s3://measured"
"""A bucket that has, below the path of a directory, its files."""


def _open_bucket(address: str, **_options: object) -> LocalStore:
    return LocalStore(address.removeprefix(BUCKET))


def _answer(ledger: Ledger) -> None:
    before = 0
    while question := os.read(0, 1):
        answer: object = None
        if question == b"b":
            gc.collect()
            pa.default_memory_pool().release_unused()
            ctypes.CDLL(None).malloc_trim(0)
            ledger.peak = ledger.held
            before = ledger.held
        elif question == b"p":
            # What was kept of the preparation may have been given up.
            answer = max(ledger.peak - before, 0)
        elif question == b"h":
            answer = _count_heaps()
        elif question == b"t":
            tracemalloc.start(_FRAMES)
        elif question == b"s":
            answer = _largest(tracemalloc.take_snapshot())
        os.write(1, json.dumps(answer).encode() + b"\n")


def _count_heaps() -> int:
    """The heaps of the C library's malloc."""
    library = ctypes.CDLL(None)
    library.fdopen.restype = ctypes.c_void_p
    with os.fdopen(os.memfd_create("heaps"), "w+b") as told:
        stream = ctypes.c_void_p(library.fdopen(os.dup(told.fileno()), b"w"))
        library.malloc_info(0, stream)
        library.fclose(stream)
        told.seek(0)
        return told.read().count(b"<heap nr=")


def _largest(snapshot: tracemalloc.Snapshot, count: int = 8) -> tuple[int, list[str]]:
    """The bytes that are held now, and the most so far and what called where most is held."""
    found = []
    for place in snapshot.statistics("traceback")[:count]:
        calls = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(place.traceback))
        found.append(f"{place.size / (1 << 20):8.1f} MiB in {place.count}: {calls}")
    held, peak = tracemalloc.get_traced_memory()
    return held, [f"{peak / (1 << 20):8.1f} MiB at most so far", *found]


class Measured(NamedTuple):
    """What a request took.

    Attributes:
        charged: bytes in the ledger at most.
        grown: bytes of private memory of all processes at most, beyond those before.
        seconds: how long it took.
        most: bytes above which the growth cannot have been at any moment: pages of files are in
            them where many were mapped, and ``grown`` is by samples then.
    """

    charged: int
    grown: int
    seconds: float
    most: int = 0


class Memory(NamedTuple):
    """Memory of a process in bytes, as the kernel counts it without walking its pages."""

    anonymous: int = 0
    file: int = 0
    shared: int = 0
    peak: int = 0

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Return that of a process; nothing if it has ended."""
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/status").read_text()
            fields = dict(line.split(":", 1) for line in text.splitlines())
            names = ("RssAnon", "RssFile", "RssShmem", "VmHWM")
            return cls(*(KIB * int(fields[name].split()[0]) for name in names if name in fields))
        return cls()


class MeasuredService(Service):
    """A server that tells how much it was charged, and is watched from outside."""

    command = staticmethod(serve_measured)
    piped = True

    def question(self, letter: bytes) -> Any:  # noqa: ANN401 - JSON
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(letter)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    @contextlib.contextmanager
    def measuring(self) -> Iterator[list[Measured]]:
        """Measure what happens in the block; the list has the result after it."""
        self.question(b"b")
        found: list[Measured] = []
        watch = _Watch(self.pid)
        begin = time.monotonic()
        with watch:
            yield found
        seconds = time.monotonic() - begin
        found.append(Measured(self.question(b"p"), watch.grown(), seconds, watch.most()))


class _Watch:
    """Watches the private memory of a worker and its decoders.

    The peak of the worker is the kernel's own, which no sampling misses, unless it maps files:
    their pages are in it, and come and go too fast to be taken off. Then samples count, and the
    table says so unless that peak is within the charge even with the pages. ``RLIMIT_DATA`` would
    be exact, but it counts address space: stacks of threads, and arrays of which little is
    written to, so that it refuses what takes no memory. Decoders share with the worker
    what they decode, so only what they have besides counts, and of those that were started
    meanwhile what they have beyond an idle one.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = Memory.of(pid)
        self._idle = {child: Memory.of(child).anonymous for child in children_of(pid)}
        self._fresh = max(self._idle.values(), default=0)
        self._file = self._before.file
        self._decoded = self._sampled = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PAUSE):
            self._look()
        self._look()

    def _look(self) -> None:
        now, before = Memory.of(self._pid), self._before
        decoded = 0
        for child in children_of(self._pid):
            decoded += max(Memory.of(child).anonymous - self._idle.get(child, self._fresh), 0)
        own = now.anonymous + now.shared - before.anonymous - before.shared
        self._file = max(self._file, now.file)
        self._decoded = max(self._decoded, decoded)
        self._sampled = max(self._sampled, own + decoded)

    def grown(self) -> int:
        mapped = self._file - self._before.file
        return self._sampled if mapped > _MAPPED else max(self._sampled, self._peak() - mapped)

    def most(self) -> int:
        mapped = self._file - self._before.file
        return self.grown() if mapped <= _MAPPED else self._decoded + self._peak()

    def _peak(self) -> int:
        return Memory.of(self._pid).peak - self._before.peak
