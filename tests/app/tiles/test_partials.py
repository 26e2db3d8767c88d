"""Partial results on disk: there whole, or not there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from app.tiles.partials import PartialStore

VALUES = np.arange(12.0).reshape(3, 4)
NAME = "ab12-0-3"


@pytest.fixture
def store(tmp_path: Path) -> PartialStore:
    made = PartialStore(tmp_path, days=1)
    made.put(NAME, VALUES)
    return made


def file_of(directory: Path) -> Path:
    (path,) = [path for path in directory.rglob("*") if path.is_file()]
    return path


def test_a_result_comes_back(store: PartialStore, tmp_path: Path) -> None:
    found = store.get(NAME)
    assert found is not None
    assert found.dtype == VALUES.dtype
    assert np.array_equal(found, VALUES)
    assert store.get("ab12-0-4") is None
    store.put(NAME, VALUES + 1)
    assert np.array_equal(store.get(NAME), VALUES)  # type: ignore[arg-type]
    assert file_of(tmp_path).parent.name == "ab"


def test_a_damaged_result_is_none(store: PartialStore, tmp_path: Path) -> None:
    path = file_of(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert store.get(NAME) is None
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.get(NAME) is None
    # A machine that stopped before all was on its disk may leave zeros.
    path.write_bytes(whole[:130] + bytes(len(whole) - 130))
    assert store.get(NAME) is None
    path.write_bytes(whole)
    assert store.get(NAME) is not None
    path.write_bytes(whole + b"x")
    assert store.get(NAME) is None


def test_a_damaged_result_is_replaced(store: PartialStore, tmp_path: Path) -> None:
    file_of(tmp_path).write_bytes(b"damaged")
    assert store.get(NAME) is None
    store.put(NAME, VALUES)
    assert np.array_equal(store.get(NAME), VALUES)  # type: ignore[arg-type]


def test_results_that_nobody_uses_are_forgotten(store: PartialStore, tmp_path: Path) -> None:
    path = file_of(tmp_path)
    old = time.time() - 80_000
    os.utime(path, (old, old))
    store.put("ab-other", VALUES)
    assert path.exists()
    assert store.get(NAME) is not None
    assert time.time() - path.stat().st_mtime < 1000
    os.utime(path, (old - 80_000, old - 80_000))
    store.put("ab-another", VALUES)
    assert not path.exists()


def test_a_disk_that_fails_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = PartialStore(tmp_path / "file", days=1)
    store.put(NAME, VALUES)
    assert store.get(NAME) is None
