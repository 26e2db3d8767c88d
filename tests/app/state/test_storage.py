"""A state file that was harmed under a running service."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from app.state import sqlite as module
from app.state.base import StorageError, StoreDamagedError, StoreError, Usage
from app.state.space import Space
from app.state.sqlite import SqliteStateStore
from app.state.storage import Storage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    opened = open_storage(tmp_path, 0)
    for number in range(200):
        opened.records.create("view", f"v{number}", bytes(200))
    yield opened
    opened.close()


@pytest.mark.parametrize("lost", [False, True])
def test_files_without_records_are_warned_of(tmp_path: Path, lost: bool) -> None:
    opened = open_storage(tmp_path, 0)
    opened.blobs.put("stream", "x", b"abc")
    opened.close()
    if lost:
        for path in tmp_path.glob("state.sqlite*"):
            path.unlink()
    with structlog.testing.capture_logs() as lines:
        open_storage(tmp_path, 0).close()
        open_storage(tmp_path, 0).close()
    warned = [line["state"] for line in lines if "no records" in line["event"]]
    assert warned == [str(tmp_path / "state.sqlite")] * lost


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(4096)


def cut_within_its_header(path: Path) -> None:
    os.truncate(path, 20)


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def checkpoint(path: Path) -> None:
    """Move everything into the file, as happens now and then."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_ANOTHER = """
import sys
from pathlib import Path
from app.state.sqlite import SqliteStateStore
store = SqliteStateStore(Path(sys.argv[1]))
store.create("view", "of-another", b"")
store.close()
"""


def test_a_check_drops_no_lock(storage: Storage, tmp_path: Path) -> None:
    """A process that takes itself for the last one deletes the log when it closes the store."""
    storage.check()
    path = tmp_path / "state.sqlite"
    subprocess.run([sys.executable, "-c", _ANOTHER, str(path)], check=True)
    assert path.with_name("state.sqlite-wal").exists()
    assert storage.records.get("view", "of-another").value == b""


@pytest.mark.parametrize("harm", [overwrite, cut, cut_within_its_header, remove, replace])
def test_harm_is_noticed(storage: Storage, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    storage.check()
    checkpoint(tmp_path / "state.sqlite")
    harm(tmp_path / "state.sqlite")
    with pytest.raises(StoreDamagedError):
        storage.check()


def test_blobs_without_a_directory_are_noticed(storage: Storage, tmp_path: Path) -> None:
    storage.check()
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="data directory"):
        storage.check()
    (tmp_path / "elsewhere").rename(tmp_path / "blobs")
    storage.check()


def test_every_row_has_its_turn(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page in the middle that is garbage is found, though no request reads it."""
    monkeypatch.setattr(module, "_ROWS", 10)
    path = tmp_path / "state.sqlite"
    storage.check()
    checkpoint(path)
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        file.seek(pages // 2 * 4096)
        file.write(b"\xff" * 4096)

    def rounds() -> None:
        for _ in range(30):
            storage.check()

    with pytest.raises(StoreError, match="state"):
        rounds()


def test_a_sound_store_passes_and_keeps_one_head_for_it(storage: Storage) -> None:
    for _ in range(5):
        storage.check()
    assert [record.id for record in storage.records.list("probe").records] == ["readiness"]


def test_below_the_reserve_it_is_the_disk_that_fails(tmp_path: Path) -> None:
    space = Space(tmp_path, 1 << 62)
    space._reserve = 1 << 62
    monkey = SqliteStateStore(tmp_path / "state.sqlite", space=space)
    with contextlib.closing(monkey):
        monkey.check()


def test_the_largest_usage_is_that_of_one_owner(storage: Storage) -> None:
    for number in range(3):
        storage.records.create("pipeline", f"alice.{number}", bytes(10))
    storage.records.create("pipeline", "bob.1", bytes(100))
    assert storage.records.largest_usage("pipeline") == Usage(3, 100)
    assert storage.records.largest_usage("nothing") == Usage()
    assert storage.records.largest_usage("pipeline", "alice.") == Usage(3, 30)
    assert storage.records.largest_usage("pipeline", "carol.") == Usage()


@pytest.mark.parametrize(
    ("state", "blobs", "match"),
    [
        ("postgres://u:secret@127.0.0.1:1/db", "file:", "THALWEG_STATE postgres://u:…@127.0.0.1:1"),
        ("postgres://127.0.0.1:1/d?password=secret&user=u", "file:", "1/d?password=…&user=u: the"),
        ("sqlite:", "s3://bucket", "THALWEG_BLOBS s3://bucket: the object store cannot be used"),
    ],
)
def test_shared_stores_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, blobs: str, match: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("app.state.object_service._RETRY", {"max_retries": 0})
    with pytest.raises(StorageError, match=re.escape(match)) as caught:
        open_storage(tmp_path, 0, state, blobs)
    assert "secret" not in str(caught.value)
    # Nothing of it is left open: the next start finds the directory as it was.
    open_storage(tmp_path, 0).close()


@pytest.mark.parametrize(
    ("state", "blobs", "library"),
    [("postgres://h/d", "file:", "psycopg"), ("sqlite:", "s3://bucket", "obstore")],
)
def test_extras_that_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, blobs: str, library: str
) -> None:
    for name in ("postgres", "objects", "object_layout", "object_service"):
        monkeypatch.delitem(sys.modules, f"app.state.{name}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(StorageError, match=f"pip install '?{library}"):
        open_storage(tmp_path, 0, state, blobs)
