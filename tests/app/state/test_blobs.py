"""The stores of blobs: the suite for all, and what is special to files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from app.errors import StorageFullError
from app.state import blob_files
from app.state.base import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)
from app.state.blob_files import NEW, FileBlobStore
from app.state.blobs import BlobMissingError, BlobStore
from app.state.space import Space
from tests.app.state.blob_suite import BlobStoreSuite, MakeStore, append_lines, every, pattern
from tests.app.state.memory_blobs import MemoryBlobStore
from tests.app.state.test_stores import unprivileged
from tests.scale import examples

ROOT = Path(__file__).parents[3]
LINES = 60
COUNT = """
import sys
from pathlib import Path
from app.state.blob_files import FileBlobStore
from tests.app.state.blob_suite import append_lines
store = FileBlobStore(Path(sys.argv[1]), wait=60)
print("ready", flush=True)
sys.stdin.readline()
append_lines(store, "run", "x", int(sys.argv[2]), int(sys.argv[3]))
"""
ACKNOWLEDGE = """
import sys
from pathlib import Path
from app.state.blob_files import FileBlobStore
from tests.app.state.blob_suite import pattern
store = FileBlobStore(Path(sys.argv[1]))
turn = sys.argv[2]
for k in range(10**6):
    size = k * 7919 * 1009 % 3_000_000
    data = pattern(size)
    print("begin put", f"{turn}-{k}", size, flush=True)
    store.put("input", f"{turn}-{k}", data)
    print("put", f"{turn}-{k}", size, flush=True)
    at = 0
    for n in range(4):
        print("begin append", f"{turn}-{k}", at + size, flush=True)
        at = store.append("run", f"{turn}-{k}", at, data)
        print("append", f"{turn}-{k}", at, flush=True)
    if k % 3 == 0:
        print("begin delete", f"{turn}-{k}", 0, flush=True)
        store.delete("input", f"{turn}-{k}")
        print("delete", f"{turn}-{k}", 0, flush=True)
