"""Workers that crash, hang, run out of memory or lie cost one request each, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.datasets.files.file_set import FileSet
from app.datasets.files.hdf5 import Hdf5Array, open_hdf5
from app.datasets.files.roots import Roots
from app.datasets.items.tables import TableItems
from app.datasets.opening import open_recording
from app.decoding.base import DecoderLimits, Sandbox
from app.decoding.pool import DecoderPool
from app.decoding.process import DecoderProcess
from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits
from app.errors import BusyError, DatasetUnreadableError, ShareExceededError
from app.tally import Column, Table
from core.errors import BudgetExceededError, CancelledError, FormatError
from core.tiles.recording import Hints
from tests.descriptors import nothing_left_open, open_files
from tests.server_process import ROOT

FRAMES = np.arange(4 * 3 * 64 * 64, dtype="<u2").reshape(4, 3, 64, 64)
MIB = 1 << 20


def everything(shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((0, n) for n in shape)


def write(path: Path, data: npt.NDArray[np.generic] = FRAMES, **options: object) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=data, **{"chunks": True, "compression": "gzip", **options})
    return path


@contextlib.contextmanager
def opened(path: Path, pool: DecoderPool) -> Iterator[Hdf5Array]:
    with FileSet([path], Roots([path.parent]).open) as files:
        yield open_hdf5(files, 0, None, pool)


def read(array: Hdf5Array) -> npt.NDArray[np.generic]:
    return array.read([everything(array.shape)])[0]


@pytest.fixture
def pools() -> Iterator[Callable[..., DecoderPool]]:
    with contextlib.ExitStack() as stack:

        def make(**limits: object) -> DecoderPool:
            pool = DecoderPool(DecoderLimits(**limits))  # type: ignore[arg-type]  # for brevity
            return stack.enter_context(contextlib.closing(pool))

        yield make


Pools = Callable[..., DecoderPool]


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def gone(pid: int) -> bool:
    """Whether a process is no more, or only waits to be counted, all of its threads ended."""
    try:
        found = status(pid)
        return found["State"].startswith("Z") and found["Threads"] == "1"
    except FileNotFoundError:
        return True


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_worker_decodes_and_stays(tmp_path: Path, pools: Pools, sandbox: Sandbox) -> None:
    pool = pools(sandbox=sandbox)
    assert pool.pids == []
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        for _ in range(3):
            values = read(array)
            assert np.array_equal(values, FRAMES)
            assert not values.flags.writeable
        assert pool.pids == [pid]
        filtered = sandbox == "auto" and Path("/proc/sys/kernel/seccomp").is_dir()
        assert status(pid)["Seccomp"] == ("2" if filtered else "0")
        assert status(pid)["NoNewPrivs"] == "1"
        limits = Path(f"/proc/{pid}/limits").read_text()
        for name in ("Max file size", "Max core file size"):
            assert limits.split(name)[1].split()[:2] == ["0", "0"]
        assert int(limits.split("Max open files")[1].split()[0]) < 512
        assert limits.split("Max address space")[1].split()[0] != "unlimited"


def test_a_worker_gets_no_secrets(
    tmp_path: Path, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THALWEG_TOKEN_KEYS", "secret")
    pool = pools()
    with opened(write(tmp_path / "a.h5"), pool):
        environment = Path(f"/proc/{pool.pids[0]}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"THALWEG" not in environment


def test_a_worker_that_dies_costs_one_request(tmp_path: Path, pools: Pools) -> None:
    pool = pools()
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)

        def abort() -> None:
            os.kill(pid, signal.SIGABRT)
            os.kill(pid, signal.SIGCONT)

        threading.Timer(0.3, abort).start()
        with pytest.raises(DatasetUnreadableError, match=r"'a\.h5' crashed .*SIGABRT") as caught:
            read(array)
        assert caught.value.members == {"file": "a.h5", "reason": "crash"}
        assert np.array_equal(read(array), FRAMES)
        assert pid not in pool.pids
        assert pool.replaced == 1
        os.kill(pool.pids[0], signal.SIGKILL)
        wait_until(lambda: gone(pool.pids[0]))
        # One that died while it was idle costs nothing.
        assert np.array_equal(read(array), FRAMES)


class Idle:
    """A worker that waits."""

    def __init__(self, *known: str, alive: bool = True) -> None:
        self.known = dict.fromkeys(known)
        self.alive = alive
        self.killed = False

    def kill(self) -> None:
        self.killed = True


def test_the_worker_that_has_the_file_open_is_preferred(pools: Pools) -> None:
    pool = pools()
    dead, one, two, three = Idle("c", alive=False), Idle("a"), Idle("b", "a"), Idle("c")
    pool._idle = [dead, one, two, three]  # type: ignore[list-item]  # as far as it is looked at
    # Any other one is better than a new one; those that died are cleared away.
    with pool._changed:
        chosen: list[object] = [pool._choose(key) for key in ("b", "a", "b", "c")]
    assert chosen == [two, one, three, None]
    assert dead.killed
    assert pool._idle == []


def test_what_a_library_refuses_is_an_error_and_the_worker_goes_on(
    tmp_path: Path, pools: Pools
) -> None:
    pool = pools()
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        for _ in range(2):
            with pytest.raises(FormatError):
                array.foreign.ask("nonsense", {}, lambda *_: None)
        assert np.array_equal(read(array), FRAMES)
        assert pool.pids == [pid]


def decoded() -> int:
    """Number of descriptors of shared memory."""
    return sum("thalweg-decoded" in name for _, name in open_files())


def test_memory_of_a_known_size_leaves_one_descriptor(tmp_path: Path, pools: Pools) -> None:
    with opened(write(tmp_path / "a.h5"), pools()) as array:
        before = decoded()
        values = read(array)
        # The map of the shared memory has one itself.
        assert decoded() - before == 1
        assert np.array_equal(values, FRAMES)


def test_memory_of_a_size_that_the_worker_tells_leaves_one_descriptor(
    tmp_path: Path, pools: Pools
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(10)}), path)
    with FileSet([path], Roots([tmp_path]).open) as files:
        before = decoded()
        source = TableItems(files, "parquet", pools()).source("row", None)
        column = source.at(np.arange(3))["x"]
        assert isinstance(column, np.ndarray)
        assert column.tolist() == [0, 1, 2]
        # The map of the shared memory has one itself.
        assert decoded() - before == 1


def test_a_worker_that_hangs_is_killed(tmp_path: Path, pools: Pools) -> None:
    pool = pools(seconds=1.0)
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(DatasetUnreadableError, match=r"took more than 1 seconds") as caught:
            read(array)
        assert caught.value.members["reason"] == "time"
        assert gone(pid)
        assert np.array_equal(read(array), FRAMES)


def test_a_read_ends_when_nobody_waits_for_it(tmp_path: Path, pools: Pools) -> None:
    pool, left = pools(workers=1), threading.Event()
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.3, left.set).start()
        with Budgets().of_request("ann", left) as budget, pytest.raises(CancelledError):
            budget.run(read, array)
        assert gone(pid)
        assert np.array_equal(read(array), FRAMES)


def test_waiting_for_a_worker_ends_when_nobody_waits(tmp_path: Path, pools: Pools) -> None:
    pool, left = pools(workers=1, seconds=60), threading.Event()
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        first = threading.Thread(target=read, args=(array,))
        first.start()
        wait_until(lambda: bool(pool._busy))
        threading.Timer(0.3, left.set).start()
        with Budgets().of_request("ann", left) as budget, pytest.raises(CancelledError):
            budget.run(read, array)
        os.kill(pid, signal.SIGCONT)
        first.join()


def test_what_a_worker_gives_and_takes_counts_in_the_budget(tmp_path: Path, pools: Pools) -> None:
    pool, left = pools(), threading.Event()
    small = BudgetLimits(memory=FRAMES.nbytes - 1)
    with opened(write(tmp_path / "a.h5"), pool) as array:
        for limits in (small, BudgetLimits(cpu_seconds=1e-9)):
            budgets = Budgets(limits).of_request("ann", left)
            with budgets as budget, pytest.raises(BudgetExceededError, match="'decode' needs"):
                budget.run(read, array)
        assert np.array_equal(read(array), FRAMES)


def test_a_worker_has_so_much_cpu_time(tmp_path: Path, pools: Pools) -> None:
    pool = pools(cpu_seconds=0.1)
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["data"] = FRAMES
        for k in range(16_000):
            file.create_group(f"group/{k}")
    with (
        pytest.raises(DatasetUnreadableError, match="seconds of CPU time"),
        opened(tmp_path / "many.h5", pool),
    ):
        pass
    with opened(write(tmp_path / "a.h5"), pool) as array:
        assert np.array_equal(read(array), FRAMES)


def test_time_is_allowed_by_bytes(tmp_path: Path, pools: Pools) -> None:
    # So little CPU time would not do for decompressing 64 MiB, and need not.
    pool = pools(cpu_seconds=0.05)
    zeros = np.zeros((16, 2048, 1024), "u2")
    with opened(write(tmp_path / "a.h5", zeros, chunks=(1, 2048, 1024)), pool) as array:
        assert not read(array).any()


def test_memory_is_bounded(tmp_path: Path, pools: Pools) -> None:
    pool = pools(memory=128 * MIB)
    path = write(tmp_path / "a.h5", np.zeros((60, 1024, 1024), "u2"), chunks=(1, 1024, 1024))
    with opened(path, pool) as array:
        assert not array.read([((0, 1), (0, 1024), (0, 1024))])[0].any()
        with pytest.raises(DatasetUnreadableError, match="more than the 128 MiB") as caught:
            # 120 MiB of values and 2 MiB for a chunk, in shared memory of 128 MiB.
            array.read([((0, 60), (0, 1024), (0, 1024))] * 2)
        assert caught.value.members["reason"] == "memory"
        assert np.array_equal(array.read([((3, 4), (0, 9), (0, 9))])[0], np.zeros((1, 9, 9)))
    large = write(tmp_path / "b.h5", np.zeros((1, 40_000, 1024), "u2"), chunks=(1, 40_000, 1024))
    with pytest.raises(FormatError, match=r"chunks of .* more than 67108864"), opened(large, pool):
        pass


LIARS = {
    "noise": "os.write(fd, os.urandom(100))",
    "no JSON": "os.write(fd, b'TWD1' + bytes([3, 0, 0, 0, 0, 0, 0, 0]) + b'{[]')",
    "a list": "os.write(fd, b'TWD1' + bytes([2, 0, 0, 0, 0, 0, 0, 0]) + b'[]')",
    "too long": "os.write(fd, b'TWD1' + b'\\xff' * 4 + bytes(4))",
    "nothing": "os.close(fd)",
}


@pytest.mark.parametrize("how", LIARS)
def test_a_library_that_was_taken_over_can_only_lie(
    how: str, tmp_path: Path, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "without" / "google_crc32c.py"
    package.parent.mkdir()
    package.write_text(
        "import os, stat\n"
        "def value(octets):\n"
        "    if len(octets) == 1000: return 0\n"
        "    for fd in sorted(map(int, os.listdir('/proc/self/fd'))):\n"
        "        try: found = stat.S_ISSOCK(os.fstat(fd).st_mode)\n"
        "        except OSError: continue\n"
        f"        if found: {LIARS[how]}\n"
        "    return 0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    zarr = pytest.importorskip("zarr")
    codecs = [zarr.codecs.Crc32cCodec()]
    data = zarr.create_array(
        str(tmp_path / "a.zarr"), shape=(2, 3, 4), dtype="u1", compressors=codecs, fill_value=7
    )
    data[...] = 1
    pool = pools(sandbox="off", seconds=2.0)
    roots = Roots([tmp_path])
    found = open_recording(roots, ["a.zarr"], Hints(), decoders=pool)
    with found.files:
        (pid,) = pool.pids
        expected = "invalid answer|closed its connection|ended with"
        with pytest.raises(DatasetUnreadableError, match=expected):
            found.arrays[0].read([((0, 2), (0, 3), (0, 4))])
        assert gone(pid)


def test_idle_workers_are_stopped(tmp_path: Path, pools: Pools) -> None:
    pool = pools(idle_seconds=0.2)
    with opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        wait_until(lambda: pool.pids == [] and gone(pid))
        assert np.array_equal(read(array), FRAMES)


def test_there_are_so_many_workers(tmp_path: Path, pools: Pools) -> None:
    pool = pools(workers=2, wait_seconds=0.2)
    path = write(tmp_path / "a.h5")
    with opened(path, pool) as array:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        results: list[object] = []

        def ask() -> None:
            try:
                results.append(read(array).sum())
            except BusyError as e:
                results.append(e.retry_after)

        first = threading.Thread(target=ask)
        first.start()
        wait_until(lambda: len(pool._busy) == 1)
        second = threading.Thread(target=ask)
        second.start()
        second.join()
        assert results == [FRAMES.sum()]
        assert len(pool.pids) == 2
        for other in pool.pids:
            os.kill(other, signal.SIGSTOP)
        third = threading.Thread(target=ask)
        third.start()
        wait_until(lambda: len(pool._busy) == 2)
        ask()
        assert results[1:] == [5]
        assert pool.refused == {"decoders": 1}
        for other in pool.pids:
            os.kill(other, signal.SIGCONT)
        first.join()
        third.join()
        assert results[2:] == [FRAMES.sum(), FRAMES.sum()]


def test_owners_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = DecoderPool(DecoderLimits(workers=1), lambda: threading.current_thread().name)
    order: list[str] = []

    choose = pool._choose

    def are_waiting(count: int) -> bool:
        return pool.waiting == count

    def noted(key: str) -> DecoderProcess | None:
        process = choose(key)
        if process is not None:
            order.append(threading.current_thread().name)
        return process

    with contextlib.closing(pool), opened(write(tmp_path / "a.h5"), pool) as array:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(pool, "_choose", noted)
        threads = []
        for count, name in enumerate(["abuser", "abuser", "abuser", "alice", "bob"]):
            threads.append(threading.Thread(target=read, args=(array,), name=name))
            threads[-1].start()
            wait_until(partial(are_waiting, count))
        os.kill(pid, signal.SIGCONT)
        for thread in threads:
            thread.join()
    assert order == ["abuser", "abuser", "alice", "bob", "abuser"]


def test_one_owner_does_not_get_all_workers_while_another_asks(tmp_path: Path) -> None:
    pool = DecoderPool(
        DecoderLimits(workers=2, wait_seconds=0.3), lambda: threading.current_thread().name
    )
    results: dict[str, object] = {}

    def ask(array: Hdf5Array, key: str) -> None:
        try:
            results[key] = read(array).sum()
        except (BusyError, ShareExceededError) as e:
            results[key] = e

    def start(name: str, key: str) -> threading.Thread:
        thread = threading.Thread(target=ask, args=(array, key), name=name)
        thread.start()
        return thread

    with contextlib.closing(pool), opened(write(tmp_path / "a.h5"), pool) as array:
        start("bob", "early").join()
        for pid in pool.pids:
            os.kill(pid, signal.SIGSTOP)
        first = start("abuser", "first")
        wait_until(lambda: len(pool._busy) == 1)
        # Bob has asked, so one worker stays free for him, whoever asks for it.
        start("abuser", "second").join()
        refusal = results["second"]
        assert isinstance(refusal, ShareExceededError)
        assert refusal.members["limit"] == "decoders"
        assert pool.refused == {"owner-share": 1}
        start("bob", "late").join()
        assert results["late"] == FRAMES.sum()
        for pid in pool.pids:
            os.kill(pid, signal.SIGCONT)
        first.join()
    assert results["first"] == FRAMES.sum()


def test_processes_share_the_number_of_workers_and_idle_ones_go_where_they_are_wanted(
    tmp_path: Path,
) -> None:
    table, limits = Table(2), DecoderLimits(workers=1, wait_seconds=0.3)
    first, second = (DecoderPool(limits, column=Column(table, process)) for process in (0, 1))
    path = write(tmp_path / "a.h5")
    with contextlib.closing(first), contextlib.closing(second):
        with opened(path, first) as array:
            (pid,) = first.pids
            os.kill(pid, signal.SIGSTOP)
            busy = threading.Thread(target=read, args=(array,))
            busy.start()
            wait_until(lambda: len(first._busy) == 1)
            with pytest.raises(BusyError), opened(path, second):
                pass
            os.kill(pid, signal.SIGCONT)
            busy.join()
        second._limits = replace(limits, wait_seconds=60.0)
        with opened(path, second) as array:
            assert read(array).sum() == FRAMES.sum()
        assert (first.counts, second.counts) == ((0, 0), (0, 1))
    assert (first._number.total, first._turns.held) == (0, 0)


def test_closing_fails_what_runs_and_leaves_nothing(tmp_path: Path) -> None:
    threads = threading.enumerate()
    with nothing_left_open():
        pool = DecoderPool(DecoderLimits())
        with opened(write(tmp_path / "a.h5"), pool) as array:
            pids = pool.pids
            os.kill(pids[0], signal.SIGSTOP)
            failed: list[BaseException] = []

            def ask(array: Hdf5Array) -> None:
                try:
                    read(array)
                except DatasetUnreadableError as e:
                    failed.append(e)

            thread = threading.Thread(target=ask, args=(array,))
            thread.start()
            wait_until(lambda: len(pool._busy) == 1)
            pool.close()
            thread.join()
            assert len(failed) == 1
            assert all(gone(pid) for pid in pids)
            with pytest.raises(BusyError, match="stopped"):
                read(array)
        failed.clear()
    assert [thread.name for thread in threading.enumerate() if thread not in threads] == []


def test_workers_end_with_the_service(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5")
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from app.decoding.pool import DecoderPool\n"
        "from app.datasets.files.file_set import FileSet\n"
        "from app.datasets.files.hdf5 import open_hdf5\n"
        "from app.datasets.files.roots import Roots\n"
        "pool = DecoderPool()\n"
        "path = Path(sys.argv[1])\n"
        "with FileSet([path], Roots([path.parent]).open) as files:\n"
        "    open_hdf5(files, 0, None, pool)\n"
        "    print(*pool.pids, file=sys.stderr, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as service:
        assert service.stderr is not None
        worker = int(service.stderr.readline())
        os.kill(worker, signal.SIGSTOP)  # it cannot notice that the connection is closed
        service.kill()
    wait_until(lambda: gone(worker))


def test_a_worker_that_cannot_start_is_told(
    tmp_path: Path, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "h5py.py").write_text("raise ValueError('no such thing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    pool = pools()
    with (
        pytest.raises(BusyError, match="no decoder could be started: ValueError: no such thing"),
        opened(write(tmp_path / "a.h5"), pool),
    ):
        pass
    assert pool.pids == []
    assert pool.problem() == "no decoder could be started: ValueError: no such thing"
    assert (pool.starts, pool.counts) == (0, (0, 0))
    # Without a request it is tried again, but not at once; then it is well again.
    assert pool.counts == (0, 0)
    (tmp_path / "without" / "h5py.py").write_text("raise ValueError('now something else')")
    monkeypatch.setattr("app.decoding.pool._RETRY_SECONDS", 0.0)
    wait_until(lambda: "now something else" in (pool.problem() or ""))
    monkeypatch.delenv("PYTHONPATH")
    assert pool.pids == []
    wait_until(lambda: pool.problem() is None)
    wait_until(lambda: pool.counts == (0, 1))
    assert pool.starts == 1
    with opened(tmp_path / "a.h5", pool) as array:
        assert np.array_equal(read(array), FRAMES)


def test_a_system_without_processes_is_told(
    tmp_path: Path, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_limits: DecoderLimits) -> DecoderProcess:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    pool = pools()
    path = write(tmp_path / "a.h5")
    with monkeypatch.context() as patch:
        patch.setattr("app.decoding.pool.DecoderProcess", fail)
        for _ in range(3):
            with pytest.raises(BusyError, match="no more processes"), opened(path, pool):
                pass
        assert pool.counts == (0, 0)
    with opened(path, pool) as array:
        assert np.array_equal(read(array), FRAMES)


def test_a_worker_that_starts_while_the_pool_closes_does_nothing(
    tmp_path: Path, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools()
    wait = DecoderProcess.wait_until_ready
    failed: list[BaseException] = []

    def wait_until_closing(process: DecoderProcess) -> None:
        wait(process)
        wait_until(lambda: pool._closed)

    def ask() -> None:
        try:
            with opened(write(tmp_path / "a.h5"), pool):
                pass
        except DatasetUnreadableError as e:
            failed.append(e)

    monkeypatch.setattr(DecoderProcess, "wait_until_ready", wait_until_closing)
    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: bool(pool.counts[0]))
    pool.close()
    thread.join()
    assert len(failed) == 1
    assert pool.pids == []


def test_a_worker_is_stopped_only_after_it_was_idle_for_long(tmp_path: Path, pools: Pools) -> None:
    pool = pools(idle_seconds=1000.0)
    with opened(write(tmp_path / "a.h5"), pool):
        (pid,) = pool.pids
        pool._stop_idle()
        assert pool.pids == [pid]
        pool._idle[0].idle_since -= 1000
        pool._stop_idle()
        assert pool.pids == []
        assert gone(pid)


def test_files_are_closed_once_nobody_reads_them(tmp_path: Path, pools: Pools) -> None:
    pool = pools()
    paths = [write(tmp_path / f"{k}.h5") for k in range(2)]

    def held(path: Path) -> bool:
        entries = Path(f"/proc/{pool.pids[0]}/fd").iterdir()
        return str(path) in [str(entry.readlink()) for entry in entries]

    with opened(paths[0], pool) as array:
        read(array)
        assert held(paths[0])
    del array
    gc.collect()
    with opened(paths[1], pool):
        assert held(paths[1])
        assert not held(paths[0])


def test_threads_rest_while_they_wait_for_a_worker(tmp_path: Path) -> None:
    rests: list[str] = []

    @contextlib.contextmanager
    def resting() -> Iterator[None]:
        rests.append("begun")
        yield
        rests.append("over")

    pool = DecoderPool(DecoderLimits(workers=1), resting=resting)
    with contextlib.closing(pool), opened(write(tmp_path / "a.h5"), pool) as array:
        rests.clear()
        read(array)
    assert rests == ["begun", "over"]
