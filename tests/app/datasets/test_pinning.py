"""Views of a recording that is being written: each is of the frames that it began with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client.client import Client
from app.client.errors import ProblemError
from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.errors import DataChangedError, TokenMalformedError
from app.http.identity import SINGLE_USER
from app.tiles.encoding import describe_token
from app.tiles.views import OpenView, Views
from app.tokens import KIND_TILES, KeyRing, Token, new_key
from tests.app.harness import Service
from tests.app.state.memory import MemoryStateStore
from tests.scale import PURE_PYTHON

SIG = (6, 5)
FRAMES = np.random.default_rng(3).integers(0, 60_000, (200, *SIG), np.uint16)
ENTRY: dict[str, Any] = {
    "id": "scan",
    "format": "raw",
    "dtype": "<u2",
    "sig_shape": list(SIG),
    "growing": True,
}


class Recording:
    """Files that a camera writes, and views of them without a server."""

    def __init__(self, directory: Path, files: int = 1, **entry: Any) -> None:  # noqa: ANN401
        self.paths = [directory / f"scan_{k}.raw" for k in range(files)]
        self.written = 0
        for path in self.paths:
            path.write_bytes(b"")
        self.write(10)
        store = MemoryStateStore()
        self.keys = KeyRing([new_key()])
        self.catalogue = Catalogue(store, Roots([directory]), {}, BufferPool(4))
        self.views = Views(self.catalogue, store, self.keys)
        names = [path.name for path in self.paths]
        self.catalogue.register(SINGLE_USER, {**ENTRY, "files": names, **entry})[0].close()

    def write(self, frames: int, file: int = -1) -> None:
        with self.paths[file].open("ab") as out:
            out.write(FRAMES[self.written : self.written + frames].tobytes())
        self.written += frames

    def open(self, after: str | None = None, **view: Any) -> OpenView:  # noqa: ANN401
        return self.views.open(SINGLE_USER, "scan", view, after)

    def token(self, tile: int, **view: Any) -> str:  # noqa: ANN401
        with closing(self.open(**view)) as opened:
            return opened.tokens.token(tile)


def frames_of(view: OpenView) -> Any:  # noqa: ANN401 - an array
    whole = np.empty(view.plan.shape, view.plan.dtype)
    for k in range(view.plan.tiles):
        tile = view.plan.tile(k)
        place = tuple(slice(o, o + n) for o, n in zip(tile.origin, tile.shape, strict=True))
        whole[place] = view.read(tile)
    return whole


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    here = Recording(tmp_path)
    yield here
    here.catalogue.close()


def test_a_token_continues_with_the_frames_it_was_issued_for(recording: Recording) -> None:
    view: dict[str, Any] = {"tile_shape": [4, *SIG]}
    token = recording.token(2, **view)
    assert describe_token(recording.keys.verify(token).token) == {
        "kind": "tiles",
        "tile": 2,
        "frames": 10,
    }
    for count in (10, 11, 50):
        recording.write(count - recording.written)
        with closing(recording.open(token, **view)) as then, closing(recording.open(**view)) as now:
            assert then.tokens.read(token, then.plan.tiles) == 2
            assert (then.plan.shape, now.plan.shape) == ((10, *SIG), (count, *SIG))
            np.testing.assert_array_equal(frames_of(then), FRAMES[:10])
            np.testing.assert_array_equal(frames_of(now), FRAMES[:count])
            assert (then.etag("0") == now.etag("0")) == (count == 10)


def test_a_scan_keeps_its_shape_while_it_fills(tmp_path: Path) -> None:
    recording = Recording(tmp_path, nav_shape=[5, 8], sync_offset=2)
    view: dict[str, Any] = {"missing": "zero"}
    token = recording.token(0, **view)
    recording.write(20)
    with closing(recording.open(token, **view)) as then:
        found = frames_of(then)
    expected = np.zeros((40, *SIG), np.uint16)
    expected[:8] = FRAMES[2:10]
    np.testing.assert_array_equal(found.reshape(-1, *SIG), expected)
    recording.catalogue.close()


def test_files_that_follow_do_not_count(tmp_path: Path) -> None:
    recording = Recording(tmp_path, files=2)
    recording.paths[0].write_bytes(recording.paths[1].read_bytes())
    recording.paths[1].write_bytes(b"")
    token = recording.token(1)
    recording.write(7)
    with closing(recording.open(token)) as then, closing(recording.open()) as now:
        np.testing.assert_array_equal(frames_of(then), FRAMES[:10])
        np.testing.assert_array_equal(frames_of(now), FRAMES[:17])
        assert then.tokens.read(token, then.plan.tiles) == 1
    recording.catalogue.close()


def test_frames_that_change_or_vanish_end_it(recording: Recording) -> None:
    token = recording.token(0)
    recording.write(10)
    later = recording.token(0)
    octets = bytearray(recording.paths[0].read_bytes())
    octets[3] ^= 1
    recording.paths[0].write_bytes(octets)
    for each in (token, later):
        with closing(recording.open(each)) as view, pytest.raises(DataChangedError, match="after"):
            view.tokens.read(each, view.plan.tiles)
    recording.paths[0].write_bytes(octets[: 12 * FRAMES[0].nbytes])
    with pytest.raises(DataChangedError, match="the files had 20 frames, and have 12"):
        recording.open(later)


def test_a_token_of_no_number_of_frames_is_of_another_stream(recording: Recording) -> None:
    with closing(recording.open()) as view:
        tokens = view.tokens
        for state in ((), (1,), (1, 10, 3)):
            content = Token(KIND_TILES, tokens.identity, tokens.fingerprint, state)
            with pytest.raises(TokenMalformedError, match="does not hold a position"):
                tokens.read(recording.keys.sign(content), 9)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    (tmp_path / "roots").mkdir()
    here = Service(tmp_path / "service", dataset_roots=tmp_path / "roots")
    try:
        yield here
        assert here.stop() == 0
    finally:
        here.kill()


def test_a_client_reads_on_while_the_recording_is_written(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "roots" / "scan.raw"

    def write(first: int, stop: int) -> None:
        with path.open("ab") as out:
            out.write(FRAMES[first:stop].tobytes())

    write(0, 40)
    with Client(f"http://127.0.0.1:{service.port}") as client:
        client.datasets.register({**ENTRY, "files": ["scan.raw"]})
        view = client.datasets["scan"].view(tile_shape=(4, *SIG))
        assert view.shape == (40, *SIG)
        write(40, 50)
        np.testing.assert_array_equal(view.read(), FRAMES[:40])
        with view.tiles() as tiles:
            first = next(tiles)
            write(50, 60)
            rest = [tile.data for tile in tiles]
        np.testing.assert_array_equal(np.concatenate([first.data, *rest]), FRAMES[:40])
        # As another process would: its view has more frames, its token those it was issued for.
        again = client.datasets["scan"].view(tile_shape=(4, *SIG))
        assert again.shape == (60, *SIG)
        with again.tiles(after=first.token) as tiles:
            left = np.concatenate([tile.data for tile in tiles])
        np.testing.assert_array_equal(left, FRAMES[4:40])
        _save_with_a_break(client, tmp_path, lambda: write(60, 70))
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), FRAMES[:60])
        # What needs a view that the service keeps says that it is of earlier data.
        later = client.datasets["scan"].view()
        assert later.shape == (70, *SIG)
        write(70, 80)
        with pytest.raises(ProblemError) as caught:
            _ = later.id
        assert caught.value.code == "data-changed"


def _save_with_a_break(client: Client, directory: Path, grow: Any) -> None:  # noqa: ANN401
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    view = client.datasets["scan"].view(tile_shape=(4, *SIG))
    target, state = directory / "x.npy", directory / "x.state"
    with pytest.raises(KeyboardInterrupt):
        view.to_npy(target, state=state, progress=stop)
    grow()
    view = client.datasets["scan"].view(tile_shape=(4, *SIG))
    view.to_npy(target, state=state)
