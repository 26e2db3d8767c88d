"""Auxiliary files and token keys on disk."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from app.errors import InputGoneError, StorageFullError
from app.losses.input_store import InputStore
from app.state.token_keys import FILE, load_keys


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


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    first = load_keys(tmp_path / "data")
    assert first is not None
    assert load_keys(tmp_path / "data") == first
    mode = (tmp_path / "data" / FILE).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE]


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        keys = pool.map(load_keys, [tmp_path] * 8)
    assert len({str(found) for found in keys}) == 1


def test_a_directory_that_cannot_be_made_has_no_keys(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert load_keys(tmp_path / "file" / "data") is None


def test_a_damaged_key_file_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("nonsense\n")
    with pytest.raises(ValueError, match=r".+"):
        load_keys(tmp_path)
