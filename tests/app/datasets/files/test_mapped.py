"""Maps are visited under leases, where writers wait, or watched: no cut ends the process."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from app.datasets.files import backends, mapped
from app.datasets.files.backends import LeasedBackend, open_backend
from app.datasets.files.buffers import PAGE, BufferPool
from app.datasets.files.file_set import FileSet, ReadFailedError
from app.datasets.files.mapped import LOCAL, MAX_MAPS, Leases, Map, Maps, is_local
from app.datasets.files.roots import Roots
from app.engine.bus_errors import Watch
from app.errors import DataChangedError
from tests.app.datasets.files.test_backends import FAR, SIZES, Setup, maps, visit
from tests.scale import SOAK
from tests.server_process import ROOT

Octets = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path, "leased", SIZES, BufferPool())


def is_map(setup: Setup, octets: Octets) -> bool:
    """Whether these are the bytes of a whole file, mapped."""
    assert isinstance(setup.backend, LeasedBackend)
    return any(octets is found.octets for found in setup.backend._maps._maps.values())


def lease_of(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE)


WRITER = """
import os, sys, time
print("ready", flush=True)
sys.stdin.readline()
begun = time.monotonic()
descriptor = os.open(sys.argv[1], os.O_WRONLY)
print(time.monotonic() - begun, flush=True)
os.ftruncate(descriptor, 10)
"""


def test_writers_wait_while_a_map_is_visited(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(setup.paths[0])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    monkeypatch.setattr(backends, "_PORTION", 50_000)
    in_map: list[int] = []

    def use(first: int, octets: Octets, positions: Indices) -> None:
        if is_map(setup, octets):
            in_map.append(first)
        if first == 0:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
            with setup.files.use(0) as descriptor:
                end = time.monotonic() + 10
                while lease_of(descriptor) == fcntl.F_RDLCK:
                    assert time.monotonic() < end
                    time.sleep(0.005)
            time.sleep(0.2)
            # The writer waits: the file still has its bytes.
            assert os.stat(setup.paths[0]).st_size == SIZES[0]  # noqa: PTH116
        pairs = zip(positions.tolist(), starts[first:].tolist(), strict=False)
        right = all(
            octets[at : at + 10_000].tobytes() == setup.contents[0][start : start + 10_000]
            for at, start in pairs
        )
        assert right or first
        intact.append(right)

    starts = np.arange(30) * 10_000
    files = np.zeros(30, np.int64)
    intact: list[bool] = []
    # The first portion was visited in the map; the rest was read, when the writer may have
    # cut the file: then bytes may be wrong, and the visit says so at its end.
    try:
        setup.backend.visit(files, starts, 10_000, use)
    except DataChangedError:
        intact.clear()
    assert all(intact)
    assert in_map == [0]
    assert float(writer.stdout.readline()) > 0.15
    writer.communicate()
    assert writer.returncode == 0
    with pytest.raises(DataChangedError):
        setup.visit(FAR, 9000)
    setup.close()


def in_map(setup: Setup, pieces: Sequence[tuple[int, int]], size: int) -> bool:
    """Whether a visit finds the ranges in a map; they must be right in any case."""
    found: set[bool] = set()

    def use(first: int, octets: Octets, positions: Indices) -> None:
        found.add(is_map(setup, octets))
        for (file, start), at in zip(pieces[first:], positions.tolist(), strict=False):
            expected = setup.contents[file][start : start + size]
            assert octets[at : at + size].tobytes() == expected

    files, starts = np.array(pieces, np.int64).T.copy()
    setup.backend.visit(files, starts, size, use)
    assert len(found) == 1
    return found.pop()


def test_what_can_be_leased_is_visited_in_place(setup: Setup) -> None:
    assert in_map(setup, FAR, 9000)
    assert maps(setup.paths[0]) == 1
    # A lease does not pay for a few bytes.
    assert not in_map(setup, FAR, 9)
    setup.close()
    assert maps(setup.paths[0]) == 0


def test_what_somebody_writes_is_visited_in_a_watched_map(setup: Setup) -> None:
    with setup.paths[0].open("ab") as writer:
        assert in_map(setup, FAR, 9000)
        assert maps(setup.paths[0]) == 1
        writer.write(b"x")
    with pytest.raises(DataChangedError):
        setup.visit(FAR, 9000)
    setup.close()


def test_what_somebody_writes_is_copied_and_sent_by_the_kernel(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that nobody looks at afterwards need the lease; and copies are as fast without."""
    monkeypatch.setattr(backends, "copy_rows", None)
    with setup.paths[0].open("ab"):
        lent: list[memoryview] = []
        assert not setup.backend.lend(0, 0, 100_000, lent.append)
        assert not lent
        assert setup.read([(0, 0, 100_000, 0)], 100_000) == setup.contents[0][:100_000]
        out = np.empty(90_000, np.uint8)
        setup.backend.copy(np.zeros(1, np.int64), np.arange(10) * 20_000, 9000, out)
        assert out[9000:18_000].tobytes() == setup.contents[0][20_000:29_000]
    setup.close()


