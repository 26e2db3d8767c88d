"""Reductions in segments whose results are kept, and used if they are what they should be."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.engine.budgets import Budgets
from app.engine.workers import Workers
from app.errors import InvalidOptionError
from app.http.identity import SINGLE_USER
from app.state.base import StoreError
from app.state.blob_files import FileBlobStore
from app.tiles import reductions
from app.tiles.reductions import CancelledError, PartialStore, ReductionJob
from app.tiles.views import Views
from app.tokens import KeyRing, new_key
from core.errors import CancelledError as StoppedError
from tests.app.state.memory import MemoryStateStore
from tests.app.tiles.desk import ViewDesk
from tests.core.tiles.test_detectors import weights_of

Array = npt.NDArray[Any]
FRAMES = np.random.default_rng(4).integers(0, 900, (5, 6, 8, 7)).astype("<u2")
FRAME = 8 * 7 * 4
"""Bytes of a frame as it is reduced."""


class Desk:
    """Reductions of one dataset, without a server."""

    def __init__(self, directory: Path, frames: Array) -> None:
        (directory / "data").mkdir()
        np.save(directory / "data" / "scan.npy", frames)
        self.catalogue = Catalogue(
            MemoryStateStore(), Roots([directory / "data"]), {}, BufferPool(4)
        )
        self.tiles = Views(self.catalogue, MemoryStateStore(), KeyRing([new_key()]))
        self.catalogue.register(SINGLE_USER, {"id": "scan", "files": ["scan.npy"]})[0].close()
        self.kept = directory / "kept"
        self.partials = PartialStore(FileBlobStore(self.kept))
        self.engine = Workers(2)
        self.told: list[tuple[int, int]] = []

    def run(self, spec: dict[str, Any], view: dict[str, Any] | None = None) -> dict[str, Array]:
        opened = self.tiles.open(SINGLE_USER, "scan", view or {})
        try:
            job = ReductionJob(opened, spec, self.engine, self.partials)
            self.told.clear()
            return job.run(lambda done, total: self.told.append((done, total)), lambda: False)
        finally:
            opened.close()

    def files(self) -> list[Path]:
        return sorted(path for path in self.kept.rglob("*") if path.is_file())

    def computed(self) -> bool:
        """Whether a chunk was computed: progress reports cover chunks as well as segments."""
        return len(self.told) > math.ceil(30 / 8)

    def close(self) -> None:
        self.engine.close()
        self.catalogue.close()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Chunks of two frames, segments of four chunks."""
    monkeypatch.setattr(reductions, "CHUNK_BYTES", 2 * FRAME)
    monkeypatch.setattr(reductions, "SEGMENT_BYTES", 8 * FRAME)
    made = Desk(tmp_path, FRAMES)
    yield made
    made.close()


SPECS: list[dict[str, Any]] = [
    {"op": "sum"},
    {"op": "std"},
    {"op": "max", "over": "pixels"},
    {"op": "com"},
]


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_kept_gives_what_was_computed(desk: Desk, spec: dict[str, Any]) -> None:
    computed = desk.run(spec)
    assert desk.computed()
    assert desk.told[-1][0] == desk.told[-1][1]
    assert len(desk.files()) == math.ceil(30 / 8)
    kept = desk.run(spec)
    assert not desk.computed()
    assert kept.keys() == computed.keys()
    assert all(np.array_equal(kept[name], computed[name], equal_nan=True) for name in kept)


def test_sums_are_those_of_numpy(desk: Desk) -> None:
    image = desk.run({"op": "sum"})["sum"]
    assert np.array_equal(image, FRAMES.astype("f8").sum((0, 1)))
    values = desk.run({"op": "max", "over": "pixels"})["max"]
    assert np.array_equal(values, FRAMES.max((2, 3)))


@pytest.mark.parametrize("dtype", ["?", "<f4", "<f8"])
def test_no_weight_is_rounded(desk: Desk, dtype: str) -> None:
    image = (np.random.default_rng(5).normal(size=(8, 7)) * 9).astype(dtype)
    found = desk.run({"op": "virtual", "detectors": [weights_of(image)]})["detector_0"]
    expected = np.einsum("abyx,yx->ab", FRAMES.astype("f8"), image.astype("f8"))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("view", [{}, {"bin": {"sig": 64}}, {"bin": {"nav": 2, "sig": 8}}])
