"""What only the asynchronous client has: an event loop, and cancellation."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.client import AsyncClient, ProblemError, SourceError, StateError
from app.client.losses.requests import Mode

from .fakes.exchange import Fault
from .fakes.faces import leftovers
from .fakes.losses import make_stream, tables
from .fakes.pipelines import SPEC
from .fakes.service import FakeService
from .fakes.tiles import TILED, VALUES

STREAM = make_stream(30)
ROWS = tables(STREAM)["rows"].tobytes()
MODES: tuple[Mode, ...] = ("parts", "whole", "duplex")


async def pieces() -> AsyncIterator[bytes]:
    for at in range(0, len(STREAM), 50):
        await asyncio.sleep(0)
        yield STREAM[at : at + 50]


def open_files() -> set[str]:
    """What the descriptors of this process are, without those of the event loop."""
    names = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            name = str(each.readlink())
        except OSError:
            continue
        if not name.startswith(("anon_inode", "socket", "/proc")):
            names.add(f"{each.name} {name}")
    return names


@pytest.mark.parametrize("mode", MODES)
def test_asynchronous_iterables(mode: Mode) -> None:
    async def run() -> bytes:
        async with AsyncClient(service.url) as client:
            answer = client.losses.post("rows", pieces(), mode=mode, part_size=200)
            return b"".join([rows.tobytes() async for rows in answer])

    with FakeService([Fault(cut=500), Fault(stop_reading=100)]) as service:
        assert asyncio.run(run()) == ROWS


@pytest.mark.parametrize("mode", MODES)
def test_an_error_of_the_source_is_the_callers(mode: Mode, service: FakeService) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield STREAM[:160]
        raise LookupError("mine")

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            async for _ in client.losses.post("rows", failing(), mode=mode, part_size=80):
                pass

    with pytest.raises(LookupError, match="mine"):
        asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_the_loop_is_not_blocked(mode: Mode, service: FakeService) -> None:
    """The source ends only after the loop has turned many times meanwhile."""
    read_end, write_end = os.pipe()
    os.write(write_end, STREAM)

    async def run() -> bytes:
        async def turn() -> None:
            for _ in range(200):
                await asyncio.sleep(0.001)
            os.close(write_end)

        async with AsyncClient(service.url) as client:
            turning = asyncio.create_task(turn())
            answer = client.losses.post("rows", read_end, mode=mode, part_size=1 << 20)
            rows = b"".join([part.tobytes() async for part in answer])
            await turning
        return rows

    assert asyncio.run(run()) == ROWS
    os.close(read_end)


async def cancelled(work: Coroutine[Any, Any, object], reached: Callable[[], bool]) -> None:
    """Cancel a task once it has come far enough, and wait for it."""
    task = asyncio.ensure_future(work)
    while not reached():
        await asyncio.sleep(0.001)
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["pieces", "command"])
def test_a_cancelled_post_lets_go(mode: Mode, kind: str, service: FakeService) -> None:
    waiting = threading.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield STREAM[:200]
        waiting.set()
        await asyncio.sleep(99)

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            how: dict[str, Any] = {"source": endless()}
            if kind == "command":
                how = {"exec": ["sleep", "99"]}
                waiting.set()

            async def consume() -> None:
                async for _ in client.losses.post("rows", mode=mode, part_size=1 << 20, **how):
                    pass

            await cancelled(consume(), waiting.is_set)

    before = open_files()
    asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name.startswith("thalweg"):
            thread.join(10)
            assert not thread.is_alive()
    assert not open_files() - before


def test_a_source_that_cannot_be_interrupted_is_left(service: FakeService) -> None:
    going_on = threading.Event()
    closed = threading.Event()

    def stuck() -> Any:  # noqa: ANN401
        try:
            yield STREAM[:200]
            going_on.wait()
        finally:
            closed.set()

    async def run() -> None:
        async with AsyncClient(service.url) as client:

            async def consume() -> None:
                async for _ in client.losses.post("rows", stuck(), part_size=1 << 20):
                    pass

            task = asyncio.create_task(consume())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert not closed.is_set()
    going_on.set()
    assert closed.wait(10)


def in_answer(service: FakeService) -> Callable[[], bool]:
    return lambda: bool(service.streams or service.losses)


@pytest.mark.parametrize("what", ["save", "to_npy", "raw"])
def test_a_cancelled_file_is_closed(service: FakeService, tmp_path: Path, what: str) -> None:
    """Files and the connection are closed when the cancelled call returns, not later."""
    service.script[:] = [Fault(hang=60)]
    state, out = tmp_path / "state", tmp_path / "out.npy"
    rows = tmp_path / "rows.csv"

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            view = await client.datasets["scan"].view(**TILED)
            calls: dict[str, Any] = {
                "save": lambda: client.losses.save("rows", STREAM, rows, state=state),
                "to_npy": lambda: view.to_npy(out, state=state),
                "raw": lambda: view.raw(out, state=state),
            }
            before = open_files()
            await cancelled(calls[what](), in_answer(service))
            assert not open_files() - before
            assert service.gone.wait(10)

    asyncio.run(run())
    assert leftovers(tmp_path) == []


def test_a_cancelled_write_is_finished_first(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that writes a file is waited for before the file is closed."""
    writing, going_on = threading.Event(), threading.Event()
    order: list[str] = []
    from app.client.tiles.saving import TileFile, TileSaving

    write, stop = TileFile.write, TileSaving.stop

    def slow(self: TileFile, *args: Any) -> None:  # noqa: ANN401
        writing.set()
        assert going_on.wait(10)
        write(self, *args)
        order.append("written")

    def noted(self: TileSaving) -> None:
        order.append("stopped")
        stop(self)

    monkeypatch.setattr(TileFile, "write", slow)
    monkeypatch.setattr(TileSaving, "stop", noted)

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            view = await client.datasets["scan"].view(**TILED)
            task = asyncio.create_task(view.to_npy(tmp_path / "out.npy"))
            await asyncio.to_thread(writing.wait)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            asyncio.get_running_loop().call_later(0.02, going_on.set)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert order == ["written", "stopped"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("kind", ["tiles", "rows", "batches"])
@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_an_answer_that_is_left_is_closed(service: FakeService, kind: str, end: str) -> None:
    service.script[:] = [Fault(hang=1500)]

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            items: Any
            if kind == "tiles":
                items = (await client.datasets["scan"].view(**TILED)).tiles()
            elif kind == "rows":
                items = client.losses.post("rows", STREAM, mode="whole")
            else:
                items = (await client.pipeline(SPEC)).batches()
            await anext(items)
            assert not service.gone.is_set()
            if end == "closed":
                await items.aclose()
            del items
            gc.collect()
            for _ in range(1000):
                if service.gone.is_set():
                    break
                await asyncio.sleep(0.01)
            assert service.gone.is_set()

    asyncio.run(run())


def test_batches_ahead_are_cancelled_with_the_iteration(service: FakeService) -> None:
    service.pipeline.delays = dict.fromkeys(range(1, 12), 30.0)

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            pipeline = await client.pipeline(SPEC)
            before = len(asyncio.all_tasks())
            async with pipeline.batches(parallel=3) as batches:
                assert (await anext(batches)).sequence == 0
                assert len(asyncio.all_tasks()) > before
            assert len(asyncio.all_tasks()) == before

    asyncio.run(run())


def test_many_at_once(service: FakeService) -> None:
    async def one(client: AsyncClient, mode: Mode) -> bytes:
        answer = client.losses.post("rows", pieces(), mode=mode, part_size=300)
        return b"".join([rows.tobytes() async for rows in answer])

    async def run() -> list[bytes]:
        async with AsyncClient(service.url) as client:
            return await asyncio.gather(*(one(client, mode) for mode in MODES * 8))

    assert asyncio.run(run()) == [ROWS] * 24


def test_connections_are_used_again(service: FakeService) -> None:
    async def run() -> None:
        async with AsyncClient(service.url) as client:
            view = await client.datasets["scan"].view(**TILED)
            for _ in range(3):
                assert np.array_equal(await view.read(), VALUES)
                assert await client.health()

    asyncio.run(run())
    assert len(service._connections) == 1


def test_a_transport_of_ones_own() -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(418, json={"code": "teapot"})

    async def run() -> None:
        transport = httpx.MockTransport(refuse)
        async with AsyncClient("http://none", transport=transport) as client:
            await client.tokens.refresh("t")

    with pytest.raises(ProblemError) as caught:
        asyncio.run(run())
    assert caught.value.code == "teapot"


def test_the_end_before_the_start(service: FakeService) -> None:
    async def run() -> None:
        async with AsyncClient(service.url) as client:
            answer = client.losses.post("rows", pieces(), after="9.9.9.9.9", offset=10**6)
            await anext(answer)

    with pytest.raises(SourceError):
        asyncio.run(run())


def test_a_post_that_is_left(service: FakeService) -> None:
    async def run() -> None:
        async with AsyncClient(service.url) as client:
            async with client.losses.post("rows", STREAM, part_size=100) as answer:
                await anext(answer)
                assert answer.token
                assert answer.offset
                assert answer.end is None
            assert await anext(answer, None) is None
            unused = client.losses.post("rows", STREAM)
            await unused.aclose()

    asyncio.run(run())


def test_a_view_has_what_the_blocking_one_has(service: FakeService, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncClient(service.url) as client:
            scan = client.datasets["scan"]
            view = await scan.view(**TILED)
            assert await view.id() in service.scan.views
            assert np.array_equal(await view.read(connections=3), VALUES)
            assert [t.index async for t in view.tiles(first=5, max_tiles=2)] == [5, 6]
            (tmp_path / "state").write_text("{")
            with pytest.raises(StateError):
                await view.to_npy(tmp_path / "a.npy", state=tmp_path / "state")

    asyncio.run(run())


def test_datasets_and_views_say_what_they_are_and_are_read_side_by_side() -> None:
    async def run() -> None:
        async with AsyncClient(service.url) as client:
            assert [ident async for ident in client.datasets] == await client.datasets.list()
            scan = client.datasets["scan"]
            assert await scan.nav_shape() + await scan.sig_shape() == VALUES.shape
            assert (await scan.dtype(), await scan.fingerprint()) == (VALUES.dtype, "f0")
            view = await scan.view(**TILED)
            plan = await view.plan()
            said = (await view.shape(), await view.dtype(), await view.nbytes())
            assert said == (plan.shape, plan.dtype, plan.nbytes)
            early, late = await view.parallel(2)
            assert late.token == service.scan.token(4)
            with pytest.raises(ValueError, match="before the first tile"):
                _ = late.plan
            found = [[tile.index async for tile in tiles] for tiles in (late, early)]
            assert found == [[4, 5, 6, 7], [0, 1, 2, 3]]
            assert late.plan == plan

    with FakeService() as service:
        asyncio.run(run())


def test_what_has_no_end_is_not_iterated_over(service: FakeService) -> None:
    async def main() -> None:
        async with AsyncClient(service.url) as client:
            with pytest.raises(TypeError, match=r"await client\.datasets\.list\(\)"):
                list(client.datasets)  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=r"await scan\[5\]"):
                list(client.datasets["scan"])
            assert [ident async for ident in client.datasets] == await client.datasets.list()

    asyncio.run(main())


def test_batches_that_are_dropped_cancel_what_reads_ahead(service: FakeService) -> None:
    async def main() -> None:
        async with AsyncClient(service.url) as client, asyncio.timeout(10):
            pipeline = await client.pipeline(SPEC)
            service.pipeline.delays = dict.fromkeys(range(1, 12), 30.0)
            async for _ in pipeline.batches(parallel=3):
                break
            ahead = asyncio.all_tasks() - {asyncio.current_task()}
            assert ahead
            await asyncio.wait(ahead)

    asyncio.run(main())