def test_what_can_be_neither_leased_nor_watched_is_read(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_REFUSED_SECONDS", 0.0)
    octets = np.memmap(setup.paths[0], np.uint8, "r+")
    assert in_map(setup, FAR, 9000)
    monkeypatch.setattr(Watch, "is_in_force", lambda _: False)
    assert not in_map(setup, FAR, 9000)
    monkeypatch.setattr(mapped, "watch", lambda *_: None)
    setup.backend.close()
    assert not in_map(setup, FAR, 9000)
    del octets
    assert in_map(setup, FAR, 9000)
    setup.close()


@pytest.mark.parametrize("failure", ["cut", "cut and restored", "disk"])
def test_a_page_that_is_missing_under_a_visitor_is_an_error(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    path, content = setup.paths[0], setup.contents[0]
    files, starts = np.zeros(1, np.int64), np.arange(20) * 10_000

    def fail(descriptor: int, size: int, offset: int) -> bytes:
        del descriptor, size
        assert 0 < offset - 5000 < PAGE
        raise OSError(errno.EIO, "Input/output error")

    def use(first: int, octets: Octets, positions: Indices) -> None:
        del first, positions
        os.truncate(path, 5000)
        assert octets.sum()
        if failure != "cut":
            path.write_bytes(content)
            os.utime(path, (10**9, 10**9))
        if failure == "disk":
            monkeypatch.setattr(os, "pread", fail)

    with path.open("ab"):
        error = ReadFailedError if failure == "disk" else DataChangedError
        expected = "Input/output error" if failure == "disk" else "shrank"
        with pytest.raises(error, match=expected):
            setup.backend.visit(files, starts, 10_000, use)
        monkeypatch.undo()
        # Zeros of a map are never shown again: the next visit has a new one.
        if failure != "cut":
            assert in_map(setup, [(0, k * 10_000) for k in range(20)], 10_000)
        assert maps(path) <= 1
    setup.close()


@pytest.mark.parametrize("what", ["is_local", "_madvise"])
def test_what_the_kernel_cannot_vouch_for_is_read(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Files of another machine, and pages that cannot be brought into memory."""
    monkeypatch.setattr(mapped, what, lambda *_: what == "_madvise")
    assert not in_map(setup, FAR, 9000)
    setup.close()


def test_a_portion_that_the_disk_cannot_deliver_is_read(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_PORTION", 50_000)
    given = 0
    real = mapped._madvise

    def fail_late(start: int, size: int, advice: int) -> int:
        nonlocal given
        given += 1
        return -1 if given > 10 else int(real(start, size, advice))

    monkeypatch.setattr(mapped, "_madvise", fail_late)
    found: list[bool] = []

    def use(_first: int, octets: Octets, _positions: Indices) -> None:
        found.append(is_map(setup, octets))

    files, starts = np.array(FAR, np.int64).T.copy()
    setup.backend.visit(files, starts, 9000, use)
    assert found == [True, True, False]
    assert setup.visit(FAR, 9000) == setup.expected_of(FAR, 9000)
    setup.close()


def test_pages_are_delivered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100 * PAGE))
    real, calls = mapped._madvise, []

    def count(start: int, size: int, advice: int) -> int:
        calls.append(size // PAGE)
        return int(real(start, size, advice))

    monkeypatch.setattr(mapped, "_madvise", count)
    with path.open("rb") as file:
        found = Map(file.fileno(), 100 * PAGE)
        # No page more than the ranges have: the system would read megabytes around it.
        asked = [
            ([0], 1, [1]),
            ([PAGE - 1, 0, 5], 2, [2]),
            ([0, PAGE - 1], 2, []),
            ([10 * PAGE - 1], 2, [2]),
            ([8 * PAGE], 3 * PAGE, [3]),
            ([8 * PAGE, 20 * PAGE, 22 * PAGE + 1], PAGE, [1, 2]),
            ([9 * PAGE, 10 * PAGE], PAGE, []),
            ([30 * PAGE], 70 * PAGE, [70]),
            ([30 * PAGE, 90 * PAGE], PAGE, []),
            ([98 * PAGE, 99 * PAGE], PAGE, []),
            ([0, 40 * PAGE], 60 * PAGE, [60]),
        ]
        for starts, size, expected in asked:
            calls.clear()
            assert found.deliver(np.array(starts, np.int64), size)
            assert calls == expected, (starts, size)


def test_a_file_that_ends_before_its_map_is_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(10 * PAGE))
    with path.open("rb") as file:
        found = Map(file.fileno(), 10 * PAGE)
        assert found.deliver(np.array([0]), PAGE)
        os.truncate(path, PAGE)
        assert not found.deliver(np.array([5 * PAGE]), PAGE)
        assert found.deliver(np.array([0]), PAGE)


def test_leases_are_shared_and_given_back(setup: Setup) -> None:
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: setup.visit(FAR, 9000), range(100)):
            assert got == setup.expected_of(FAR, 9000)
    assert maps(setup.paths[0]) == 1
    with setup.files.use(0) as descriptor:
        assert lease_of(descriptor) == fcntl.F_UNLCK
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
    os.close(os.open(setup.paths[0], os.O_WRONLY | os.O_NONBLOCK))
    setup.close()


def test_a_lease_lasts_until_its_last_holder_is_done(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    leases = Leases()
    with path.open("rb") as file:
        descriptor = file.fileno()
        assert leases.take(0, descriptor)
        assert leases.take(0, descriptor)
        leases.release(0, descriptor)
        assert leases.is_intact(descriptor)
        leases.release(0, descriptor)
        assert lease_of(descriptor) == fcntl.F_UNLCK


def test_a_lease_that_a_writer_waits_for_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    leases = Leases()
    with path.open("rb") as file:
        descriptor = file.fileno()
        assert leases.take(0, descriptor)
        writer = threading.Thread(target=os.truncate, args=(path, 1))
        writer.start()
        end = time.monotonic() + 10
        while leases.is_intact(descriptor):
            assert time.monotonic() < end
        assert not leases.take(0, descriptor)
        assert path.stat().st_size == 3
        leases.release(0, descriptor)
        writer.join()
        assert path.stat().st_size == 1


def test_a_lease_that_was_refused_is_not_asked_for_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("app.datasets.files.mapped.time.monotonic", lambda: clock[0])
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    leases = Leases()
    with path.open("rb") as file, path.open("rb") as other:
        with path.open("ab"):
            assert not leases.take(0, file.fileno())
        clock[0] += 0.049
        assert not leases.take(0, file.fileno())
        # Of another file nothing is known.
        assert leases.take(1, other.fileno())
        leases.release(1, other.fileno())
        clock[0] += 0.002
        assert leases.take(0, file.fileno())
        leases.release(0, file.fileno())


def test_few_maps_are_kept(tmp_path: Path) -> None:
    kept = Maps(3)
    path = tmp_path / "x"
    path.write_bytes(bytes(PAGE))
    with path.open("rb") as file:
        for k in range(10):
            kept.of(k, file.fileno(), PAGE)
        assert maps(path) == 3 < MAX_MAPS
        assert kept.of(9, file.fileno(), PAGE) is kept.of(9, file.fileno(), 1)
        kept.clear()
        assert maps(path) == 0


def test_a_map_of_a_file_that_grew_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.raw"
    half = 1 << 20
    path.write_bytes(b"a" * half)
    with FileSet([path], Roots([tmp_path]).open, growing=True) as files:
        backend = open_backend("leased", files, BufferPool())
        assert visit(backend, [(0, 0)], half) == b"a" * half
        with path.open("ab") as file:
            file.write(b"b" * half)
        assert visit(backend, [(0, 0)], half) == b"a" * half
        with pytest.raises(ValueError, match="ends at byte"):
            visit(backend, [(0, 1)], half)
        assert files.refresh()
        assert visit(backend, [(0, half - 1)], half + 1) == b"a" + b"b" * half
        assert maps(path) == 1
        backend.close()


CUT = """
import os, sys, threading, time
from pathlib import Path
from tests.app.datasets.files.test_backends import BufferPool, Setup, packed
from app.errors import DataChangedError
size, count = 8 << 20, int(sys.argv[3])
setup = Setup(Path(sys.argv[1]), sys.argv[2], [size], BufferPool())
path, content = setup.paths[0], setup.contents[0]
rows = packed([(0, k * 10_000, k * 10_000 + 5000) for k in range(800)])
looks = [(setup.read, rows, setup.expected(*rows))]
for pieces in ([(0, k << 16) for k in range(128)], [(0, k * 99_991) for k in range(80)]):
    looks.append((setup.visit, (pieces, 1 << 16), setup.expected_of(pieces, 1 << 16)))
cuts = good = bad = 0
def cut():
    global cuts
    while cuts < count or not good or not bad:
        os.truncate(path, 4096)
        # Whoever has read what was cut must not look for changes only after it is as it was.
        time.sleep(0.1)
        with open(path, "r+b") as file:
            file.write(content)
        os.utime(path, (10**9, 10**9))
        cuts += 1
        time.sleep(0.03)
# A failure of the main thread ends the process.
thread = threading.Thread(target=cut, daemon=True)
thread.start()
while thread.is_alive():
    for look, request, wanted in looks:
        try:
            got = look(*request)
        except DataChangedError:
            bad += 1
        else:
            assert got == wanted
            good += 1
print(cuts, good, bad)
"""


@pytest.mark.parametrize("way", ["leased", "unleased", "buffered", "direct"])
def test_files_cut_all_the_time_never_kill_the_process(tmp_path: Path, way: str) -> None:
    """In a process of its own, for it would be killed."""
    count = 1000 if SOAK else 8
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path), way, str(count)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cuts, good, bad = map(int, done.stdout.split())
    assert cuts >= count
    assert good
    assert bad


LINE = "{mount} 1 8:1 / {where} rw,relatime shared:1 master:2 - {kind} /dev/sda1 rw\n"


def mount_of(descriptor: int) -> int:
    info = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    return int(info.partition("mnt_id:")[2].split()[0])


@pytest.mark.parametrize(
    ("kind", "local"),
    [("ext4", True), ("tmpfs", True), ("nfs4", False), ("fuse.sshfs", False), ("9p", False)],
)
def test_the_kind_of_the_mount_decides(tmp_path: Path, kind: str, local: bool) -> None:
    table = tmp_path / "mounts"
    with table.open("w") as file:
        mount = mount_of(file.fileno())
        other = "ext4" if not local else "nfs"
        file.write(LINE.format(mount=mount * 10, where="/a", kind=other))
        file.write(LINE.format(mount=mount, where="/with\\040space", kind=kind))
        file.flush()
        assert is_local(file.fileno(), table) == local == (kind in LOCAL)


def test_what_is_unknown_is_not_local(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text("")
    with table.open() as file:
        assert not is_local(file.fileno(), table)
        assert not is_local(file.fileno(), tmp_path / "nothing")
        gone = os.dup(file.fileno())
    os.close(gone)
    assert not is_local(gone)


def test_a_pipe_is_not_local() -> None:
    pipe = os.pipe()
    assert not is_local(pipe[0])
    for end in pipe:
        os.close(end)