def test_corrected_and_binned_frames_are_reduced_in_float64(
    tmp_path: Path, view: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = np.random.default_rng(5).integers(0, 1 << 16, (4, 64, 64)).astype("<u2")
    dark, gain = np.full((64, 64), 0.5), np.random.default_rng(6).uniform(0.9, 1.1, (64, 64))
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "dark.npy", dark)
    np.save(tmp_path / "data" / "gain.npy", gain)
    corrections = {"dark": "dark.npy", "gain": "gain.npy"}
    desk = ViewDesk(tmp_path, frames, corrections=corrections)
    engine = Workers(1)
    exact = (frames - dark) * gain
    exact = exact.reshape(-1, view.get("bin", {}).get("nav", 1), 64, 64).sum(1)
    try:
        with closing(desk.open(**view)) as opened:
            kept = PartialStore(FileBlobStore(tmp_path / "kept"))
            job = ReductionJob(opened, {"op": "sum", "over": "pixels"}, engine, kept)
            found = job.run(lambda _done, _of: None, lambda: False)["sum"]
        monkeypatch.setattr(reductions, "MAX_FRAME_BYTES", 4 * 64 * 64)
        with closing(desk.open()) as opened:  # such frames are too large for float64
            ReductionJob(opened, {"op": "sum"}, engine, kept)
    finally:
        engine.close()
        desk.close()
    np.testing.assert_allclose(found, exact.sum((1, 2)), rtol=1e-13)


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 64]))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("damage", [lose, cut, zero, flip])
def test_a_damaged_partial_is_computed_again(desk: Desk, spec: dict[str, Any], damage: Any) -> None:  # noqa: ANN401
    whole = desk.run(spec)
    for path in desk.files():
        damage(path)
        again = desk.run(spec)
        assert desk.computed()
        assert all(np.array_equal(again[name], whole[name], equal_nan=True) for name in whole)
    desk.run(spec)
    assert not desk.computed()


@pytest.mark.parametrize(
    "other",
    [
        np.zeros((1, 3)),
        np.zeros((3, 3, 3)),
        np.zeros(56),
        np.zeros((1, 56), "f4"),
        np.zeros((1, 8), "f4"),
        np.zeros((1, 8), "i8"),
    ],
)
@pytest.mark.parametrize("spec", SPECS[:3])
def test_a_partial_of_another_shape_is_not_used(
    desk: Desk, spec: dict[str, Any], other: Array
) -> None:
    whole = desk.run(spec)
    for path in desk.files():
        path.unlink()
        desk.partials.put(path.stem, other)
    again = desk.run(spec)
    assert all(np.array_equal(again[name], whole[name]) for name in whole)


def test_other_views_and_reductions_have_partials_of_their_own(desk: Desk) -> None:
    desk.run({"op": "sum"})
    names = {path.stem for path in desk.files()}
    for spec, view in (
        ({"op": "mean"}, {}),
        ({"op": "sum", "over": "pixels"}, {}),
        ({"op": "sum"}, {"sig": [[0, 4], [0, 7]]}),
    ):
        desk.run(spec, view)
        assert desk.computed()
        more = {path.stem for path in desk.files()}
        assert more > names
        names = more


def test_one_that_nobody_waits_for_ends(desk: Desk) -> None:
    opened = desk.tiles.open(SINGLE_USER, "scan", {})
    job = ReductionJob(opened, {"op": "sum"}, desk.engine, desk.partials)
    with pytest.raises(CancelledError):
        job.run(lambda *_: None, lambda: True)
    opened.close()
    assert desk.files() == []


def test_complex_frames_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FRAMES.astype("<c8"))
    with pytest.raises(InvalidOptionError, match="complex"):
        desk.run({"op": "sum"})
    desk.close()


def test_frames_have_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "MAX_FRAME_BYTES", FRAME - 1)
    desk = Desk(tmp_path, FRAMES)
    with pytest.raises(InvalidOptionError, match="more than") as caught:
        desk.run({"op": "sum"})
    members = caught.value.members
    assert (members["limit"], members["allowed"]) == ("frame_bytes", FRAME - 1)
    assert caught.value.hint
    desk.close()


def test_a_reduction_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    desk, left = Desk(tmp_path, FRAMES), threading.Event()
    opened = desk.tiles.open(SINGLE_USER, "scan", {})
    try:
        job = ReductionJob(opened, {"op": "sum"}, desk.engine, desk.partials)

        def leave() -> bool:
            left.set()
            return False

        with Budgets().of_request("ann", left) as budget, pytest.raises(StoppedError):
            budget.run(lambda: [job.run(lambda _d, _t: None, leave) for _ in range(2)])
    finally:
        opened.close()


def test_stored_segments_renew_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "SEGMENT_BYTES", 6 * FRAME)
    monkeypatch.setattr(reductions, "CHUNK_BYTES", 2 * FRAME)
    desk = Desk(tmp_path, FRAMES)
    with Budgets().of_request("ann", threading.Event()) as budget:
        budget.run(desk.run, {"op": "sum"})
        stored = len(desk.files())
        assert stored > 1
        assert budget.renewals == stored
        budget.run(desk.run, {"op": "sum"})
        assert budget.renewals == stored


