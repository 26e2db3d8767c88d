"""What only the asynchronous client has."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.client import AsyncClient, ProblemError, SourceError
from app.client.losses.requests import Mode

from .fakes.service import FakeService, Fault, make_stream, tables

STREAM = make_stream(30)
ROWS = tables(STREAM)["rows"].tobytes()
MODES: tuple[Mode, ...] = ("parts", "whole", "duplex")


async def pieces() -> AsyncIterator[bytes]:
    for at in range(0, len(STREAM), 50):
        await asyncio.sleep(0)
        yield STREAM[at : at + 50]


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
    async def run() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        async with AsyncClient(service.url) as client:
            ticking = asyncio.create_task(tick())
            command = ["sh", "-c", "sleep 0.3; exit 0"]
            with pytest.raises(ProblemError):
                async for _ in client.losses.post("rows", _and(command), mode=mode):
                    pass
            ticking.cancel()
        return ticks

    async def _and(command: list[str]) -> AsyncIterator[bytes]:
        process = await asyncio.create_subprocess_exec(*command)
        await process.wait()
        yield b"\0" * 16

    assert asyncio.run(run()) > 20


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["pieces", "command"])
def test_a_cancelled_post_lets_go(mode: Mode, kind: str, service: FakeService) -> None:
    async def waiting() -> AsyncIterator[bytes]:
        yield STREAM[:200]
        await asyncio.sleep(99)

    async def run() -> None:
        async with AsyncClient(service.url) as client:
            how: dict[str, Any] = {"source": waiting()}
            if kind == "command":
                how = {"exec": ["sleep", "99"]}

            async def consume() -> None:
                async for _ in client.losses.post("rows", mode=mode, part_size=64, **how):
                    pass

            task = asyncio.create_task(consume())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    began = time.monotonic()
    asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name.startswith("thalweg"):
            thread.join(10)
    assert time.monotonic() - began < 8


def test_many_at_once(service: FakeService) -> None:
    async def one(client: AsyncClient, mode: Mode) -> bytes:
        answer = client.losses.post("rows", pieces(), mode=mode, part_size=300)
        return b"".join([rows.tobytes() async for rows in answer])

    async def run() -> list[bytes]:
        async with AsyncClient(service.url) as client:
            return await asyncio.gather(*(one(client, mode) for mode in MODES * 8))

    assert asyncio.run(run()) == [ROWS] * 24


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


def test_an_answer_that_is_left(service: FakeService) -> None:
    async def run() -> None:
        async with AsyncClient(service.url) as client:
            async with client.losses.post("rows", STREAM, part_size=100) as answer:
                await anext(answer)
                assert answer.token
                assert answer.offset
                assert answer.end is None
            unused = client.losses.post("rows", STREAM)
            await unused.aclose()

    asyncio.run(run())
