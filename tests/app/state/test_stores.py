"""The stores of records: the suite for all, and what is special to the file."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import StorageFullError
from app.state.base import (
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreFullError,
    StoreReadOnlyError,
    Usage,
)
from app.state.space import Space
from app.state.sqlite import SqliteStateStore
from tests.app.state.memory import MemoryStateStore
from tests.app.state.suite import MakeStore, StateStoreSuite, every, increment
from tests.descriptors import nothing_left_open
from tests.scale import examples

ROOT = Path(__file__).parents[3]
VERSION_1 = Path(__file__).with_name("version_1.sqlite.xz")
"""A file that the first version of the store wrote."""
INCREMENTS = 150
COUNT = """
import sys
from pathlib import Path
from app.state.space import Space
from app.state.sqlite import SqliteStateStore
from tests.app.state.suite import increment
store = SqliteStateStore(Path(sys.argv[1]), wait=60)
print("ready", flush=True)
sys.stdin.readline()
increment(store, "view", "n", int(sys.argv[2]))
"""
ACKNOWLEDGE = """
import sys
from pathlib import Path
from app.state.sqlite import SqliteStateStore
store = SqliteStateStore(Path(sys.argv[1]))
for k in range(10**6):
    name = f"{sys.argv[2]}-{k}"
    record = store.create("view", name, b"x" * (k * 37 % 5000))
    print("create", name, flush=True)
    store.compare_and_swap(record, b"swapped")
    print("swap", name, flush=True)
    if k % 3 == 0:
        store.delete("view", name)
        print("delete", name, flush=True)