def test_results_of_a_scan_with_empty_positions_keep_its_shape(desk: Desk) -> None:
    entry = {"id": "partial", "files": ["scan.npy"], "nav_shape": [6, 6], "partial": True}
    desk.catalogue.register(SINGLE_USER, entry)[0].close()
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"op": "sum", "over": "pixels"}, {"missing": "nan"}),
        ({"op": "sum"}, {}),
        ({"op": "com"}, {"missing": "nan"}),
    ]
    results = []
    for spec, view in asked:
        with closing(desk.tiles.open(SINGLE_USER, "partial", view)) as opened:
            job = ReductionJob(opened, spec, desk.engine, desk.partials)
            results.append(job.run(lambda _done, _total: None, lambda: False))
    sums, frame, centres = results
    expected = np.full(36, np.nan)
    expected[:30] = FRAMES.reshape(30, -1).sum(1)
    assert np.array_equal(sums["sum"], expected.reshape(6, 6), equal_nan=True)
    assert np.array_equal(frame["sum"], FRAMES.reshape(30, 8, 7).sum(0))
    assert [np.isnan(centre).sum() for centre in centres.values()] == [6, 6]


def test_results_of_data_that_changed_are_computed_anew(desk: Desk) -> None:
    """The name of a partial covers the view, the files and the way of computing."""
    spec = {"op": "sum", "over": "pixels"}
    before = desk.run(spec)["sum"]
    np.save(desk.kept.parent / "data" / "scan.npy", FRAMES[::-1].copy())
    np.testing.assert_array_equal(desk.run(spec)["sum"], before[::-1])
    part = desk.run(spec, {"sig": [[0, 4], [0, 7]]})["sum"]
    np.testing.assert_array_equal(part, FRAMES[::-1, :, :4].sum(axis=(2, 3), dtype="f8"))


def test_another_version_of_the_computation_has_names_of_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name() -> str:
        with closing(desk.tiles.open(SINGLE_USER, "scan", {})) as view:
            return ReductionJob(view, "com", desk.engine, desk.partials).name

    first = name()
    assert first == name()
    monkeypatch.setattr(reductions, "VERSION", "4")
    assert name() != first


def test_a_reduction_in_short_is_the_one_in_json(desk: Desk) -> None:
    for short, spec in (
        ("sum", {"op": "sum"}),
        ("disk:3,4,2", {"op": "virtual", "detectors": [{"disk": {"centre": [3, 4], "radius": 2}}]}),
    ):
        with closing(desk.tiles.open(SINGLE_USER, "scan", {})) as view:
            brief = ReductionJob(view, short, desk.engine, desk.partials)
            whole = ReductionJob(view, spec, desk.engine, desk.partials)
            assert (brief.name, brief.results) == (whole.name, whole.results)
            found = brief.run(lambda *_: None, lambda: False)
        for result, values in desk.run(spec).items():
            np.testing.assert_array_equal(found[result], values)


def test_progress_counts_tiles_of_all(desk: Desk) -> None:
    desk.run({"op": "sum"})
    tiles = math.ceil(30 / 2)
    assert desk.told[-1] == (tiles, tiles)
    assert {total for _, total in desk.told} == {tiles}
    assert [done for done, _ in desk.told] == sorted(done for done, _ in desk.told)


def test_a_segment_is_published_once_it_is_stored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(desk.tiles.open(SINGLE_USER, "scan", {})) as view:
        job = ReductionJob(view, {"op": "com"}, desk.engine, desk.partials)
        assert not job.is_done((0, 4))
        job.publish((0, 4))
        assert job.is_done((0, 4))
        assert not job.is_done((4, 8))
        monkeypatch.setattr(desk.partials, "put", lambda *_: None)
        with pytest.raises(StoreError, match="the result cannot be stored"):
            job.publish((4, 8))


@pytest.mark.parametrize(
    ("spec", "arrays"),
    [
        # Images of sums, each chunk's and the merged one; or five moments of a pixel.
        ({"op": "mean"}, 8 * 56 * (2 * 2 + 3)),
        ({"op": "std"}, 5 * 8 * 56 * (2 * 2 + 3)),
        # Maps; for centres three rows of weights and two grids, too.
        ({"op": "max", "over": "pixels"}, 3 * 8 * 30),
        ({"op": "com"}, 56 * (3 * (8 + 4) + 2 * 2 * 8) + 3 * 3 * 8 * 30),
    ],
)
def test_memory_is_that_of_the_arrays(desk: Desk, spec: dict[str, Any], arrays: int) -> None:
    with closing(desk.tiles.open(SINGLE_USER, "scan", {})) as view:
        job = ReductionJob(view, spec, desk.engine, desk.partials)
    # Beside them, as a task has it, the chunks that are being read.
    assert job.nbytes == arrays + 2 * desk.engine.width * 2 * FRAME


def test_a_chunk_and_a_segment_have_the_sizes_that_are_documented() -> None:
    assert (reductions.CHUNK_BYTES, reductions.SEGMENT_BYTES) == (8 << 20, 256 << 20)
