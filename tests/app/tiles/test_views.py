"""Registered views: known views are looked up no less than others."""

from __future__ import annotations

import base64
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from app.datasets.opened import OpenDataset
from app.errors import DataChangedError, InvalidOptionError, NotFoundError
from app.http.identity import SINGLE_USER
from app.state.base import RecordInvalidError
from app.state.ownership import Namespaces
from app.tiles import views as views_module
from app.tiles.views import KIND, MAX_VIEW_BYTES
from core.arrays import Integers
from core.errors import SelectionError
from tests.app.tiles.desk import ViewDesk


def test_a_view_that_another_worker_deleted_is_gone(tmp_path: Path) -> None:
    desk = ViewDesk(tmp_path, np.zeros((2, 3, 4, 5), "<u2"))
    ident, opened, _ = desk.views.register(SINGLE_USER, "scan", {})
    opened.close()
    desk.views.registered(SINGLE_USER, ident).close()
    Namespaces(desk.store, KIND).delete(SINGLE_USER.owner, ident)
    with pytest.raises(NotFoundError):
        desk.views.registered(SINGLE_USER, ident)
    desk.close()


def test_a_view_of_millions_of_frames_is_planned_but_not_registered(tmp_path: Path) -> None:
    desk = ViewDesk(tmp_path, np.zeros((2, 3, 4, 5), "<u2"))
    spec = {"select": {"frames": Integers(np.zeros(1 << 20, np.int64))}}
    with pytest.raises(RecordInvalidError, match="cannot be registered"):
        desk.views.register(SINGLE_USER, "scan", spec)
    opened = desk.views.open(SINGLE_USER, "scan", spec)
    assert opened.plan.shape == (1 << 20, 4, 5)
    opened.close()
    desk.close()


def test_what_cannot_be_registered_is_not_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = ViewDesk(tmp_path, np.zeros((2, 3, 4, 5), "<u2"))
    monkeypatch.setattr(OpenDataset, "plan", None)
    mask = base64.b64encode(bytes((1 << 20) + 1)).decode()
    for select in ({"mask": mask}, {"frames": Integers(np.zeros(1 << 20, np.int64))}):
        with pytest.raises(RecordInvalidError, match="cannot be registered"):
            desk.views.register(SINGLE_USER, "scan", {"select": select})
    desk.close()


def test_caches_of_views_are_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "_CACHED_BYTES", 20_000)
    desk = ViewDesk(tmp_path, np.zeros((2, 3, 4, 5), "<u2"))
    for k in range(1, 5):
        spec = {"select": {"frames": [0] * 100 * k}}
        ident, opened, _ = desk.views.register(SINGLE_USER, "scan", spec)
        opened.close()
        desk.views.registered(SINGLE_USER, ident).close()
    desk.views.open(SINGLE_USER, "scan", {"select": {"frames": [0] * 900}}).close()
    plans = [plan.view.nbytes + plan.positions.nbytes for plan in desk.views._plans.values()]
    assert plans == [14_400]
    desk.views.open(SINGLE_USER, "scan", {"select": {"frames": [0] * 2000}}).close()
    assert len(desk.views._plans) == 0
    assert sum(known.view.nbytes for known in desk.views._known.values()) == 8000
    desk.close()


def test_a_view_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As scans of earlier servers, and of frames of a gigabyte, may be.
    monkeypatch.setattr("app.datasets.opened.MAX_POSITIONS", 1 << 60)
    desk = ViewDesk(tmp_path, np.zeros((4, 8, 8), "<u2"))
    for positions, fits in ((1 << 55, True), ((1 << 55) + 1, False)):
        scan = {"nav_shape": [positions], "partial": True}
        entry = {"id": f"{fits}", "files": ["scan.npy"], **scan}
        desk.catalogue.register(SINGLE_USER, entry)[0].close()
        view = {"missing": "zero"}
        if fits:
            opened = desk.views.open(SINGLE_USER, "True", view)
            assert opened.plan.nbytes == MAX_VIEW_BYTES
            opened.close()
        else:
            with pytest.raises(SelectionError, match="more than"):
                desk.views.open(SINGLE_USER, "False", view)
    desk.close()


