"""Streams of tiles and of reductions that wait, are drained, or are cut short."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from backports.zstd import decompress

from app.engine.workers import Workers
from app.server.drain import Drain
from app.streams.ahead import GROUP_SECONDS
from app.tiles import streaming
from app.tiles.reductions import CancelledError, ReductionJob
from app.tiles.routes_reductions import reduction_stream
from app.tiles.streaming import read_tiles, stored_bytes, tile_at, tile_bytes, tile_stream
from app.tiles.views import OpenView
from core.errors import ShapeError
from core.tiles.plan import Tile
from core.tiles.reader import TileReader
from tests.app.streams.fakes import PATIENCE, FakeExchange, send
from tests.app.tiles.desk import ViewDesk
from tests.frames import Frame, read_frames

BEAT = 2 * GROUP_SECONDS
FRAMES = np.random.default_rng(8).integers(0, 900, (4, 5, 6, 7)).astype("<u2")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ViewDesk]:
    desk = ViewDesk(tmp_path, FRAMES)
    yield desk
    desk.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


@pytest.fixture
def view(desk: ViewDesk) -> Iterator[OpenView]:
    view = desk.open(tile_shape=[2, 5, 6, 7])
    yield view
    view.close()


class SlowReads:
    """Reads of a view that wait until they are let through, from some tile on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slow_from: int) -> None:
        self.free = threading.Semaphore(0)
        read = TileReader.read

        def wait_and_read(reader: TileReader, tile: Tile) -> npt.NDArray[Any]:
            if tile.index >= slow_from:
                assert self.free.acquire(timeout=PATIENCE)
            return read(reader, tile)

        monkeypatch.setattr(TileReader, "read", wait_and_read)


def tiles(
    view: OpenView,
    workers: Workers,
    drain: Drain | None = None,
    limit: int | None = None,
    coding: str | None = None,
    first: int = 0,
) -> Any:  # noqa: ANN401
    return tile_stream(
        view,
        first,
        limit,
        coding=coding,
        codec=None,
        threads=workers,
        drain=drain or Drain(),
    )


def places(desk: ViewDesk, frames: list[Frame]) -> list[int]:
    """The tile that the token of each frame continues with."""
    tokens = [frame.header["token"] for frame in frames]
    return [-1 if token is None else desk.keys.verify(token).token.state[0] for token in tokens]


