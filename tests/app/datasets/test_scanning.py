"""Datasets found by looking through directories."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from app.datasets.files.roots import Roots
from app.datasets.scanning import scan
from tests.decoders import DECODERS

FRAMES = np.arange(4 * 3 * 5 * 6, dtype="<u2").reshape(4, 3, 5, 6)


def store(path: Path) -> None:
    """A store of one array."""
    array = zarr.create_array(str(path), shape=FRAMES.shape, dtype=FRAMES.dtype)
    array[...] = FRAMES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Recordings of several formats, and files that are none."""
    np.save(tmp_path / "scan 1.npy", FRAMES)
    (tmp_path / "deep").mkdir()
    np.save(tmp_path / "deep" / "b.npy", FRAMES)
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["data"] = FRAMES
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a"], file["b"] = FRAMES, FRAMES
    store(tmp_path / "store.zarr")
    store(tmp_path / "deep" / ".hidden")
    (tmp_path / "notes.txt").write_text("nothing to see")
    (tmp_path / "frames.raw").write_bytes(FRAMES.tobytes())
    return tmp_path


def test_every_recording_whose_format_shows_is_found(root: Path) -> None:
    found = scan(Roots([root]), DECODERS)
    assert sorted(found) == ["deep.b.npy", "one.h5", "scan.1.npy", "store.zarr"]
    assert found["store.zarr"].files == (str(root / "store.zarr"),)


def test_a_scan_stops_after_a_number_of_entries(root: Path) -> None:
    for k in range(100):
        (root / "deep" / str(k)).mkdir()
    assert "one.h5" in scan(Roots([root], max_entries=50), DECODERS)
    assert scan(Roots([root], max_entries=5), DECODERS) == {}
    assert len(scan(Roots([root], max_entries=250), DECODERS)) == 4


def test_a_store_is_not_looked_into(root: Path) -> None:
    assert not [ident for ident in scan(Roots([root]), DECODERS) if ident.startswith("store.zarr.")]


def test_a_root_that_is_a_store_itself_is_looked_through(tmp_path: Path) -> None:
    store(tmp_path / "inner")
    (tmp_path / "zarr.json").write_text("{}")
    assert sorted(scan(Roots([tmp_path]), DECODERS)) == ["inner"]