@pytest.mark.parametrize(
    ("stored", "spec", "dtype"),
    [
        ("<u2", {}, "<f4"),
        (">i4", {}, "<f8"),
        ("<f8", {}, "<f8"),
        ("<u2", {"dtype": "<u2", "casting": "clip"}, "<u2"),
        ("<u2", {"corrections": False}, "<u2"),
    ],
)
def test_corrected_integers_are_floats_unless_another_dtype_is_requested(
    tmp_path: Path, stored: str, spec: dict[str, object], dtype: str
) -> None:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/gain.npy", np.full((4, 5), 0.5))
    desk = ViewDesk(tmp_path, np.ones((2, 3, 4, 5), stored), corrections={"gain": "gain.npy"})
    with closing(desk.views.open(SINGLE_USER, "scan", spec)) as opened:
        tile = opened.read(opened.plan.tile(0))
        assert (opened.plan.dtype.str, opened.view.to_json().get("dtype", dtype)) == (dtype, dtype)
        assert tile.flat[0] == (0 if "casting" in spec else 1 if "corrections" in spec else 0.5)
    desk.close()


def test_casting_that_has_no_effect_is_refused(tmp_path: Path) -> None:
    desk = ViewDesk(tmp_path, np.ones((2, 4, 4, 5), "<u8"))
    for ask in (desk.views.open, desk.views.register):
        with pytest.raises(InvalidOptionError, match="casting=wrap has no effect") as caught:
            ask(SINGLE_USER, "scan", {"casting": "wrap"})
        assert caught.value.hint == "Add an integer dtype, such as '<u1', or leave casting out"
    for dtype in ("<f4", "<c8"):
        with pytest.raises(InvalidOptionError, match="casting=clip has no effect"):
            desk.views.open(SINGLE_USER, "scan", {"dtype": dtype, "casting": "clip"})
    for spec in ({"casting": "safe"}, {"casting": "wrap", "bin": {"nav": 2}}):
        desk.views.open(SINGLE_USER, "scan", spec).close()
    desk.close()


def test_casting_drops_imaginary_parts(tmp_path: Path) -> None:
    desk = ViewDesk(tmp_path, np.full((2, 4, 4, 5), 1 + 2j, "<c8"))
    spec = {"dtype": "<f4", "casting": "wrap"}
    with closing(desk.views.open(SINGLE_USER, "scan", spec)) as opened:
        assert opened.read(opened.plan.tile(0)).flat[0] == 1
    with pytest.raises(InvalidOptionError, match="casting=wrap has no effect"):
        desk.views.open(SINGLE_USER, "scan", {**spec, "dtype": "<c16"})
    desk.close()


def test_values_are_sent_in_little_endian_order(tmp_path: Path) -> None:
    desk = ViewDesk(tmp_path, np.ones((2, 4, 4, 5), ">u2"))
    for dtype in (None, ">i2", "<i2", "int16"):
        with closing(desk.views.open(SINGLE_USER, "scan", {"dtype": dtype})) as opened:
            assert opened.plan.dtype.str in {"<u2", "<i2"}
            assert opened.read(opened.plan.tile(0)).tobytes()[:2] == b"\1\0"
    desk.close()


def test_a_view_that_was_stored_without_a_dtype_keeps_its_own(tmp_path: Path) -> None:
    """Its tokens go on: the values are those of the tiles before them."""
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/dark.npy", np.ones((4, 5)))
    desk = ViewDesk(tmp_path, np.full((2, 3, 4, 5), 3, "<u2"), corrections={"dark": "dark.npy"})
    Namespaces(desk.store, KIND).create(
        SINGLE_USER.owner, "earlier", {"dataset": "scan", "view": {}}
    )
    with closing(desk.views.registered(SINGLE_USER, "earlier")) as opened:
        assert (opened.plan.dtype.str, opened.read(opened.plan.tile(0)).flat[0]) == ("<u2", 2)
    desk.close()


def test_a_correction_that_changes_ends_what_is_being_read(tmp_path: Path) -> None:
    """No two tiles of one answer are of different dark images."""
    (tmp_path / "data").mkdir()
    dark = tmp_path / "data/dark.npy"
    np.save(dark, np.ones((4, 5)))
    desk = ViewDesk(tmp_path, np.full((2, 3, 4, 5), 3, "<u2"), corrections={"dark": "dark.npy"})
    with closing(desk.open(tile_shape=[1, 3, 4, 5])) as opened:
        assert opened.read(opened.plan.tile(0)).flat[0] == 2
        np.save(dark, np.full((4, 5), 2.0))
        with pytest.raises(DataChangedError, match=r"'dark.npy' was modified"):
            opened.read(opened.plan.tile(1))
    with closing(desk.open()) as opened:
        assert opened.read(opened.plan.tile(0)).flat[0] == 1
    desk.close()
