"""Auxiliary files on disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from app.errors import InputGoneError, StorageFullError
from app.losses.input_store import InputStore
from tests.app.disk import Disk


def test_a_file_is_kept_until_nobody_uses_it(tmp_path: Path) -> None:
    store = InputStore(tmp_path / "inputs", days=1)
    assert store.put("quantiles", "d1", b"abc").created
    assert not store.put("quantiles", "d1", b"abc").created
    assert store.read("quantiles", "d1") == b"abc"
    path = tmp_path / "inputs" / "d1.quantiles"
    os.utime(path, (time.time() - 86000, time.time() - 86000))
    store.touch("quantiles", "d1")
    assert time.time() - path.stat().st_mtime < 100
    os.utime(path, (time.time() - 87000, time.time() - 87000))
    with pytest.raises(InputGoneError):
        store.read("quantiles", "d1")
    assert not path.exists()


def test_a_file_that_is_put_again_is_kept_as_long_as_a_new_one(tmp_path: Path) -> None:
    store = InputStore(tmp_path, days=1)
    store.put("quantiles", "d1", b"abc")
    path = tmp_path / "d1.quantiles"
    os.utime(path, (time.time() - 86000, time.time() - 86000))
    kept = store.put("quantiles", "d1", b"abc")
    assert not kept.created
    assert abs(path.stat().st_mtime + 86400 - kept.expires) < 100
    assert abs(path.stat().st_mtime - time.time()) < 100


def test_an_input_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    InputStore(tmp_path, days=1).put("quantiles", "d1", b"abc" * 1000)
    size, names = disk.synced[(tmp_path / "d1.quantiles").stat().st_ino]
    assert size == 3000
    assert "d1.quantiles" not in names


def test_an_input_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    store = InputStore(tmp_path, days=1)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageFullError, match="No space left"):
        store.put("quantiles", "d1", b"abc")
    assert list(tmp_path.iterdir()) == []


def test_old_files_are_swept_when_new_ones_come(tmp_path: Path) -> None:
    store = InputStore(tmp_path, days=1)
    store.put("quantiles", "old", b"abc")
    os.utime(tmp_path / "old.quantiles", (0, 0))
    store.put("quantiles", "new", b"abc")
    assert [path.name for path in tmp_path.iterdir()] == ["new.quantiles"]


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFullError):
        InputStore(tmp_path / "file" / "inputs", days=1).put("quantiles", "d", b"")
    with pytest.raises(InputGoneError):
        InputStore(tmp_path / "nothing", days=1).read("quantiles", "d")
