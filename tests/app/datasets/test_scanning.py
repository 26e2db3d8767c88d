"""Datasets found by looking through directories."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from starlette import requests

from app.datasets import scanning
from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.datasets.opening import open_recording
from app.datasets.routes import list_datasets
from app.datasets.scanning import scan
from app.decoding.base import Parse, Request, T
from app.errors import DatasetUnreadableError
from app.http.identity import SINGLE_USER, Identity, identify
from app.main import create_app
from app.settings import Settings
from core.errors import AmbiguousFormatError
from core.tiles.recording import Hints
from tests.app.state.memory import MemoryStateStore
from tests.core.tiles import writers
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
    found = scan(Roots([root]), DECODERS).specs
    assert sorted(found) == ["deep.b.npy", "one.h5", "scan.1.npy", "store.zarr"]
    assert found["store.zarr"].files == (str(root / "store.zarr"),)


def test_the_frames_of_an_empad_are_those_its_xml_names(tmp_path: Path) -> None:
    frames = np.zeros((2, 128, 128), "<f4")
    for k in range(3):
        files = writers.empad(frames, (1, 2), raw_name=f"data{k}.raw")
        (tmp_path / f"scan{k}.xml").write_bytes(files["scan.xml"])
        if k < 2:
            (tmp_path / f"data{k}.raw").write_bytes(files["scan.raw"])
    found = scan(Roots([tmp_path]), DECODERS).specs
    assert {name: [Path(file).name for file in spec.files] for name, spec in found.items()} == {
        "data0.raw": ["data0.raw", "scan0.xml"],
        "data1.raw": ["data1.raw", "scan1.xml"],
    }


def test_files_are_one_recording_only_where_they_go_on_from_each_other(tmp_path: Path) -> None:
    frames = np.zeros((6, 4, 4), "u2")
    parts: dict[str, Any] = {"names": [f"part{k}.mib" for k in (1, 2, 10)], "splits": [2, 2, 2]}
    scans: dict[str, Any] = {"names": [f"scan{k}.mib" for k in (1, 2, 3)], "splits": [2, 2, 2]}
    files = writers.mib(frames, "U16", **parts) | writers.mib(frames, "U16", restart=True, **scans)
    for k, depth in enumerate(("U08", "U16")):
        values = frames[:1].astype(f"u{k + 1}")
        files |= writers.mib(values, depth, names=[f"bits{8 + 8 * k}.mib"])
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = scan(Roots([tmp_path])).specs
    alone = ["bits16.mib", "bits8.mib", "scan1.mib", "scan2.mib", "scan3.mib"]
    assert sorted(found) == sorted([*alone, "part1.mib"])
    named = {name: [Path(file).name for file in spec.files] for name, spec in found.items()}
    assert named == {name: [name] for name in alone} | {"part1.mib": parts["names"]}


def test_of_a_long_series_two_files_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"part{k:03}.mib" for k in range(40)]
    frames = np.zeros((40, 4, 4), "u2")
    for name, content in writers.mib(frames, "U16", splits=[1] * 40, names=names).items():
        (tmp_path / name).write_bytes(content)
    roots, opened = Roots([tmp_path]), set[str]()
    really = roots.open

    def open_noted(path: str | Path) -> int:
        opened.add(Path(path).name)
        return really(path)

    monkeypatch.setattr(roots, "open", open_noted)
    (spec,) = scan(roots).specs.values()
    assert len(spec.files) == 40
    assert opened == set(names[:2])
    # Both count.
    monkeypatch.setattr(scanning, "MAX_FILES", 1)
    assert "ended after 1 files" in str(scan(roots).ended)


def test_a_scan_leaves_no_file_open(root: Path) -> None:
    roots = Roots([root])

    def opened() -> set[str]:
        links = Path("/proc/self/fd").iterdir()
        names = {str(link.readlink()) for link in links if link.is_symlink()}
        return {name for name in names if name.startswith(str(root))}

    before = opened()
    with gc_off():
        scan(roots, DECODERS)
        assert opened() == before


@contextlib.contextmanager
def gc_off() -> Iterator[None]:
    """Files that nobody closes stay open meanwhile, even in a cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_scan_stops_after_a_number_of_entries(root: Path) -> None:
    for k in range(100):
        (root / "deep" / str(k)).mkdir()
    few = scan(Roots([root], max_entries=50), DECODERS)
    assert "one.h5" in few.specs
    assert "more than 50 directory entries" in str(few.ended)
    assert scan(Roots([root], max_entries=5), DECODERS).specs == {}
    every = scan(Roots([root], max_entries=250), DECODERS)
    assert (len(every.specs), every.ended) == (4, None)


def test_a_store_is_not_looked_into(root: Path) -> None:
    assert not [
        ident for ident in scan(Roots([root]), DECODERS).specs if ident.startswith("store.zarr.")
    ]


def test_a_root_that_is_a_store_itself_is_looked_through(tmp_path: Path) -> None:
    store(tmp_path / "inner")
    (tmp_path / "zarr.json").write_text("{}")
    assert sorted(scan(Roots([tmp_path]), DECODERS).specs) == ["inner"]


