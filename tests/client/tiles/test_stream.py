"""Tiles from a service that misbehaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.client import (
    Client,
    Dataset,
    ProblemError,
    ProtocolError,
    TileProgress,
    Tiles,
    View,
)

from ..conftest import Connect
from ..fakes.exchange import Fault
from ..fakes.frames import DATA, ERROR, HEARTBEAT, Frames, with_beats
from ..fakes.service import FakeService
from ..fakes.tiles import TILED, TWO, TWO_VALUES, VALUES, changed


def shape_of(view: View) -> Any:  # noqa: ANN401
    return view.plan.shape, view.plan.dtype, view.plan.nbytes


def test_tiles_come_once_and_in_order(service: FakeService, scan: Dataset) -> None:
    view = scan.view(**TILED)
    with view.tiles() as tiles:
        assert tiles.token in {None, service.scan.token(0)}
        for index, tile in enumerate(tiles):
            assert tile.index == index
            assert str(tiles.token) == tile.token
            place = tuple(slice(o, o + n) for o, n in zip(tile.origin, tile.shape, strict=True))
            assert np.array_equal(tile.data, VALUES[place])
        assert tile.index == view.plan.tiles - 1
    assert list(view.tiles(after=tile.token)) == []
    assert [t.index for t in view.tiles(first=3, max_tiles=4)] == [3, 4, 5, 6]
    assert [t.index for t in view.tiles(after=service.scan.token(6))] == [6, 7]
    assert [t.index for t in view.tiles(max_tiles=2)] == [0, 1]


@pytest.mark.parametrize("options", [{}, TWO, TILED])
def test_a_whole_view(scan: Dataset, options: Any) -> None:  # noqa: ANN401
    view = scan.view(**options)
    wanted = TWO_VALUES if options is TWO else VALUES
    assert shape_of(view) == (wanted.shape, wanted.dtype, wanted.nbytes)
    seen: list[TileProgress] = []
    assert np.array_equal(view.read(progress=seen.append), wanted)
    assert seen[-1] == TileProgress(wanted.nbytes, wanted.nbytes, view.plan.tiles)
    for threads in (1, 3, 99):
        out = np.zeros_like(wanted)
        assert view.read(out, threads=threads) is out
        assert np.array_equal(out, wanted)
    columns = np.zeros((*wanted.shape[:-1], 8), wanted.dtype)
    view.read(columns[..., ::2][..., : wanted.shape[-1]])
    assert np.array_equal(columns[..., : 2 * wanted.shape[-1] : 2], wanted)


def test_arrays_that_do_not_fit(scan: Dataset) -> None:
    view = scan.view()
    fixed = np.zeros_like(VALUES)
    fixed.flags.writeable = False
    for out in (np.zeros(3, "<u2"), VALUES.astype("<f4"), fixed):
        with pytest.raises(ValueError, match="out"):
            view.read(out)
    wrong: Any
    for wrong in ({"first": 99}, {"first": -1}, {"after": "x", "first": 1}, {"max_tiles": -1}):
        with pytest.raises(ValueError, match=r"tile|exclude"):
            next(view.tiles(**wrong))


def parts_of(tiles: Tiles) -> list[int]:
    return [tile.index for tile in tiles]


def test_stretches_for_readers_in_parallel(service: FakeService) -> None:
    with Client(service.url) as client:
        check_stretches(service, client.datasets["scan"].view(**TILED))


def check_stretches(service: FakeService, view: View) -> None:
    assert [parts_of(tiles) for tiles in view.parallel(3)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    streams = view.parallel(2)
    service.scan.fingerprint = "f1"
    for tiles in streams:
        with pytest.raises(ProblemError, match="data-changed"):
            list(tiles)
    with pytest.raises(ProblemError, match="data-changed"):
        view.parallel(2)


def cut_tiles(service: FakeService, view: View, stride: int) -> None:
    """Cut the answer at every byte, or every few."""
    wanted = TWO_VALUES
    cut = 0
    while True:
        service.script[:] = [Fault(cut=cut)]
        before = len(service.streams)
        with view.tiles() as tiles:
            got = [(t.index, t.data.copy()) for t in tiles]
        assert [index for index, _ in got] == [0, 1]
        assert np.array_equal(np.concatenate([data for _, data in got]), wanted)
        if len(service.streams) == before + 1 and cut > 1000:
            return
        cut += stride


def test_a_cut_at_every_byte(service: FakeService, scan: Dataset, stride: int) -> None:
    cut_tiles(service, scan.view(**TWO), stride)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503, headers={"Retry-After": "0"}),
        Fault(drain=1),
        Fault(drain=0),
        Fault(change=lambda octets: octets[:-40] + bytes([octets[-40] ^ 1]) + octets[-39:]),
        Fault(change=lambda octets: octets[:250] + bytes([octets[250] ^ 1]) + octets[251:]),
        Fault(change=lambda octets: octets[:300]),
    ],
)
def test_what_goes_away(service: FakeService, scan: Dataset, fault: Fault) -> None:
    service.script[:] = [fault]
    assert np.array_equal(scan.view().read(), VALUES)
    assert len(service.streams) == 2


def test_limits_of_the_service(service: FakeService, scan: Dataset) -> None:
    service.scan.most = 3
    view = scan.view(**TILED)
    assert parts_of(view.tiles(max_tiles=7)) == list(range(7))
    assert [s.query["max_tiles"] for s in service.streams] == ["7", "4", "1"]


def in_array(**more: Any) -> Any:  # noqa: ANN401
    def bend(frames: Frames) -> Frames:
        header = frames[0][1]
        header["arrays"] = [header["arrays"][0] | more]
        return frames

    return bend


LIES: list[Any] = [
    changed(0, tile=1),
    changed(0, tile=None),
    changed(0, tile=True),
    changed(1, tile=0),
    changed(1, tile=10**30),
    changed(1, origin=[0, 0, 0]),
    changed(0, shape=[1, 4, 2]),
    changed(0, shape=[1 << 40, 4, 3]),
    changed(0, dtype="<i2"),
    changed(0, arrays=[]),
    changed(0, arrays=None),
    changed(0, arrays=[3]),
    changed(0, token=None),
    changed(0, token="x" * 600),
    changed(2, tiles=3),
    changed(2, nbytes=None),
    changed(2, reason="well"),
    changed(2, reason="count"),
    in_array(nbytes=1 << 40),
    in_array(offset=1),
    in_array(name="x"),
    in_array(dtype="<f2"),
    lambda frames: [(DATA, frames[0][1], frames[0][2] * 9), *frames[1:]],
    lambda frames: [(DATA, frames[0][1], b""), *frames[1:]],
    lambda frames: [frames[0], frames[0], *frames[1:]],
    lambda frames: [frames[1], frames[0], *frames[2:]],
    lambda frames: [frames[0], frames[2]],
    lambda frames: frames[:2],
    lambda frames: [(2, {}, b""), *frames],
    lambda frames: [(HEARTBEAT, {}, b"x" * 99), *frames],
    lambda frames: [(ERROR, {}, b""), *frames],
    lambda frames: [(ERROR, {"problem": {"status": "x"}}, b""), *frames],
]


@pytest.mark.parametrize("lie", range(len(LIES)))
def test_lies_are_refused(service: FakeService, connect: Connect, lie: int) -> None:
    service.scan.bend = bend = LIES[lie]
    with pytest.raises(ProtocolError):
        connect(service, retries=0).datasets["scan"].view(**TWO).read()
    service.scan.bend = bend
    got = connect(service, retries=1).datasets["scan"].view(**TWO).read()
    assert np.array_equal(got, TWO_VALUES)


def test_heartbeats_may_come_between_any_frames(service: FakeService, scan: Dataset) -> None:
    service.scan.bend = with_beats
    assert np.array_equal(scan.view(**TILED).read(), VALUES)
    assert len(service.streams) == 1
    cut = 0
    while len(service.streams) > 1 or not cut:
        service.seen.clear()
        service.scan.bend = with_beats
        service.script[:] = [Fault(cut=cut)]
        assert np.array_equal(scan.view(**TWO).read(), TWO_VALUES)
        cut += 13
    assert cut > 700


def test_changed_data(service: FakeService, scan: Dataset) -> None:
    problem = {"status": 412, "code": "data-changed", "detail": "a.raw was modified"}
    service.scan.bend = lambda frames: [frames[0], (ERROR, {"problem": problem}, b"")]
    with pytest.raises(ProblemError, match="was modified") as caught:
        scan.view().read()
    assert (caught.value.status, caught.value.code) == (412, "data-changed")
    service.script[:] = [Fault(drain=1)]
    tiles = scan.view().tiles()
    next(tiles)
    service.scan.fingerprint = "f1"
    with pytest.raises(ProblemError, match="data-changed"):
        list(tiles)
    service.scan.fingerprint = "f0"
    view = scan.view()
    assert view.plan.tiles == 6
    service.scan.values = np.zeros((2, 2, 4, 3), "<u2")
    with pytest.raises(ProblemError, match="data-changed"):
        view.read()
    with pytest.raises(ProblemError, match="data-changed"):
        _ = view.id


def test_a_view_with_an_id_is_tied_to_the_data(service: FakeService, scan: Dataset) -> None:
    view = scan.view()
    assert view.id in service.scan.views
    service.scan.fingerprint = "f1"
    with pytest.raises(ProblemError, match="data-changed"):
        view.read()


def test_keys_that_retire(service: FakeService, scan: Dataset) -> None:
    service.scan.token = lambda tile: f"{tile}.f0.old"  # type: ignore[method-assign]
    service.script[:] = [Fault(drain=1)]
    assert np.array_equal(scan.view().read(), VALUES)
    assert [s.target for s in service.seen].count("/v1/tokens/refresh") == 1
