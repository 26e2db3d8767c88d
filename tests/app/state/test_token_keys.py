"""Where the keys of tokens come from."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from app.state.token_keys import FILE, load_keys, resolve_keys
from app.tokens import new_key
from tests.app.disk import Disk


def test_keys_of_the_settings_come_first(tmp_path: Path) -> None:
    keys = [new_key(), new_key()]
    assert resolve_keys([key.to_text() for key in keys], tmp_path) == keys
    assert list(tmp_path.iterdir()) == []


def test_keys_of_the_directory_come_next(tmp_path: Path) -> None:
    assert resolve_keys([], tmp_path) == resolve_keys([], tmp_path) == load_keys(tmp_path)


def test_without_either_a_key_serves_this_process_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (first,) = resolve_keys([], tmp_path / "file" / "data")
    (second,) = resolve_keys([], tmp_path / "file" / "data")
    assert first.use == "sign"
    assert first != second


def test_a_key_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    load_keys(tmp_path)
    size, names = disk.synced[(tmp_path / FILE).stat().st_ino]
    assert size == (tmp_path / FILE).stat().st_size > 64
    assert FILE not in names


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
