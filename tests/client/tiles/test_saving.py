"""A view in a file: what a cut or a kill leaves, another call completes; with either client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Dataset, ProblemError, ProtocolError, StateError, TileProgress
from app.client.errors import OtherFileError, data_changed
from app.client.files import state as state_file
from app.client.tiles.plan import Plan
from app.client.tiles.saving import TileFile, TileSaving, naming
from tests.descriptors import nothing_left_open

from ..conftest import Connect
from ..fakes.exchange import Fault
from ..fakes.faces import leftovers
from ..fakes.service import FakeService
from ..fakes.tiles import TILED, VALUES

EACH = pytest.mark.parametrize("options", [{}, TILED])


@EACH
def test_values_in_c_order(scan: Dataset, tmp_path: Path, options: Any) -> None:  # noqa: ANN401
    view = scan.view(**options)
    seen: list[TileProgress] = []
    view.to_npy(tmp_path / "out.npy", progress=seen.append)
    assert np.array_equal(np.load(tmp_path / "out.npy"), VALUES)
    assert seen[-1] == TileProgress(VALUES.nbytes, VALUES.nbytes, view.plan.tiles)
    assert [p.tiles for p in seen] == list(range(1, view.plan.tiles + 1))
    view.to_npy(tmp_path / "out.raw")
    assert (tmp_path / "out.raw").read_bytes() == VALUES.tobytes()
    assert leftovers(tmp_path) == ["out.npy", "out.raw"]


def test_without_a_state_nothing_is_left(
    service: FakeService, scan: Dataset, tmp_path: Path
) -> None:
    service.script[:] = [Fault(drain=2), Fault(status=404)]
    with pytest.raises(ProblemError):
        scan.view().to_npy(tmp_path / "no.npy")
    assert leftovers(tmp_path) == []


def interrupted(service: FakeService, scan: Dataset, path: Path, options: Any) -> Any:  # noqa: ANN401
    """A view of which four tiles are written."""
    view = scan.view(**options)
    service.script[:] = [Fault(drain=4), Fault(status=404)]
    with pytest.raises(ProblemError):
        view.to_npy(path / "out.npy", state=path / "state")
    assert leftovers(path) == ["out.npy.partial", "state"]
    return view


@EACH
def test_another_call_resumes(
    service: FakeService,
    scan: Dataset,
    tmp_path: Path,
    options: Any,  # noqa: ANN401
) -> None:
    out, state = tmp_path / "out.npy", tmp_path / "state"
    view = interrupted(service, scan, tmp_path, options)
    with pytest.raises(StateError, match="another view"):
        scan.view(frames=[1]).to_npy(out, state=state)
    before = len(service.streams)
    view.to_npy(out, state=state)
    assert service.streams[before].query["after"].startswith("4.")
    assert np.array_equal(np.load(out), VALUES)
    assert leftovers(tmp_path) == ["out.npy"]


def test_what_was_changed_is_not_continued(
    service: FakeService, scan: Dataset, tmp_path: Path
) -> None:
    out, state = tmp_path / "out.npy", tmp_path / "state"
    view = interrupted(service, scan, tmp_path, TILED)
    partial = tmp_path / "out.npy.partial"
    octets = bytearray(partial.read_bytes())
    octets[130] ^= 1
    partial.write_bytes(octets)
    with pytest.raises(StateError, match="has changed"):
        view.to_npy(out, state=state)
    assert partial.read_bytes() == octets
    for text in ("{", "[]", '{"thalweg_tiles_state": 9}'):
        state.write_text(text)
        with pytest.raises(StateError):
            view.to_npy(out, state=state)
    assert leftovers(tmp_path) == ["out.npy.partial", "state"]


@pytest.mark.parametrize("tile", [-1, 0, 9])
def test_states_beyond_the_view(
    service: FakeService, scan: Dataset, tmp_path: Path, tile: int
) -> None:
    view = interrupted(service, scan, tmp_path, TILED)
    state = tmp_path / "state"
    state.write_text(json.dumps(json.loads(state.read_bytes()) | {"tile": tile}))
    with pytest.raises(StateError, match="another view"):
        view.to_npy(tmp_path / "out.npy", state=state)


def test_a_kill_after_the_last_tile(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    """Every tile is there, but the file was not moved to its place."""
    out, state = tmp_path / "out.npy", tmp_path / "state"
    view = interrupted(service, scan, tmp_path, TILED)
    plan: Plan = view.plan
    saving = TileSaving(out, plan, {"dataset": "scan", "view": view.spec}, state)
    saving.open()
    assert saving.start.tile == 4
    for tile in view.tiles(after=saving.start.token):
        saving.take(tile)
    saving.stop()
    assert json.loads(state.read_bytes())["tile"] == plan.tiles
    before = len(service.streams)
    view.to_npy(out, state=state)
    assert np.array_equal(np.load(out), VALUES)
    assert leftovers(tmp_path) == ["out.npy"]
    assert [seen.query.get("after") for seen in service.streams[before:]] == ["8.f0.x"]


def test_only_the_end_was_missing(
    service: FakeService, connect: Connect, scan: Dataset, tmp_path: Path
) -> None:
    out, state = tmp_path / "out.npy", tmp_path / "state"
    service.scan.bend = lambda frames: frames[:-1]
    with pytest.raises(ProtocolError):
        connect(service, retries=0).datasets["scan"].view().to_npy(out, state=state)
    assert json.loads(state.read_bytes())["tile"] == 6
    scan.view().to_npy(out, state=state)
    assert np.array_equal(np.load(out), VALUES)
    assert leftovers(tmp_path) == ["out.npy"]


def test_two_at_once_are_refused(scan: Dataset, tmp_path: Path) -> None:
    view = scan.view(**TILED)
    plan: Plan = view.plan
    first = TileSaving(tmp_path / "out.npy", plan, {}, None)
    first.open()
    with nothing_left_open(), pytest.raises(StateError, match="another process"):
        TileFile(tmp_path / "out.npy", plan, "npy")
    with pytest.raises(StateError, match="another process"):
        view.to_npy(tmp_path / "out.npy")
    first.stop()
    assert leftovers(tmp_path) == []


def test_the_state_follows_the_tiles(
    service: FakeService, scan: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "INTERVAL", -1)
    state = tmp_path / "state"
    tiles: list[int] = []
    scan.view(**TILED).to_npy(
        tmp_path / "out.npy",
        state=state,
        progress=lambda _: tiles.append(json.loads(state.read_bytes())["tile"]),
    )
    assert tiles == list(range(1, 9))
    assert service.streams


def test_errors_of_what_was_written_name_the_state_file() -> None:
    with pytest.raises(StateError, match="a has changed: remove b to start over"), naming("b"):
        raise StateError("a has changed")
    with pytest.raises(OtherFileError, match=r"^another process writes a$"), naming("b"):
        raise OtherFileError("another process writes a")
    with pytest.raises(ProblemError, match=r"other data. Open it$"), naming(None):
        raise data_changed("other data", "Open it")