# -- ids ------------------------------------------------------------------------------


def test_no_file_takes_the_id_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "b.npy", FRAMES)
    assert scan(Roots([tmp_path])).specs["a.b.npy"].files == (str(tmp_path / "a" / "b.npy"),)
    for name in ("a.b", "a b", "é", "ü", "c\nd", "other"):
        np.save(tmp_path / f"{name}.npy", FRAMES)
    capsys.readouterr()
    found = scan(Roots([tmp_path, tmp_path]))
    assert list(found.specs) == ["other.npy"]
    assert found.clashes == {
        "a.b.npy": ["a b.npy", "a.b.npy", "a/b.npy"],
        "npy": ["é.npy", "ü.npy"],
    }
    log = capsys.readouterr().out
    assert log.count("a file was left out") == 5 + 2
    assert "3 files would have the id 'a.b.npy'" in log
    assert "the path has control characters" in log


def test_a_notice_names_files_to_who_may_read_them(tmp_path: Path) -> None:
    catalogue = Catalogue(MemoryStateStore(), Roots([tmp_path]), {}, BufferPool(1))
    catalogue.clashes = {"npy": ["é.npy", "ü.npy"], "z": ["-z", "z"]}
    assert catalogue.notice_for(SINGLE_USER) == (
        "files that would share an id are left out: 'é.npy', 'ü.npy' ('npy'), and 1 more ids, see "
        "the log; rename them, or register each under an id of its own"
    )
    catalogue.notice = "the scan ended"
    reader = Identity("alice", frozenset({"read:z"}))
    assert str(catalogue.notice_for(reader)).startswith("the scan ended; files that would share")
    assert "npy" not in str(catalogue.notice_for(reader))
    assert catalogue.notice_for(Identity("bob", frozenset())) == "the scan ended"
    catalogue.close()


# -- budgets --------------------------------------------------------------------------


class Crashing:
    """Decoders that crash over every file."""

    max_bytes = 1 << 30

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, request: Request, parse: Parse[T]) -> T:  # noqa: ARG002 - crashes before
        self.asked += 1
        raise DatasetUnreadableError(f"decoding {request.source!r} crashed")

    def forget(self, key: str) -> None:
        """Nothing is remembered."""


def test_files_that_cannot_be_decoded_end_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scanning, "MAX_FAILURES", 3)
    np.save(tmp_path / "a.npy", FRAMES)
    (tmp_path / "b").mkdir()
    for name in "abcdef":
        with h5py.File(tmp_path / "b" / f"{name}.h5", "w") as file:
            file["data"] = FRAMES
    np.save(tmp_path / "b" / "z.npy", FRAMES)
    decoders = Crashing()
    found = scan(Roots([tmp_path]), decoders)
    assert list(found.specs) == ["a.npy"]
    assert decoders.asked == 3
    assert found.ended is not None
    assert "after 3 files that cannot be decoded; not all datasets are listed" in found.ended
    log = capsys.readouterr().out
    assert "the scan ended early" in log
    assert str(tmp_path / "b" / "d.h5") in log


def test_a_scan_ends_when_its_time_is_up(tmp_path: Path) -> None:
    for name in "abcd":
        np.save(tmp_path / f"{name}.npy", FRAMES)
    times = iter(range(100))
    found = scan(Roots([tmp_path]), None, 4.0, lambda: next(times))
    assert list(found.specs) == ["a.npy", "b.npy"]
    assert found.ended is not None
    assert "ended after 4 seconds and 2 files" in found.ended
    assert len(scan(Roots([tmp_path])).specs) == 4


def test_directories_without_files_take_time_too(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).mkdir()
    times = iter(range(100))
    assert scan(Roots([tmp_path]), None, 2.0, lambda: next(times)).ended is not None


def test_lists_say_that_a_scan_ended_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in "abc":
        np.save(root / f"{name}.npy", FRAMES)
    settings = Settings(data_dir=tmp_path / "data", dataset_roots=str(root), scan=True)

    def listed() -> dict[str, object]:
        request = requests.Request({"type": "http"})
        identify(request.scope, SINGLE_USER)
        answer = asyncio.run(list_datasets(create_app(settings).parts.datasets, request, "", 100))
        page: dict[str, object] = json.loads(bytes(answer.body))
        # Other tests count descriptors: those of the application are closed now.
        del request
        gc.collect()
        return page

    assert listed() == {"datasets": ["a.npy", "b.npy", "c.npy"], "after": None}
    monkeypatch.setattr(scanning, "MAX_FILES", 2)
    assert listed() == {
        "datasets": ["a.npy", "b.npy"],
        "after": None,
        "notice": "the scan of the roots ended after 2 files; not all datasets are listed",
    }


@pytest.mark.parametrize(
    ("name", "hint"), [("a.csv", "Convert text"), ("a.dat", "Name the format")]
)
def test_texts_are_to_be_converted(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).write_text("label,number\n1,2\n")
    with pytest.raises(AmbiguousFormatError) as caught:
        open_recording(Roots([tmp_path]), [name], Hints())
    assert str(caught.value.hint).startswith(hint)
