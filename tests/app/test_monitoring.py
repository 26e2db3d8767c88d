"""A service whose parts are harmed one after the other: /readyz names each, and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.engine.warmup import WarmUp
from app.health import monitor
from app.main import Application, create_app
from app.monitoring import Watched, noted_objects, timed_turns
from app.settings import Settings
from tests.app.harness import wait_until
from tests.serverless import serverless


class Harmed:
    """A service in this process."""

    def __init__(self, app: Application, loop: asyncio.AbstractEventLoop, data_dir: Path) -> None:
        self.app = app
        self.data_dir = data_dir
        self._loop = loop
        self.watched: Watched = app.parts
        self.limits: Mapping[str, Any] = app.parts.monitor._checks

    def get(self, path: str) -> httpx.Response:
        async def get() -> httpx.Response:
            transport = httpx.ASGITransport(serverless(self.app))
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                return await client.get(path)

        return asyncio.run_coroutine_threadsafe(get(), self._loop).result(60)

    def failing(self) -> set[str]:
        answer = self.get("/readyz")
        body = answer.json()
        parts = {name for name, part in body["parts"].items() if part["status"] == "failing"}
        assert (answer.status_code == 200) is not bool(parts)
        assert len(body.get("reasons", [])) == len(parts)
        assert self.get("/healthz").json() == {"status": "ok"}
        return parts

    def metrics(self) -> dict[str, float]:
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harmed]:
    patch = pytest.MonkeyPatch()
    patch.setattr(WarmUp, "_run", lambda self: self._done.set())
    patch.setattr(monitor, "_FRESH", 0.0)
    patch.setattr(monitor, "_INTERVAL", 0.02)
    data_dir = tmp_path_factory.mktemp("harmed")
    settings = Settings(data_dir=data_dir, reserve_bytes=0, threads=2, buffers=4)
    app = create_app(settings)
    with running(app) as loop:
        here = Harmed(app, loop, data_dir)
        wait_until(lambda: not here.failing())
        yield here
    patch.undo()


@contextmanager
def running(app: Application) -> Iterator[asyncio.AbstractEventLoop]:
    """Run the lifespan of an application, and the loop that its requests need."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    lifespan = app.router.lifespan_context(app)
    try:
        asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), loop).result(60)
        yield loop
        asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(autouse=True)
def _ready_again(harmed: Harmed) -> Iterator[None]:
    yield
    wait_until(lambda: not harmed.failing())


def test_a_disk_without_room(harmed: Harmed, monkeypatch: pytest.MonkeyPatch) -> None:
    space = harmed.watched.storage.space
    room = space.room()
    full = type(room)(room.size, 0, 0)
    monkeypatch.setattr(type(space), "room", lambda _: full)
    assert harmed.failing() == {"disk"}
    wait_until(lambda: harmed.metrics()["thalweg_disk_free_bytes"] == 0)
    assert harmed.metrics()['thalweg_ready{part="disk"}'] == 0
    monkeypatch.undo()


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 10_000])
def test_a_database_that_is_missing_cut_or_damaged(harmed: Harmed, content: bytes | None) -> None:
    path = harmed.data_dir / "state.sqlite"
    aside = path.with_name("aside")
    sound = path.read_bytes()
    # Keys are read by the first request, and known for a moment.
    harmed.metrics()
    if content is None:
        path.rename(aside)
    else:
        path.write_bytes(content)
    try:
        assert harmed.failing() == {"store"}
        assert harmed.metrics()['thalweg_ready{part="store"}'] == 0
    finally:
        if content is None:
            aside.rename(path)
        else:
            path.write_bytes(sound)


def test_a_spool_that_cannot_be_written(harmed: Harmed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert harmed.failing() == {"spool"}
    monkeypatch.undo()


def test_threads_that_are_all_taken(harmed: Harmed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harmed.limits["threads"], "_limit", 0.3)
    calls = harmed.app.parts.losses.threads._calls
    width, calls.width = calls.width, 0
    wait_until(lambda: harmed.failing() == {"threads"})
    assert harmed.metrics()['thalweg_thread_wait_seconds{lane=""}'] > 0.3
    calls.width = width
    wait_until(lambda: not harmed.failing())


def test_decoders_that_cannot_start(harmed: Harmed) -> None:
    decoders = harmed.watched.decoders
    decoders._note_start("no memory")
    decoders._tried = float("inf")
    assert harmed.failing() == {"decoders"}
    assert "no memory" in json.dumps(harmed.get("/readyz").json())
    decoders._note_start(None)


def test_requests_that_the_server_refuses_count_as_problems(harmed: Harmed) -> None:
    harmed.app.parts.monitor._slot.refusals["headers-too-slow"] += 3
    name = 'thalweg_problems_total{code="headers-too-slow"}'
    wait_until(lambda: harmed.metrics().get(name) == 3)


def test_kernels_that_are_not_there_yet(harmed: Harmed) -> None:
    harmed.watched.warm_up._done.clear()
    assert harmed.failing() == {"kernels"}
    harmed.watched.warm_up._done.set()


def test_the_sweeper_measures_quotas(harmed: Harmed) -> None:
    before = harmed.metrics().get("thalweg_sweeps_total", 0)
    harmed.app.parts.sweeper.sweep()
    metrics = harmed.metrics()
    assert metrics["thalweg_sweeps_total"] > before
    assert metrics["thalweg_sweep_timestamp_seconds"] > 0
    assert metrics['thalweg_quota_used_ratio{kind="views",unit="count"}'] == 0


def test_operations_on_the_state_are_timed(harmed: Harmed) -> None:
    count: Callable[[], float] = lambda: harmed.metrics()[  # noqa: E731
        'thalweg_store_seconds_count{operation="list"}'
    ]
    before = count()
    assert harmed.get("/v1/datasets").status_code == 200
    assert count() > before


def test_turns_and_requests_to_an_object_store_are_timed(harmed: Harmed) -> None:
    metrics = harmed.app.parts.metrics
    with timed_turns(contextlib.nullcontext, metrics)():
        pass
    assert harmed.metrics()["thalweg_turn_seconds_count"] == 1
    note = noted_objects(metrics)
    note("put", 0.3, False)
    note("put", 0.01, True)
    found = harmed.metrics()
    assert found['thalweg_object_seconds_count{operation="put"}'] == 2
    assert found['thalweg_object_errors_total{operation="put"}'] == 1


def test_looks_that_fail_are_counted(harmed: Harmed) -> None:
    name = 'thalweg_check_failures_total{part="kernels"}'
    before = harmed.metrics().get(name, 0)
    harmed.watched.warm_up._done.clear()
    wait_until(lambda: harmed.metrics()[name] > before + 1)
    harmed.watched.warm_up._done.set()
