"""The reserve of free space, and the ballast for deletions."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from app.errors import StorageFullError
from app.state.base import StorageError, StoreFullError
from app.state.blob_files import FileBlobStore
from app.state.space import BALLAST, Space
from app.state.sqlite import SqliteStateStore
from app.state.storage import open_storage
from app.state.token_keys import load_keys

MIB = 1 << 20


class Disk(NamedTuple):
    """What the system says of one."""

    f_blocks: int
    f_frsize: int
    f_bavail: int


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(path)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only the superuser can mount a small disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(directory: Path) -> None:
    """Take the last byte of a disk."""
    with contextlib.suppress(OSError), (directory / "others").open("ab", buffering=0) as file:
        while file.write(bytes(65536)):
            pass
    with contextlib.suppress(OSError), (directory / "others").open("ab", buffering=0) as file:
        while file.write(bytes(512)):
            pass


def free(monkeypatch: pytest.MonkeyPatch, nbytes: int, size: int = 1000 * MIB) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(size // 4096, 4096, nbytes // 4096))


def test_what_is_above_the_reserve_may_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 50 * MIB)
    space = Space(tmp_path, 40 * MIB)
    space.check(6 * MIB)
    space.check(10 * MIB)
    with pytest.raises(
        StorageFullError, match="11534336 bytes are needed, and 10485760 are"
    ) as caught:
        Space(tmp_path, 40 * MIB).check(11 * MIB)
    assert caught.value.retry_after
    members = {"limit": "disk", "setting": "THALWEG_RESERVE_BYTES", "allowed": 960 * MIB}
    assert caught.value.members == members
    free(monkeypatch, 39 * MIB)
    with pytest.raises(StorageFullError):
        Space(tmp_path, 40 * MIB).check(0)


def test_what_is_given_back_may_be_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Space(tmp_path, 40 * MIB)
    free(monkeypatch, 41 * MIB)
    with pytest.raises(StorageFullError):
        space.check(2 * MIB)
    free(monkeypatch, 43 * MIB)
    space.check(2 * MIB)


def test_the_reserve_of_a_small_disk_is_a_tenth_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 3 * MIB, size=24 * MIB)
    Space(tmp_path, 256 * MIB).check(MIB // 2)
    with pytest.raises(StorageFullError):
        Space(tmp_path, 256 * MIB).check(MIB)


def test_a_disk_that_cannot_be_asked_is_left_to_the_write(tmp_path: Path) -> None:
    Space(tmp_path / "none", 1).check(MIB)


def test_the_ballast_is_taken_released_and_taken_again(tmp_path: Path) -> None:
    space = Space(tmp_path, 0)
    assert not space.release()
    space.restore()
    ballast = tmp_path / BALLAST
    assert ballast.stat().st_size > 0
    assert ballast.stat().st_blocks > 0
    assert ballast.stat().st_mode & 0o777 == 0o600
    before = ballast.stat().st_mtime_ns
    space.restore()
    assert ballast.stat().st_mtime_ns == before
    assert space.release()
    assert ballast.stat().st_size == 0
    assert not space.release()
    space.restore()
    assert ballast.stat().st_size > 0


def test_there_is_no_ballast_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, MIB)
    Space(tmp_path, 2 * MIB).restore()
    assert not (tmp_path / BALLAST).exists()


def test_heads_fill_a_disk_to_the_reserve_and_can_be_deleted(small_disk: Path) -> None:
    storage = open_storage(small_disk, reserve=256 * MIB)
    made = 0
    with contextlib.suppress(StorageFullError):
        while made < 10_000:
            storage.records.create("view", f"v{made}", bytes(500_000))
            made += 1
    assert 10 < made < 48
    assert os.statvfs(small_disk).f_bavail * 4096 > 2 * MIB
    with pytest.raises(StorageFullError):
        storage.blobs.put("input", "x", bytes(600_000))
    for k in range(made):
        storage.records.delete("view", f"v{k}")
    # The space of deleted records is used again, within the file.
    storage.close()


@pytest.mark.parametrize("filled", [False, True])
def test_deletions_work_on_a_disk_that_others_filled(small_disk: Path, filled: bool) -> None:
    storage = open_storage(small_disk, reserve=MIB)
    for k in range(40):
        storage.records.create("view", f"v{k}", bytes(100_000))
        storage.blobs.put("input", f"b{k}", bytes(1000))
    if filled:
        fill(small_disk)
        with pytest.raises((StorageFullError, StoreFullError)):
            storage.records.create("view", "more", b"")
    record = storage.records.get("view", "v0")
    # An owner leaves: the others stay.
    storage.records.compare_and_swap(record, b"without one of its owners")
    for k in range(40):
        storage.records.delete("view", f"v{k}")
        storage.blobs.delete("input", f"b{k}")
    storage.close()


def test_the_log_of_deletions_fits_into_the_ballast(small_disk: Path) -> None:
    many = 600
    with contextlib.closing(open_storage(small_disk, reserve=MIB)) as storage:
        for k in range(many):
            storage.records.create("view", f"v{k}", bytes(100))
    # A log that has just begun: that of a service which runs may have taken its space before.
    with contextlib.closing(open_storage(small_disk, reserve=MIB)) as storage:
        fill(small_disk)
        for k in range(many):
            storage.records.delete("view", f"v{k}")


def test_a_start_on_a_disk_that_others_filled_gives_the_ballast_up(small_disk: Path) -> None:
    killed = small_disk / "killed"
    storage = open_storage(small_disk / "data", reserve=256 * MIB)
    storage.records.create("view", "v", bytes(100_000))
    shutil.copytree(small_disk / "data", killed)
    storage.close()
    assert (killed / BALLAST).stat().st_size
    fill(small_disk)
    storage = open_storage(killed, reserve=256 * MIB)
    assert not (killed / BALLAST).stat().st_size
    with pytest.raises(StorageFullError):
        storage.records.create("view", "more", b"")
    storage.records.delete("view", "v")
    storage.close()
    (small_disk / "others").unlink()
    open_storage(killed, reserve=256 * MIB).close()
    assert (killed / BALLAST).stat().st_size


def test_a_first_start_on_a_full_disk_says_so_and_leaves_no_key(small_disk: Path) -> None:
    data = small_disk / "data"
    data.mkdir()
    fill(small_disk)
    with pytest.raises(StorageError, match="is full") as caught:
        open_storage(data, reserve=0)
    assert "\n" not in str(caught.value)
    assert "THALWEG_DATA_DIR" in str(caught.value)
    assert "--ephemeral" in str(caught.value)
    with pytest.raises(StorageError, match="is full"):
        load_keys(data)
    assert not list(data.glob(".token*"))
    assert not (data / "token.keys").exists()


def test_stores_ask_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(tmp_path, MIB)
    records = SqliteStateStore(tmp_path / "state", space=space)
    blobs = FileBlobStore(tmp_path / "blobs", space=space)
    free(monkeypatch, MIB)
    with pytest.raises(StorageFullError):
        records.create("view", "x", b"")
    with pytest.raises(StorageFullError):
        blobs.put("input", "x", b"1")
    records.close()