def test_a_client_that_waits_for_a_tile_hears_heartbeats(
    desk: ViewDesk, view: OpenView, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = SlowReads(monkeypatch, 0)
    beats = 0

    def on_frame(frame: Frame) -> None:
        nonlocal beats
        beats += frame.kind == "HEARTBEAT"
        if beats == 2:
            reads.free.release(2)

    exchange = FakeExchange(on_frame)
    stream = tiles(view, workers)
    stream.heartbeat = BEAT
    send(stream, exchange)
    frames = exchange.frames
    kinds = [frame.kind for frame in frames]
    assert kinds[:2] == ["HEARTBEAT", "HEARTBEAT"]
    assert [kind for kind in kinds if kind != "HEARTBEAT"] == ["DATA", "DATA", "END"]
    assert places(desk, frames)[:2] == [0, 0]
    assert frames[-1].header["reason"] == "complete"


def test_a_drain_ends_a_stream_that_waits_for_a_tile(
    desk: ViewDesk, view: OpenView, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = SlowReads(monkeypatch, 0)
    drain = Drain()

    def on_frame(frame: Frame) -> None:
        if frame.kind == "HEARTBEAT":
            drain.hard.set()
            reads.free.release(2)

    exchange = FakeExchange(on_frame)
    stream = tiles(view, workers, drain)
    stream.heartbeat = BEAT
    send(stream, exchange)
    assert [frame.kind for frame in exchange.frames] == ["HEARTBEAT", "END"]
    assert exchange.frames[-1].header["reason"] == "drain"
    assert places(desk, exchange.frames) == [0, 0]


@pytest.mark.parametrize(
    ("first", "limit", "reason", "place"),
    [
        (0, None, "complete", -1),
        (0, 1, "count", 1),
        (0, 2, "complete", -1),
        (1, 1, "complete", -1),
        (2, None, "complete", -1),
        (0, 9, "complete", -1),
    ],
)
def test_the_end_tells_whether_tiles_are_left(
    desk: ViewDesk,
    view: OpenView,
    workers: Workers,
    first: int,
    limit: int | None,
    reason: str,
    place: int,
) -> None:
    exchange = FakeExchange()
    send(tiles(view, workers, limit=limit, first=first), exchange)
    end = exchange.frames[-1]
    assert (end.kind, end.header["reason"]) == ("END", reason)
    assert places(desk, [end]) == [place]


def test_a_failure_carries_the_token_of_its_tile(
    desk: ViewDesk, view: OpenView, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TileReader.read

    def fail_once(reader: TileReader, tile: Tile) -> npt.NDArray[Any]:
        if tile.index == 1:
            raise ShapeError("no")
        return read(reader, tile)

    monkeypatch.setattr(TileReader, "read", fail_once)
    exchange = FakeExchange()
    send(tiles(view, workers), exchange)
    assert [frame.kind for frame in exchange.frames] == ["DATA", "ERROR"]
    assert places(desk, exchange.frames) == [1, 1]


@pytest.mark.parametrize(("start", "stop"), [(0, 1680), (0, 0), (3, 5), (839, 841), (900, 1680)])
def test_raw_bytes_are_those_of_the_range(view: OpenView, start: int, stop: int) -> None:
    pieces = tile_bytes(view, start, stop)
    assert b"".join(piece.data for piece in pieces) == FRAMES.tobytes()[start:stop]


def test_each_tile_is_hinted_at_before_the_one_before_it_is_read(
    view: OpenView, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    read, hint = TileReader.read, TileReader.hint

    def note_read(reader: TileReader, tile: Tile) -> npt.NDArray[Any]:
        done.append(("read", tile.index))
        return read(reader, tile)

    def note_hint(reader: TileReader, tile: Tile) -> None:
        done.append(("hint", tile.index))
        hint(reader, tile)

    monkeypatch.setattr(TileReader, "read", note_read)
    monkeypatch.setattr(TileReader, "hint", note_hint)
    last = view.plan.tiles - 1
    assert len(list(read_tiles(view, 0, last + 1))) == last + 1
    between = [(what, k + (what == "hint")) for k in range(last) for what in ("hint", "read")]
    assert done == [*between, ("read", last)]
    assert last


def test_the_tile_of_a_byte_is_found(view: OpenView) -> None:
    plan = view.plan
    for offset in (0, 839, 840, 1679):
        tile = plan.tile(tile_at(plan.tile, plan.tiles, offset))
        assert tile.offset <= offset < tile.offset + tile.nbytes


class SlowJob:
    """A reduction that takes until it is let through, or cancelled."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.cancelled = False

    def run(
        self, progress: Callable[[int, int], None], cancelled: Callable[[], bool]
    ) -> dict[str, npt.NDArray[np.float64]]:
        progress(3, 8)
        for _ in range(int(PATIENCE / 0.01)):
            if self.free.wait(0.01):
                return {"sum": np.arange(6.0), "count": np.ones(1)}
            if cancelled():
                self.cancelled = True
                raise CancelledError
        raise AssertionError("nobody let it through")


def reduction(
    job: SlowJob, workers: Workers, drain: Drain | None = None, coding: str | None = None
) -> Any:  # noqa: ANN401
    stream = reduction_stream(
        cast("ReductionJob", job),
        coding=coding,
        threads=workers,
        reducing=workers,
        drain=drain or Drain(),
    )
    stream.heartbeat = BEAT
    return stream


def test_a_reduction_tells_its_progress_and_then_its_results(workers: Workers) -> None:
    job = SlowJob()
    exchange = FakeExchange(lambda frame: job.free.set() if frame.kind == "HEARTBEAT" else None)
    send(reduction(job, workers), exchange)
    frames = exchange.frames
    assert frames[0].header == {"token": None, "done": 3, "of": 8}
    data = [frame for frame in frames if frame.kind == "DATA"]
    assert [frame.header["name"] for frame in data] == ["sum", "count"]
    assert frames[-1].header == {"reason": "complete", "token": None}


def test_a_reduction_obeys_a_drain(workers: Workers) -> None:
    job, drain = SlowJob(), Drain()
    exchange = FakeExchange(lambda _frame: drain.hard.set())
    send(reduction(job, workers, drain), exchange)
    assert exchange.frames[-1].header == {"reason": "drain", "token": None}
    assert job.cancelled
    assert "DATA" not in [frame.kind for frame in exchange.frames]


def test_a_reduction_is_compressed_if_asked(workers: Workers) -> None:
    job = SlowJob()
    job.free.set()
    exchange = FakeExchange()
    send(reduction(job, workers, coding="zstd"), exchange)
    assert exchange.headers["Content-Encoding"] == "zstd"
    kinds = [frame.kind for frame in read_frames(decompress(exchange.data))]
    assert kinds == ["DATA", "DATA", "END"]


def passed(view: OpenView, start: int, stop: int) -> bytes | None:
    """What is passed on of a view; None if it is not."""
    source = stored_bytes(view, start, stop)
    if source is None:
        return None
    taken = bytearray()

    def take(octets: memoryview) -> int:
        taken.extend(octets)
        return len(octets)

    source.prepare()
    while source.left:
        source.pass_on(take)
    return bytes(taken)


STORED: list[dict[str, Any]] = [
    {},
    {"tile_shape": [2, 3, 6, 7]},
    {"tile_shape": [3, 6, 7]},
    {"tile_shape": [1, 2, 6, 7], "select": {"nav": [[1, 4], [0, 5]]}},
    {"select": {"frames": [3, 4, 5, 19, 0, 1, 7]}, "tile_shape": [3, 6, 7]},
    {"tile_shape": [1, 1, 4, 7]},
]


@pytest.mark.parametrize("spec", STORED)
def test_stored_tiles_are_passed_on_as_they_are_read(
    desk: ViewDesk, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LEAST", 1)
    # As long as a frame: rows of a frame are runs that are too short.
    monkeypatch.setattr(streaming, "_LONG_RUN", 80)
    view = desk.open(**spec)
    rng = np.random.default_rng(5)
    for _ in range(40):
        start, stop = np.sort(rng.choice(view.plan.nbytes + 1, 2, replace=False)).tolist()
        expected = b"".join(piece.data for piece in tile_bytes(view, start, stop))
        found = passed(view, start, stop)
        assert found == (None if spec.get("tile_shape") == [1, 1, 4, 7] else expected)
    view.close()


@pytest.mark.parametrize(
    "spec",
    [{"dtype": "<f4"}, {"bin": {"sig": 2}, "sig": [[0, 6], [0, 6]]}, {"sig": [[0, 6], [1, 7]]}],
)
def test_what_is_not_stored_like_that_is_not_passed_on(
    desk: ViewDesk, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LEAST", 1)
    monkeypatch.setattr(streaming, "_LONG_RUN", 1)
    view = desk.open(**spec)
    assert passed(view, 0, view.plan.nbytes) is None
    view.close()


def test_short_answers_are_not_passed_on(view: OpenView) -> None:
    assert passed(view, 0, view.plan.nbytes) is None