"""


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class TestMemory(BlobStoreSuite):
    durable = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return MemoryBlobStore

    def test_it_is_bounded(self) -> None:
        store = MemoryBlobStore(limit=100)
        store.put("input", "x", bytes(60))
        with pytest.raises(StoreFullError):
            store.append("input", "y", 0, bytes(41))
        store.delete("input", "x")
        assert store.append("input", "y", 0, bytes(41)) == 41
        assert store.clean() == 0


class TestFiles(BlobStoreSuite):
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path / "new" / "blobs"

    @pytest.fixture
    def make_store(self, directory: Path) -> Iterator[MakeStore]:
        made: list[BlobStore] = []

        def make() -> BlobStore:
            made.append(FileBlobStore(directory))
            return made[-1]

        yield make
        for store in made:
            store.close()

    # -- processes ------------------------------------------------------------------

    def test_appends_of_two_processes_are_all_there(
        self, store: BlobStore, directory: Path
    ) -> None:
        processes = [run(COUNT, str(directory), str(k), str(LINES)) for k in range(2)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.communicate("go\n", timeout=60)
            assert process.returncode == 0
        expected = sorted(b"%d-%d" % (k, n) for k in range(2) for n in range(LINES))
        assert sorted(store.range("run", "x").split()) == expected

    def test_what_was_acknowledged_survives_kill(self, directory: Path) -> None:
        for turn in range(examples(5)):
            process = run(ACKNOWLEDGE, str(directory), f"t{turn}")
            assert process.stdout is not None
            said = [process.stdout.readline()]
            threading.Timer(0.05 + 0.037 * (turn % 7), process.kill).start()
            said += process.stdout.readlines()
            assert process.wait() == -signal.SIGKILL
            process.communicate()
            lines = [line.split() for line in said if line.endswith("\n")]
            check_after_kill(directory, f"t{turn}-", lines)

    def test_a_blob_that_another_process_keeps(self, directory: Path) -> None:
        store = FileBlobStore(directory, wait=0.1)
        store.append("run", "x", 0, b"1")
        path = directory / "run" / "x" / "x"
        holder = run(
            "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX);"
            "print('has it', flush=True); sys.stdin.read()",
            str(path),
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreBusyError) as caught:
            store.append("run", "x", 1, b"2")
        assert caught.value.retry_after == 1
        assert store.range("run", "x") == b"1"
        holder.kill()
        holder.communicate()
        assert store.append("run", "x", 1, b"2") == 2

    # -- what crashes leave -----------------------------------------------------------

    def test_a_torn_tail_is_cut_off(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        whole = pattern(2_500_000)
        store.append("run", "x", 0, whole[:1_000_000])
        path = directory / "run" / "x" / "x"
        before = path.read_bytes()
        store.append("run", "x", 1_000_000, whole[1_000_000:])
        after = path.read_bytes()
        random_cuts = np.random.default_rng(7).integers(len(before), len(after), examples(20))
        for cut in [len(before) + 1, len(before) + 31, *random_cuts, len(after) - 1]:
            # The mark is moved last: a torn append has the old one.
            path.write_bytes(before[:48] + after[48:cut])
            fresh = FileBlobStore(directory)
            assert fresh.info("run", "x").size == 1_000_000
            assert fresh.range("run", "x") == whole[:1_000_000]
            assert path.read_bytes() == before
            assert fresh.append("run", "x", 1_000_000, whole[1_000_000:]) == len(whole)
            assert fresh.range("run", "x") == whole

    def test_a_whole_append_without_its_mark_is_kept(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        store.append("run", "x", 0, b"first")
        path = directory / "run" / "x" / "x"
        before = path.read_bytes()
        store.append("run", "x", 5, pattern(1_500_000))
        after = path.read_bytes()
        path.write_bytes(before[:48] + after[48:])
        fresh = FileBlobStore(directory)
        assert fresh.range("run", "x") == b"first" + pattern(1_500_000)
        assert path.read_bytes() == after

    @pytest.mark.parametrize("moment", [(os, "pread"), (FileBlobStore, "_look")])
    def test_a_reader_that_is_overtaken_by_a_trim(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, moment: tuple[object, str]
    ) -> None:
        store, other = FileBlobStore(directory), FileBlobStore(directory)
        for k in range(3):
            store.append("run", "x", 10 * k, b"0123456789")
        where, name = moment
        call = getattr(where, name)

        def overtaken(*args: object) -> object:
            found = call(*args)
            monkeypatch.setattr(where, name, call)
            other.trim("run", "x", 20)
            return found

        monkeypatch.setattr(where, name, overtaken)
        assert store.range("run", "x", 5, 15) == b"5678901234"
        assert store.info("run", "x").size == 20

    def test_who_appends_is_not_trimmed(self, directory: Path) -> None:
        store = FileBlobStore(directory, wait=0.01)
        writer = store.writer("run", "x", 0)
        writer.write(b"1234")
        writer.commit()
        with pytest.raises(StoreBusyError):
            store.trim("run", "x", 0)
        writer.close()
        assert store.range("run", "x") == b"1234"

    def test_zeros_behind_the_mark_are_no_append(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        store.append("run", "x", 0, b"first")
        path = directory / "run" / "x" / "x"
        with path.open("ab") as file:
            file.write(bytes(5000))
        assert FileBlobStore(directory).range("run", "x") == b"first"

    def test_what_was_never_finished_is_removed(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        for name, age in (("old", 4000), ("young", 3000), ("used", 4000)):
            path = directory / NEW / name
            path.write_bytes(b"half")
            os.utime(path, (time.time() - age, time.time() - age))
        with (directory / NEW / "used").open("r+b") as used:
            fcntl.flock(used, fcntl.LOCK_EX)
            assert store.clean() == 1
            assert {p.name for p in (directory / NEW).iterdir()} == {"young", "used"}

    # -- damage -----------------------------------------------------------------------

    def test_every_changed_byte_is_noticed(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        content = b"some bytes and more of them"
        store.append("run", "x", 0, content[:10])
        store.append("run", "x", 10, content[10:])
        path = directory / "run" / "x" / "x"
        whole = path.read_bytes()
        for at in range(len(whole)):
            for change in (1, 0x80, 0xFF):
                octets = bytearray(whole)
                octets[at] ^= change
                path.write_bytes(octets)
                if 24 <= at < 48:
                    # The mark only: it is written again.
                    assert FileBlobStore(directory).range("run", "x") == content
                    assert path.read_bytes() == whole
                    continue
                with pytest.raises(StoreDamagedError, match="run x is damaged") as caught:
                    FileBlobStore(directory).range("run", "x")
                assert caught.value.path == path

    def test_every_lost_end_is_noticed(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        store.put("input", "x", b"some bytes")
        path = directory / "input" / "x" / "x"
        whole = path.read_bytes()
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(StoreDamagedError):
                FileBlobStore(directory).range("input", "x")
            with pytest.raises(StoreDamagedError):
                store.append("input", "x", 10, b"more")
            assert path.read_bytes() == whole[:size]

    def test_pieces_cannot_change_places(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        for blob_id in ("xa", "xb"):
            for k in range(3):
                store.append("run", blob_id, 100 * k, bytes([k + 65]) * 100)
        one, other = (directory / "run" / name / name for name in ("xa", "xb"))
        one = directory / "run" / "xa" / "xa"
        other = directory / "run" / "xb" / "xb"
        whole, piece = one.read_bytes(), 132
        places = [slice(48 + k * piece, 48 + (k + 1) * piece) for k in range(3)]
        swapped = whole[:48] + whole[places[1]] + whole[places[0]] + whole[places[2]]
        foreign = whole[:48] + other.read_bytes()[48:]
        for content in (swapped, foreign, other.read_bytes()):
            assert content != whole
            one.write_bytes(content)
            with pytest.raises(StoreDamagedError):
                FileBlobStore(directory).range("run", "xa")
        one.write_bytes(whole)
        assert len(FileBlobStore(directory).range("run", "xa")) == 300

    def test_an_earlier_content_of_the_name_is_noticed(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        path = directory / "run" / "x" / "x"
        store.append("run", "x", 0, b"earlier")
        earlier = path.read_bytes()
        store.delete("run", "x")
        store.append("run", "x", 0, b"laterxx")
        later = path.read_bytes()
        path.write_bytes(later[:48] + earlier[48:])
        with pytest.raises(StoreDamagedError):
            store.range("run", "x")

    def test_what_is_damaged_can_be_listed_put_again_and_deleted(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        for blob_id in ("x", "y"):
            store.put("input", blob_id, b"0.5")
        path = directory / "input" / "x" / "x"
        path.write_bytes(path.read_bytes().replace(b"0.5", b"0.9"))
        with pytest.raises(StoreDamagedError, match="input x is damaged"):
            store.range("input", "x")
        path.write_bytes(b"")
        assert [blob.id for blob in every(store, "input")] == ["x", "y"]
        assert store.put("input", "x", b"0.5")
        assert store.range("input", "x") == b"0.5"
        assert not store.put("input", "x", b"0.5")
        path.write_bytes(b"nothing of ours")
        store.delete("input", "x")
        assert [blob.id for blob in every(store, "input")] == ["y"]

    def test_one_damaged_piece_leaves_the_others(self, directory: Path) -> None:
        store = FileBlobStore(directory)
        data = pattern(3 << 20)
        store.put("run", "x", data)
        path = directory / "run" / "x" / "x"
        octets = bytearray(path.read_bytes())
        octets[(1 << 20) + 5000] ^= 1
        path.write_bytes(octets)
        assert store.range("run", "x", 0, 1 << 20) == data[: 1 << 20]
        assert store.range("run", "x", 2 << 20) == data[2 << 20 :]
        for start, stop in (((1 << 20) - 1, (1 << 20) + 1), (1 << 20, 2 << 20), (0, None)):
            with pytest.raises(StoreDamagedError):
                store.range("run", "x", start, stop)

    # -- the directory ------------------------------------------------------------------

    def test_it_is_for_its_owner_alone(self, store: BlobStore, directory: Path) -> None:
        store.put("input", "x", b"1")
        files = [path for path in directory.rglob("*") if path.is_file()]
        assert [path.stat().st_mode & 0o777 for path in files] == [0o600]
        folders = [directory, *(path for path in directory.rglob("*") if path.is_dir())]
        assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}

    def test_links_are_not_followed(self, store: BlobStore, directory: Path) -> None:
        store.put("input", "x", b"1")
        (directory / "input" / "y").mkdir()
        (directory / "input" / "y" / "y").symlink_to(directory / "input" / "x" / "x")
        with pytest.raises(StoreError):
            store.range("input", "y")

    def test_other_files_are_not_listed(self, store: BlobStore, directory: Path) -> None:
        store.put("input", "xyz", b"1")
        (directory / "input" / "xy" / ".hidden").write_bytes(b"")
        (directory / "input" / "xy" / "not an id").write_bytes(b"")
        (directory / "input" / "file").write_bytes(b"")
        assert [blob.id for blob in every(store, "input")] == ["xyz"]

    def test_a_directory_that_cannot_be_written(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            directory.chmod(0o555)
            with unprivileged():
                for _ in range(2):
                    with pytest.raises(StoreReadOnlyError) as caught:
                        FileBlobStore(directory / "blobs")
                    assert caught.value.path == directory / "blobs"
            directory.chmod(0o755)
            (directory / "file").write_bytes(b"")
            with pytest.raises(StoreError):
                FileBlobStore(directory / "file" / "blobs")

    # -- the disk -----------------------------------------------------------------------

    @pytest.mark.parametrize("failing", ["pwritev", "fsync", "link"])
    def test_a_put_that_fails_leaves_nothing(
        self, store: BlobStore, directory: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, full)
            with pytest.raises(StoreFullError):
                store.put("input", "x", b"abc")
        assert [path for path in directory.rglob("*") if path.is_file()] == []
        assert store.put("input", "x", b"abc")

    @pytest.mark.parametrize("failing", ["pwritev", "fdatasync"])
    def test_an_append_that_fails_leaves_what_there_was(
        self, store: BlobStore, directory: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        store.append("run", "x", 0, b"abc")
        path = directory / "run" / "x" / "x"
        whole = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, half() if failing == "pwritev" else full)
            with pytest.raises(StoreFullError):
                store.append("run", "x", 3, b"def" * 100)
        assert path.read_bytes() == whole
        assert store.append("run", "x", 3, b"def") == 6
        assert store.range("run", "x") == b"abcdef"

    def test_a_disk_that_fails_is_no_content(
        self, store: BlobStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        store.put("input", "x", b"abc")
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(StoreDamagedError, match="failed"):
            store.range("input", "x")

    def test_the_reserve_is_not_taken(self, directory: Path, tmp_path: Path) -> None:
        store = FileBlobStore(directory, space=Space(tmp_path, 0))
        store.append("run", "x", 0, b"abc")
        tight = FileBlobStore(directory, space=Space(tmp_path, 0))
        tight._space = NoSpace(tmp_path, 0)
        calls: list[Callable[[], object]] = [
            lambda: tight.put("input", "y", b"1"),
            lambda: tight.append("run", "y", 0, b"1"),
            lambda: tight.append("run", "x", 3, b"1"),
        ]
        for call in calls:
            with pytest.raises(StorageFullError):
                call()
        assert tight.range("run", "x") == b"abc"
        tight.delete("run", "x")
        with pytest.raises(BlobMissingError):
            store.info("run", "x")

    def test_layouts_are_forgotten(self, store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(blob_files, "_LAYOUTS", 3)
        for k in range(6):
            append_lines(store, "run", f"x{k}", k, 3)
        assert isinstance(store, FileBlobStore)
        assert len(store._layouts) == 3
        for k in range(6):
            assert store.range("run", f"x{k}") == b"".join(b"%d-%d\n" % (k, n) for n in range(3))


class NoSpace(Space):
    def check(self, nbytes: int) -> None:
        raise StorageFullError(f"no space for {nbytes} bytes")


def full(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def half() -> Callable[[int, list[memoryview], int], int]:
    calls = iter([True, False])

    def write(descriptor: int, buffers: list[memoryview], at: int) -> int:
        if not next(calls):
            full()
        return os.pwrite(descriptor, bytes(buffers[0])[:20], at)

    return write


def check_after_kill(directory: Path, prefix: str, lines: list[list[str]]) -> None:
    """Check that all that was acknowledged is there, and what was begun is whole or absent."""
    allowed: dict[tuple[str, str], tuple[int | None, int | None]] = {}
    steps: dict[str, int] = {}
    for line in lines:
        verb, name, size = line[-3:]
        key = ("run" if verb == "append" else "input", name)
        wanted = None if verb == "delete" else int(size)
        known = allowed.get(key, (None, None))[0]
        allowed[key] = (known, wanted) if line[0] == "begin" else (wanted, wanted)
        if verb == "put":
            steps[name] = int(size)
    with contextlib.closing(FileBlobStore(directory)) as store:
        blobs = [*every(store, "input", prefix), *every(store, "run", prefix)]
        found = {(blob.kind, blob.id): blob.size for blob in blobs}
        # The last line may not have been read.
        assert len(found.keys() - allowed.keys()) <= 1
        for key, states in allowed.items():
            assert found.get(key) in states
        for kind, name in found.keys() & allowed.keys():
            whole = pattern(steps[name])
            times = found[kind, name] // max(len(whole), 1)
            assert store.range(kind, name) == whole * times
            assert found[kind, name] == len(whole) * times