"""


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class TestMemory(StateStoreSuite):
    durable = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return MemoryStateStore


class TestSqlite(StateStoreSuite):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "new" / "state.db"

    @pytest.fixture
    def make_store(self, path: Path) -> Iterator[MakeStore]:
        made: list[StateStore] = []

        def make() -> StateStore:
            made.append(SqliteStateStore(path))
            return made[-1]

        yield make
        for store in made:
            store.close()

    def test_increments_of_two_processes_are_all_counted(
        self, store: StateStore, path: Path
    ) -> None:
        store.create("view", "n", b"0")
        processes = [run(COUNT, str(path), str(INCREMENTS)) for _ in range(2)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.communicate("go\n", timeout=60)
            assert process.returncode == 0
        record = store.get("view", "n")
        assert (record.value, record.generation) == (b"%d" % (2 * INCREMENTS), 2 * INCREMENTS + 1)

    def test_what_was_acknowledged_survives_kill(self, path: Path) -> None:
        expected: dict[str, str] = {}
        for turn in range(examples(5)):
            process = run(ACKNOWLEDGE, str(path), f"t{turn}")
            assert process.stdout is not None
            said = [process.stdout.readline()]
            threading.Timer(0.05 + 0.023 * (turn % 7), process.kill).start()
            said += process.stdout.readlines()
            assert process.wait() == -signal.SIGKILL
            process.communicate()
            whole = [line.split() for line in said if line.endswith("\n")]
            assert len(whole) > 1
            expected |= {name: verb for verb, name in whole}
            last = whole[-1][1]
            store = SqliteStateStore(path)
            found = {record.id: record for record in every(store, "view")}
            store.close()
            # What was under way when it was killed may have been done, and one more begun.
            open_ones = {last, f"t{turn}-{int(last.split('-')[1]) + 1}"}
            for name in expected.keys() - open_ones:
                assert (name in found) == (expected[name] != "delete")
                assert expected[name] == "delete" or found[name].value == b"swapped"
            assert found.keys() <= expected.keys() | open_ones
            expected = dict.fromkeys(found, "swap") | {
                name: verb for name, verb in expected.items() if name not in open_ones
            }
            for name in open_ones & found.keys():
                if found[name].value != b"swapped":
                    del expected[name]
                    with contextlib.closing(SqliteStateStore(path)) as store:
                        store.delete("view", name)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    def test_a_writer_that_stops_does_not_stop_readers(self, path: Path, store: StateStore) -> None:
        record = store.create("view", "x", b"1")
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert store.get("view", "x") == record
            assert every(store, "view") == [record]

    @pytest.mark.parametrize("how", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
    def test_a_file_others_keep_locked(self, path: Path, how: str) -> None:
        with contextlib.closing(SqliteStateStore(path, wait=0.1)) as store:
            record = store.create("view", "x", b"1")
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute(how)
                begun = time.monotonic()
                with pytest.raises(StoreBusyError) as caught:
                    store.compare_and_swap(record, b"2")
                assert time.monotonic() - begun < 8  # not the 10 seconds that are usual
                assert caught.value.retry_after == 1
                with pytest.raises(StoreBusyError):
                    SqliteStateStore(path, wait=0.1)
            assert store.compare_and_swap(record, b"2").value == b"2"

    def test_a_turn_another_process_keeps(self, path: Path) -> None:
        with contextlib.closing(SqliteStateStore(path, wait=0.1)) as store:
            holder = run(
                "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX);"
                "print('has it', flush=True); sys.stdin.read()",
                f"{path}.lock",
            )
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(StoreBusyError):
                store.create("view", "x", b"")
            holder.kill()
            holder.communicate()
            store.create("view", "x", b"")

    def test_a_thread_that_waits_too_long(self, path: Path) -> None:
        with contextlib.closing(SqliteStateStore(path, wait=0.05)) as store:
            with store._turns.turn(), pytest.raises(StoreBusyError):
                store.create("view", "x", b"")
            with pytest.raises(RecordMissingError):
                store.get("view", "x")

    @pytest.mark.parametrize("content", [b"no database at all\n" * 99, b"SQLite format 3\0" * 99])
    def test_a_file_that_is_no_database(self, path: Path, content: bytes) -> None:
        path.parent.mkdir()
        path.write_bytes(content)
        with pytest.raises(StoreDamagedError) as caught:
            SqliteStateStore(path)
        assert caught.value.path == path
        assert path.read_bytes() == content

    def test_a_damaged_page(self, path: Path) -> None:
        with contextlib.closing(SqliteStateStore(path)) as store:
            for k in range(200):
                store.create("view", f"x{k}", bytes(3000))
        octets = bytearray(path.read_bytes())
        octets[8192:] = os.urandom(len(octets) - 8192)
        path.write_bytes(octets)
        with (
            contextlib.closing(SqliteStateStore(path)) as store,
            pytest.raises(StoreDamagedError, match="damaged"),
        ):
            every(store, "view")

    @pytest.mark.parametrize("how", ["removed", "replaced"])
    def test_a_file_that_is_taken_away(self, path: Path, how: str) -> None:
        with contextlib.closing(SqliteStateStore(path)) as store:
            record = store.create("view", "x", b"1")
            if how == "replaced":
                other = path.with_name("other.db")
                SqliteStateStore(other).close()
                other.replace(path)
            else:
                path.unlink()
            with pytest.raises(StoreDamagedError, match="removed or replaced"):
                store.compare_and_swap(record, b"2")
            with pytest.raises(StoreDamagedError, match="removed or replaced"):
                store.get("view", "x")

    def test_a_newer_version_is_refused_and_left_alone(self, path: Path) -> None:
        SqliteStateStore(path).close()
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA user_version = 5")
        with pytest.raises(StoreForeignError, match="version 5, but this server supports only 4"):
            SqliteStateStore(path)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (5,)

    @pytest.mark.parametrize("version", [1, 3])
    def test_a_file_that_has_things_without_owners_is_refused_and_left_alone(
        self, path: Path, version: int
    ) -> None:
        if version == 1:
            path.parent.mkdir()
            path.write_bytes(lzma.decompress(VERSION_1.read_bytes()))
        else:
            with contextlib.closing(SqliteStateStore(path)) as store:
                store.create("view", "x", b"1")
            with contextlib.closing(sqlite3.connect(path)) as other:
                other.execute("PRAGMA user_version = 3")
        with pytest.raises(StoreForeignError, match="was written by a version before") as refused:
            SqliteStateStore(path)
        assert "revision 426697b" in str(refused.value.hint)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (version,)

    def test_streams_of_version_3_get_their_partition_as_key(self, path: Path) -> None:
        def value(**values: object) -> bytes:
            return json.dumps({"owner": "alice", "value": values}).encode()

        with contextlib.closing(SqliteStateStore(path)) as store:
            store.create("run", "0a.1", value(streams={"1": "000001-x", "2": "000002-y"}))
            store.create("run", "0a.2", b"damaged")
            # Listed, of a lost race, damaged, of a run that is gone, and of one that is damaged.
            for ident in ("1.000001-x", "1.000001-w", "1.000002-y", "3.000001-x", "2.000001-x"):
                store.create("stream", f"0a.{ident}", value(offset=7), size=7)
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE head SET checksum = 1 WHERE id = '0a.1.000002-y'")
            other.execute("PRAGMA user_version = 3")
            other.commit()
        for _ in range(2):
            with contextlib.closing(SqliteStateStore(path)) as store:
                for ident in ("0a.1.000001", "0a.2.000001"):
                    record = store.get("stream", ident)
                    known = {"offset": 7, "id": "000001-x"}
                    assert json.loads(record.value) == {"owner": "alice", "value": known}
                with pytest.raises(StoreDamagedError):
                    store.get("stream", "0a.1.000002")
        with contextlib.closing(SqliteStateStore(path)) as store:
            seen: list[Usage] = []
            store.create("stream", "0a.4.000001", b"", size=1, admit=seen.append)
            assert seen == [Usage(4, 22)]

    @pytest.mark.parametrize(
        "change",
        [
            "value = x'39'",
            "value = '1'",
            "value = x'3100'",
            "generation = 2",
            "nonce = '0000000000000000'",
            "id = 'y'",
            "kind = 'dataset'",
            "checksum = checksum + 1",
        ],
    )
    def test_a_changed_row_is_noticed(self, path: Path, change: str) -> None:
        with contextlib.closing(SqliteStateStore(path)) as store:
            store.create("view", "x", b"1")
            store.create("view", "z", b"1")
            with contextlib.closing(sqlite3.connect(path)) as other:
                other.execute(f"UPDATE head SET {change} WHERE id = 'x'")  # noqa: S608 - the rows above
                other.commit()
            ident = "y" if "id =" in change else "x"
            kind = "dataset" if "kind" in change else "view"
            with pytest.raises(StoreDamagedError, match=f"stored {kind} {ident} is damaged"):
                store.get(kind, ident)
            named = {record.id: record for record in every(store, kind)}
            with pytest.raises(StoreDamagedError, match=f"stored {kind} {ident} is damaged"):
                _ = named[ident].value
            assert store.get("view", "z").value == b"1"
            store.delete(kind, ident)
            assert [record.id for record in every(store, "view")] == ["z"]

    def test_the_reserve_is_not_taken_but_deletions_work(self, path: Path, tmp_path: Path) -> None:
        space = NoSpace(tmp_path, 0)
        with contextlib.closing(SqliteStateStore(path, space=space)) as store:
            with pytest.raises(StorageFullError):
                store.create("view", "x", b"1")
            with contextlib.closing(SqliteStateStore(path)) as other:
                record = other.create("view", "x", b"1")
            with pytest.raises(RecordExistsError):
                store.create("view", "x", b"1")
            record = store.compare_and_swap(record, b"2")
            store.delete("view", "x", record)

    def test_a_deletion_on_a_full_disk_takes_the_ballast(self, path: Path, tmp_path: Path) -> None:
        space = Released(tmp_path, 0)
        with contextlib.closing(SqliteStateStore(path, space=space)) as store:
            record = store.create("view", "x", b"1")
            pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
            store._writer.execute(f"PRAGMA max_page_count = {pages}")
            space.store = store
            assert store.compare_and_swap(record, bytes(100_000)).generation == 2
            assert space.released == 1
            store.delete("view", "x")
            with pytest.raises(RecordMissingError):
                store.get("view", "x")

    def test_the_file_of_another_program_is_refused(self, path: Path) -> None:
        path.parent.mkdir()
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE head (x)")
        with pytest.raises(StoreForeignError, match="another program"):
            SqliteStateStore(path)

    def test_a_full_disk(self, path: Path) -> None:
        with contextlib.closing(SqliteStateStore(path)) as store:
            pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
            store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
            record = store.create("view", "x", b"1")
            with pytest.raises(StoreFullError):
                store.create("view", "y", bytes(100_000))
            assert every(store, "view") == [record]
            assert store.compare_and_swap(record, b"2").value == b"2"

    def test_a_directory_in_its_place(self, path: Path) -> None:
        path.mkdir(parents=True)
        with pytest.raises(StoreError):
            SqliteStateStore(path)

    def test_it_is_for_its_owner_alone(self, store: StateStore, path: Path) -> None:
        store.create("view", "x", b"1")
        assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}

    def test_a_failed_opening_leaves_nothing_open(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_bytes(b"no database at all\n" * 99)
        with nothing_left_open():
            for _ in range(3):
                with pytest.raises(StoreDamagedError):
                    SqliteStateStore(path)

    def test_durable_settings_are_in_force(self, path: Path) -> None:
        with contextlib.closing(SqliteStateStore(path)) as store:
            assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
            assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_one_carried_over_a_fork_says_so(self, store: StateStore) -> None:
        store.create("view", "x", b"1")
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(StoreError):
                try:
                    store.get("view", "x")
                finally:
                    code = 0 if isinstance(sys.exc_info()[1], StoreError) else 1
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


class NoSpace(Space):
    def check(self, nbytes: int) -> None:
        raise StorageFullError(f"no space for {nbytes} bytes")


class Released(Space):
    """A ballast that leaves room for the pages of one more write."""

    released = 0
    store: SqliteStateStore

    def release(self) -> bool:
        self.released += 1
        self.store._writer.execute("PRAGMA max_page_count = 1000000")
        return True


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """As a user whom modes bind; the superuser is none."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_files_that_cannot_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "state.db"
        with contextlib.closing(SqliteStateStore(path)) as store:
            store.create("view", "x", b"1")
        directory.chmod(0o555)
        with unprivileged():
            for _ in range(2):
                with pytest.raises(StoreReadOnlyError) as caught:
                    SqliteStateStore(path)
                assert caught.value.path == path
            with pytest.raises(StoreReadOnlyError):
                SqliteStateStore(directory / "new" / "state.db")
        directory.chmod(0o755)
        with contextlib.closing(SqliteStateStore(path)) as store:
            assert store.get("view", "x").value == b"1"


def test_the_increments_of_the_suite_count(tmp_path: Path) -> None:
    with contextlib.closing(SqliteStateStore(tmp_path / "state.db")) as store:
        store.create("view", "n", b"5")
        increment(store, "view", "n", 3)
        assert store.get("view", "n").value == b"8"
