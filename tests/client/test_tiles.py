"""Tiles from a service that misbehaves."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import (
    AsyncClient,
    Client,
    Dataset,
    ProblemError,
    ProtocolError,
    StateError,
    TileProgress,
    Tiles,
    View,
)
from app.client._tile_files import TileFile
from tests.client.fake import FakeService, Fault
from tests.client.fake_tiles import DATA, ERROR, HEARTBEAT, FakeScan, Frames

VALUES = FakeScan().values
TWO: Any = {"frames": [4, 1], "tile_shape": (1, 4, 3)}
TILED: Any = {"tile_shape": (2, 2, 3, 2)}


@pytest.fixture
def client(service: FakeService) -> Iterator[Client]:
    with Client(service.url, retries=3) as made:
        yield made


@pytest.fixture
def scan(client: Client) -> Dataset:
    return client.datasets["scan"]


def test_the_catalogue(client: Client, scan: Dataset) -> None:
    assert client.datasets.list() == list(client.datasets) == ["a", "b", "scan"]
    assert (scan.nav_shape, scan.sig_shape, scan.dtype) == ((2, 3), (4, 3), np.dtype("<u2"))
    assert scan.fingerprint == "f0"
    made = client.datasets.register({"id": "new"}, files=[Path("a.raw")], dtype=np.uint16)
    assert (made.id, made.info["files"], made.info["dtype"]) == ("new", ["a.raw"], "<u2")
    with pytest.raises(ProblemError):
        _ = client.datasets["none"].info


def test_tiles_come_once_and_in_order(service: FakeService, scan: Dataset) -> None:
    view = scan.view(**TILED)
    with view.tiles() as tiles:
        assert tiles.token is None
        for index, tile in enumerate(tiles):
            assert tile.index == index
            assert str(tiles.token) == tile.token
            place = tuple(slice(o, o + n) for o, n in zip(tile.origin, tile.shape, strict=True))
            assert np.array_equal(tile.data, VALUES[place])
        assert tile.index == view.plan.tiles - 1
    assert view.tiles(after=tile.token).plan == view.plan
    assert list(view.tiles(after=tile.token)) == []
    assert [t.index for t in view.tiles(first=3, max_tiles=4)] == [3, 4, 5, 6]
    assert [t.index for t in view.tiles(after=service.scan.token(6))] == [6, 7]
    assert [t.index for t in view.tiles(max_tiles=2)] == [0, 1]


@pytest.mark.parametrize("options", [{}, TWO, TILED])
def test_a_whole_view(scan: Dataset, options: Any) -> None:  # noqa: ANN401
    view = scan.view(**options)
    wanted = VALUES.reshape(6, 4, 3)[[4, 1]] if options is TWO else VALUES
    assert (view.shape, view.dtype, view.nbytes) == (wanted.shape, wanted.dtype, wanted.nbytes)
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
            view.tiles(**wrong)


def parts_of(tiles: Tiles) -> list[int]:
    return [tile.index for tile in tiles]


def test_stretches_for_readers_in_parallel(service: FakeService, scan: Dataset) -> None:
    view = scan.view(**TILED)
    assert [parts_of(tiles) for tiles in view.parallel(3)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    streams = view.parallel(2)
    service.scan.fingerprint = "f1"
    for tiles in streams:
        with pytest.raises(ProblemError, match="data-changed"):
            list(tiles)
    with pytest.raises(ProblemError, match="data-changed"):
        view.parallel(2)


def cut_tiles(service: FakeService, view: View) -> None:
    """Cut the answer at every byte."""
    wanted = VALUES.reshape(6, 4, 3)[[4, 1]]
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
        cut += 1


def test_a_cut_at_every_byte(service: FakeService, scan: Dataset) -> None:
    cut_tiles(service, scan.view(**TWO))


def test_asynchronously(service: FakeService) -> None:
    async def run() -> None:
        async with AsyncClient(service.url, retries=3) as client:
            assert await client.datasets.list() == ["a", "b", "scan"]
            assert (await client.datasets.register(id="new", files=["x"])).id == "new"
            scan = client.datasets["scan"]
            assert (await scan.info())["dtype"] == "<u2"
            view = await scan.view(nav=slice(None), **TILED)
            for cut in range(0, 2000, 97):
                service.script[:] = [Fault(cut=cut)]
                assert np.array_equal(await view.read(), VALUES)
            async with view.tiles(max_tiles=3) as tiles:
                assert [tile.index async for tile in tiles] == [0, 1, 2]
            rest = view.tiles(after=tiles.token)
            assert [tile.index async for tile in rest] == [3, 4, 5, 6, 7]

    asyncio.run(run())


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


def changed(where: int, **more: Any) -> Any:  # noqa: ANN401
    def bend(frames: Frames) -> Frames:
        kind, header, payload = frames[where]
        frames[where] = (kind, header | more, payload)
        return frames

    return bend


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
def test_lies_are_refused(service: FakeService, lie: int) -> None:
    service.scan.bend = bend = LIES[lie]
    with Client(service.url, retries=0) as client, pytest.raises(ProtocolError):
        client.datasets["scan"].view(**TWO).read()
    with Client(service.url, retries=1) as client:
        service.scan.bend = bend
        got = client.datasets["scan"].view(**TWO).read()
    assert np.array_equal(got, VALUES.reshape(6, 4, 3)[[4, 1]])


def test_heartbeats_are_nothing(service: FakeService, scan: Dataset) -> None:
    service.scan.bend = lambda frames: [(HEARTBEAT, {}, b""), *frames]
    assert np.array_equal(scan.view().read(), VALUES)
    assert len(service.streams) == 1


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


def test_a_file(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    each: list[dict[str, Any]] = [{}, TILED]
    for options in each:
        view = scan.view(**options)
        view.to_npy(tmp_path / "out.npy")
        assert np.array_equal(np.load(tmp_path / "out.npy"), VALUES)
        view.to_npy(tmp_path / "out.raw")
        assert (tmp_path / "out.raw").read_bytes() == VALUES.tobytes()
    service.script[:] = [Fault(drain=2), Fault(status=404)]
    with pytest.raises(ProblemError):
        scan.view().to_npy(tmp_path / "no.npy")
    assert sorted(os.listdir(tmp_path)) == ["out.npy", "out.raw"]  # noqa: PTH208


def test_a_file_in_two_goes(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    out, state = tmp_path / "out.npy", tmp_path / "state"
    each: list[dict[str, Any]] = [{}, TILED]
    for options in each:
        view = scan.view(**options)
        service.script[:] = [Fault(drain=4), Fault(status=404)]
        with pytest.raises(ProblemError):
            view.to_npy(out, state=state)
        with pytest.raises(StateError, match="another view"):
            scan.view(frames=[1]).to_npy(out, state=state)
        before = len(service.streams)
        view.to_npy(out, state=state)
        assert service.streams[before].query["after"].startswith("4.")
        assert np.array_equal(np.load(out), VALUES)
        assert not state.exists()
        out.unlink()
    service.script[:] = [Fault(drain=4), Fault(status=404)]
    with pytest.raises(ProblemError):
        view.to_npy(out, state=state)
    octets = bytearray((tmp_path / "out.npy.partial").read_bytes())
    octets[130] ^= 1
    (tmp_path / "out.npy.partial").write_bytes(octets)
    with pytest.raises(StateError, match="not what it was"):
        view.to_npy(out, state=state)
    for text in ("{", "[]", '{"thalweg_tiles_state": 9}'):
        state.write_text(text)
        with pytest.raises(StateError):
            view.to_npy(out, state=state)


def test_a_file_whose_tiles_are_all_there(service: FakeService, tmp_path: Path) -> None:
    out, state = tmp_path / "out.npy", tmp_path / "state"
    service.scan.bend = lambda frames: frames[:-1]
    with Client(service.url, retries=0) as client:
        view = client.datasets["scan"].view()
        with pytest.raises(ProtocolError):
            view.to_npy(out, state=state)
        left = state.read_text()
        assert json.loads(left)["tile"] == view.plan.tiles == 6
        for beyond in (0, 7):
            state.write_text(json.dumps(json.loads(left) | {"tile": beyond}))
            with pytest.raises(StateError, match="another view"):
                view.to_npy(out, state=state)
        state.write_text(left)
        view.to_npy(out, state=state)
    assert np.array_equal(np.load(out), VALUES)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_two_at_once_are_refused(scan: Dataset, tmp_path: Path) -> None:
    view = scan.view()
    plan = view.plan
    with (tmp_path / "out.npy.partial").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(StateError, match="another process"):
            TileFile(tmp_path / "out.npy", plan, "npy")
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        with pytest.raises(StateError, match="another process"):
            view.to_npy(tmp_path / "out.npy")
    view.to_npy(tmp_path / "out.npy")
    assert np.array_equal(np.load(tmp_path / "out.npy"), VALUES)


def test_plain_bytes(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    view = scan.view(**TILED)
    wanted = b"".join(tile.data.tobytes() for tile in view.tiles())
    for cut in (0, 50, 99, 110, 150, 200):
        service.script[:] = [Fault(cut=cut)]
        view.raw(tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == wanted
    state = tmp_path / "state"
    service.script[:] = [Fault(cut=150)]
    with Client(service.url, retries=0) as hasty, pytest.raises(Exception, match=r"bytes|closed"):
        hasty.datasets["scan"].view(**TILED).raw(tmp_path / "two", state=state)
    assert state.exists()
    service.script[:] = []
    view.raw(tmp_path / "two", state=state)
    assert (tmp_path / "two").read_bytes() == wanted
    assert service.streams[-1].headers["if-range"] == '"f0"'


@pytest.mark.parametrize("span", ["", "bytes 0-143/144", "bytes 56-143/145"])
def test_a_range_that_was_not_asked_for(service: FakeService, tmp_path: Path, span: str) -> None:
    service.scan.content_range = span
    service.script[:] = [Fault(cut=150)]
    with (
        Client(service.url, retries=1) as client,
        pytest.raises(ProtocolError, match="came instead of bytes"),
    ):
        client.datasets["scan"].view(**TILED).raw(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_whole_in_place_of_a_range(service: FakeService, tmp_path: Path) -> None:
    service.scan.ranges = False
    service.script[:] = [Fault(cut=150)]
    with (
        Client(service.url, retries=1) as client,
        pytest.raises(ProtocolError, match="the whole came"),
    ):
        client.datasets["scan"].view(**TILED).raw(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_plain_bytes_of_changed_data(
    service: FakeService, scan: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(_seconds: float) -> None:
        service.scan.fingerprint = "f1"

    service.script[:] = [Fault(cut=150)]
    monkeypatch.setattr("time.sleep", change)
    with pytest.raises(ProblemError, match="data-changed"):
        scan.view(**TILED).raw(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_reductions(service: FakeService, scan: Dataset, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    wanted = VALUES.sum((0, 1))
    service.script[:] = [Fault(cut=300)]
    got = scan.reduce({"op": "sum", "over": "frames"}, progress=lambda *n: seen.append(n))
    assert list(got) == ["sum"]
    assert np.array_equal(got["sum"], wanted)
    assert seen[-1] == (1, 2)
    assert np.array_equal(scan.reduce("sum", scan.view())["sum"], wanted)
    for bend in (
        lambda frames: frames[:2],
        lambda frames: [frames[1], *frames[1:]],
        lambda frames: frames[2:],
        changed(1, name=None),
        changed(1, arrays=[]),
    ):
        service.scan.bend = bend
        assert np.array_equal(scan.reduce("sum")["sum"], wanted)
    problem = {"status": 422, "code": "options", "detail": "no"}
    service.scan.bend = lambda _: [(ERROR, {"problem": problem}, b"")]
    with pytest.raises(ProblemError, match="no"):
        scan.reduce("none")
    scan.image(tmp_path / "a.png", "com", scan.view(), low=2.0)
    assert (tmp_path / "a.png").read_bytes().endswith(b"xyz")
    assert service.seen[-1].query == {"reduction": '{"op": "com"}', "view": "{}", "low": "2.0"}
