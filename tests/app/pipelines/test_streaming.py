"""Streams of batches that take long, or that the server has to end, without a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from app.engine.workers import Workers
from app.pipelines.opened import OpenPipeline, RequestProfiles
from app.pipelines.streaming import Batch, Selection, batch_stream
from app.pipelines.tokens import BatchTokens
from app.server.body import ClientDisconnected
from app.server.drain import Drain
from app.streams.driver import Limits, Progress, Stream
from app.streams.frames import Buffers
from app.telemetry import Metrics
from app.tokens import KeyRing, new_key
from core.errors import TransformError
from core.iterate.base import Field, Schema, State
from core.iterate.limits import Clock
from core.pipelines.pipeline import Step
from tests.app.streams.fakes import PATIENCE, FakeClock, FakeExchange, send
from tests.frames import Frame

KEYS = KeyRing([new_key()])
BEAT = 0.08
"""Longer than batches are made together, so that one that is let through comes alone."""


@dataclass
class SlowPipeline:
    """Batches of one number; each is made once it is let through.

    Attributes:
        batches: in all.
        fails: the batch that cannot be made.
        free: how many may be made by now.
    """

    batches: int = 5
    fails: int | None = None
    free: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    schema: Schema = (Field("data", np.dtype("<i8")),)
    made: int = 0
    notes: tuple[str, ...] = ()

    def sequence(self, state: State) -> int:
        return state[0]

    def check(self, state: State) -> None:
        assert len(state) == 1

    def reader(self, rank: int, world: int, _clock: Clock, every: int) -> SlowPipeline:
        assert (rank, world, every) == (0, 1, 1)
        return self

    def step(self, state: State) -> Step | None:
        if state[0] == self.batches:
            return None
        assert self.free.acquire(timeout=PATIENCE)
        if state[0] == self.fails:
            raise TransformError("it cannot be", position=state[0])
        self.made += 1
        return Step(
            block={"data": np.array([state[0]], "<i8")},
            state=(state[0] + 1,),
            sequence=state[0],
            epoch=0,
            count=1,
            rows=(0, 1),
            ends_epoch=False,
            data_finished=state[0] + 1 == self.batches,
        )


class FakeServices:
    """Threads to work in."""

    def __init__(self) -> None:
        self.workers = Workers(2)
        self.metrics = Metrics()


@pytest.fixture
def services() -> Iterator[FakeServices]:
    made = FakeServices()
    yield made
    made.workers.close()


def opened(pipeline: SlowPipeline, start: int = 0) -> OpenPipeline:
    tokens = BatchTokens(KEYS, bytes(8), bytes(8), (), datetime.now(UTC))
    fake: Any = pipeline
    return OpenPipeline("00", fake, (), tokens, (start,), RequestProfiles())


def stream(
    pipeline: SlowPipeline,
    services: FakeServices,
    drain: Drain | None = None,
    **limits: Any,  # noqa: ANN401
) -> Stream[Batch]:
    return batch_stream(
        opened(pipeline),
        Selection(),
        Limits(**limits),
        coding=None,
        threads=services.workers,
        drain=drain or Drain(),
        metrics=services.metrics,
        heartbeat=BEAT,
    )


def run(pipeline: SlowPipeline, made: Stream[Batch], exchange: FakeExchange) -> list[Frame]:
    send(made, exchange)
    assert pipeline.made <= pipeline.batches
    return exchange.frames


def test_a_client_that_waits_hears_heartbeats(services: FakeServices) -> None:
    pipeline = SlowPipeline(batches=2)
    beats = 0

    def on_frame(frame: Frame) -> None:
        nonlocal beats
        beats += frame.kind == "HEARTBEAT"
        if beats == 3:
            pipeline.free.release(2)
            beats += 1

    frames = run(pipeline, stream(pipeline, services), FakeExchange(on_frame))
    kinds = [frame.kind for frame in frames]
    assert kinds.count("HEARTBEAT") >= 3
    assert [kind for kind in kinds if kind != "HEARTBEAT"] == ["DATA", "DATA", "END"]
    token = KEYS.verify(frames[0].header["token"]).token
    assert token.state == (0,)


def test_draining_ends_a_stream_in_good_order(services: FakeServices) -> None:
    pipeline = SlowPipeline(batches=100)
    pipeline.free.release(3)
    drain = Drain()

    def on_frame(frame: Frame) -> None:
        if frame.kind == "HEARTBEAT":
            drain.hard.set()
            # The answer waits for the group that is being prepared.
            pipeline.free.release(100)

    frames = run(pipeline, stream(pipeline, services, drain), FakeExchange(on_frame))
    end = frames[-1]
    assert (end.kind, end.header["reason"]) == ("END", "drain")
    assert not end.header["data_finished"]
    sent = [frame for frame in frames if frame.kind == "DATA"]
    assert KEYS.verify(end.header["token"]).token.state == (len(sent),)


def test_a_client_that_left_is_not_worked_for(services: FakeServices) -> None:
    pipeline = SlowPipeline(batches=100)
    exchange = FakeExchange()

    def on_frame(frame: Frame) -> None:
        assert frame.kind == "HEARTBEAT"
        exchange.disconnected.set()
        pipeline.free.release(100)

    exchange.on_frame = on_frame
    with pytest.raises(ClientDisconnected):
        run(pipeline, stream(pipeline, services), exchange)
    assert not [frame for frame in exchange.frames if frame.kind == "DATA"]


def test_what_was_made_before_a_fault_is_sent_first(services: FakeServices) -> None:
    pipeline = SlowPipeline(batches=5, fails=3)
    pipeline.free.release(10)
    frames = run(pipeline, stream(pipeline, services), FakeExchange())
    assert [frame.kind for frame in frames] == ["DATA", "DATA", "DATA", "ERROR"]
    header = frames[-1].header
    assert (header["problem"]["code"], header["problem"]["position"]) == ("transform", 3)
    assert KEYS.verify(header["token"]).token.state == (3,)


def test_a_fault_before_the_first_batch_is_no_stream(services: FakeServices) -> None:
    pipeline = SlowPipeline(fails=0)
    pipeline.free.release(1)
    exchange = FakeExchange()
    with pytest.raises(TransformError):
        run(pipeline, stream(pipeline, services), exchange)
    assert not exchange.started


def test_no_more_is_made_than_is_wanted(services: FakeServices) -> None:
    pipeline = SlowPipeline(batches=100)
    pipeline.free.release(100)
    frames = run(pipeline, stream(pipeline, services, count=7), FakeExchange())
    assert [frame.kind for frame in frames] == ["DATA"] * 7 + ["END"]
    assert frames[-1].header["reason"] == "count"
    assert pipeline.made == 7


def test_time_is_looked_at_before_each_batch(
    services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = SlowPipeline(batches=100)
    pipeline.free.release(100)
    answer = stream(pipeline, services, seconds=10.0)
    clock = FakeClock()
    answer.progress = Progress(clock=clock)
    sent = 0

    encode = answer.encoder.item

    def tick(batch: Batch) -> Buffers:
        nonlocal sent
        sent += 1
        clock.now += 5.0
        return encode(batch)

    monkeypatch.setattr(answer.encoder, "item", tick)
    frames = run(pipeline, answer, FakeExchange())
    assert (frames[-1].header["reason"], sent) == ("time", 2)
