"""Where the keys of tokens come from."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from app.state.base import StorageError
from app.state.storage import open_storage
from app.state.token_keys import FILE, clean, load_keys, resolve_keys
from app.tokens import new_key


def test_keys_of_the_settings_come_first(tmp_path: Path) -> None:
    keys = [new_key(), new_key()]
    with contextlib.closing(open_storage(tmp_path, 0)) as storage:
        assert resolve_keys([key.to_text() for key in keys], storage) == keys
    assert not (tmp_path / FILE).exists()


def test_keys_of_the_directory_come_next(tmp_path: Path) -> None:
    with contextlib.closing(open_storage(tmp_path, 0)) as storage:
        assert resolve_keys([], storage) == resolve_keys([], storage) == load_keys(tmp_path)


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    first = load_keys(tmp_path / "data")
    assert load_keys(tmp_path / "data") == first
    mode = (tmp_path / "data" / FILE).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE]


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        keys = pool.map(load_keys, [tmp_path] * 8)
    assert len({str(found) for found in keys}) == 1


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="THALWEG_DATA_DIR"):
        load_keys(tmp_path / "file" / "data")


@pytest.mark.parametrize("failing", ["pwritev", "fsync", "link"])
def test_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(StorageError, match="is full"):
            load_keys(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert load_keys(tmp_path) == load_keys(tmp_path)


def test_what_crashed_processes_left_is_removed(tmp_path: Path) -> None:
    load_keys(tmp_path)
    for age in (3000, 4000):
        path = tmp_path / f".{FILE}.{age}"
        path.write_bytes(b"")
        os.utime(path, (time.time() - age, time.time() - age))
    clean(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {FILE, f".{FILE}.3000"}


def test_a_damaged_key_file_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("nonsense\n")
    with pytest.raises(ValueError, match=r".+"):
        load_keys(tmp_path)
