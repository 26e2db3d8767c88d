"""Partial results: there whole, or not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.state.blob_files import FileBlobStore
from app.tiles.reductions import KIND, PartialStore
from tests.app.state.memory_blobs import MemoryBlobStore

VALUES = np.arange(12.0).reshape(3, 4)
NAME = "ab12-0-3"


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobStore:
    return FileBlobStore(tmp_path)


@pytest.fixture
def store(blobs: FileBlobStore) -> PartialStore:
    made = PartialStore(blobs)
    made.put(NAME, VALUES)
    return made


def test_a_result_comes_back(store: PartialStore) -> None:
    found = store.get(NAME)
    assert found is not None
    assert found.dtype == VALUES.dtype
    assert np.array_equal(found, VALUES)
    assert store.get("ab12-0-4") is None
    store.put(NAME, VALUES + 1)
    assert np.array_equal(store.get(NAME), VALUES)  # type: ignore[arg-type]


def test_one_that_is_used_is_kept(store: PartialStore, blobs: FileBlobStore) -> None:
    used = blobs.info(KIND, NAME).used
    blobs.touch(KIND, NAME, used - 80_000)
    store.get(NAME)
    assert blobs.info(KIND, NAME).used >= used


def test_a_damaged_result_is_none_and_computed_again(store: PartialStore, tmp_path: Path) -> None:
    path = tmp_path / KIND / "ab" / NAME
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        # A damaged mark is written again.
        if 24 <= at < 48:
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.get(NAME) is None
        assert not path.exists()
        store.put(NAME, VALUES)
        assert np.array_equal(store.get(NAME), VALUES)  # type: ignore[arg-type]


def test_a_store_that_is_full_is_no_error() -> None:
    store = PartialStore(MemoryBlobStore(limit=10))
    store.put(NAME, VALUES)
    assert store.get(NAME) is None


def test_a_store_that_fails_is_no_error(store: PartialStore, blobs: FileBlobStore) -> None:
    blobs.close()
    store.put("other", VALUES)
    assert store.get(NAME) is None
