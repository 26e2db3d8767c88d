"""Every way an answer can go, with numbers for items."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from backports.zstd import decompress

from app.engine.budgets import Budgets
from app.engine.workers import Workers
from app.errors import DataChangedError
from app.http.trail import problem_noted
from app.server.body import ClientDisconnected
from app.server.drain import Drain
from app.server.responses import Exchange
from app.streams.ahead import GROUP_BYTES, GROUP_SECONDS, Ahead
from app.streams.driver import Limits, Progress, Stream
from app.streams.frames import Buffers
from app.streams.sender import CHUNK, TOGETHER, Head
from core.budget import current
from core.errors import BudgetExceededError, StateError
from tests.app.streams.fakes import (
    PATIENCE,
    FakeExchange,
    Number,
    NumberFrames,
    NumberLines,
    Numbers,
    send,
)
from tests.frames import Frame

BEAT = 2 * GROUP_SECONDS
"""Longer than a group collects items, so that an item that is let through comes alone."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


def stream(
    workers: Workers,
    numbers: Numbers,
    encoder: NumberFrames | None = None,
    drain: Drain | None = None,
    **options: Any,  # noqa: ANN401
) -> Stream[Any]:
    return Stream(
        Ahead(iter(numbers), workers.start),
        encoder or NumberFrames(numbers.count),
        options.pop("head", Head({"Content-Type": "text/plain"})),
        workers,
        drain,
        heartbeat=BEAT,
        **options,
    )


def kinds(exchange: FakeExchange) -> list[str]:
    return [frame.kind for frame in exchange.frames]


def test_all_items_are_sent_in_order_and_then_an_end(workers: Workers) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(3)), exchange)
    assert kinds(exchange) == ["DATA", "DATA", "DATA", "END"]
    assert [frame.header["token"] for frame in exchange.frames] == [1, 2, 3, 3]
    assert exchange.frames[-1].header["reason"] == "exhausted"
    assert (exchange.status, exchange.length, exchange.ended) == (200, None, True)


def test_a_stream_without_items_is_an_end(workers: Workers) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(0)), exchange)
    assert kinds(exchange) == ["END"]


@pytest.mark.parametrize(
    ("limits", "count", "reason"),
    [
        (Limits(count=2), 2, "count"),
        (Limits(count=0), 0, "count"),
        (Limits(nbytes=17), 3, "bytes"),
        (Limits(nbytes=16), 2, "bytes"),
        (Limits(seconds=0.0), 0, "time"),
        (Limits(count=5), 5, "count"),
        (Limits(count=6), 5, "exhausted"),
    ],
)
def test_limits_are_checked_before_each_item(
    workers: Workers, limits: Limits, count: int, reason: str
) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(5), limits=limits), exchange)
    end = exchange.frames[-1]
    assert (len(exchange.frames) - 1, end.header["reason"]) == (count, reason)
    assert end.header["count"] == count


def test_epochs_that_a_product_counts_are_a_limit(workers: Workers) -> None:
    progress, sent = Progress(), list[int]()

    class Counting(NumberFrames):
        def item(self, item: Number) -> Buffers:
            progress.epochs += item.value % 2
            return super().item(item)

    exchange = FakeExchange()
    options: Any = {"limits": Limits(epochs=2), "progress": progress, "sent": sent.append}
    send(stream(workers, Numbers(9), Counting(9), **options), exchange)
    assert exchange.frames[-1].header == {"reason": "epoch", "token": 4, "count": 4}
    assert sum(sent) == 4


def test_a_failure_before_the_first_item_starts_no_answer(workers: Workers) -> None:
    exchange = FakeExchange()
    numbers = Numbers(fails=0, failure=StateError("no"))
    with pytest.raises(StateError):
        send(stream(workers, numbers), exchange)
    assert not exchange.started


def test_items_before_a_failure_are_sent_before_the_error(workers: Workers) -> None:
    exchange = FakeExchange()
    failure = DataChangedError("the data changed", hint="Begin anew")
    send(stream(workers, Numbers(fails=2, failure=failure)), exchange)
    assert kinds(exchange) == ["DATA", "DATA", "ERROR"]
    header = exchange.frames[-1].header
    assert problem_noted(exchange.scope) == header["problem"]["code"]
    assert (header["token"], header["problem"]["code"]) == (2, failure.code)


def test_items_of_a_group_before_a_failure_are_sent_before_the_error(workers: Workers) -> None:
    class Breaking(NumberFrames):
        def item(self, item: Number) -> Buffers:
            if item.value == 3:
                raise StateError("no")
            return super().item(item)

    exchange = FakeExchange()
    send(stream(workers, Numbers(nbytes=TOGETHER // 2), Breaking(5)), exchange)
    assert kinds(exchange) == ["DATA", "DATA", "DATA", "ERROR"]
    assert exchange.frames[-1].header["token"] == 3


def test_whoever_keeps_a_failure_keeps_nothing_of_the_answer(workers: Workers) -> None:
    failure = DataChangedError("the data changed", hint="Begin anew")
    send(stream(workers, Numbers(fails=1, failure=failure)), FakeExchange())
    assert failure.__traceback__ is None


def test_a_bug_of_ours_is_not_an_ending(workers: Workers) -> None:
    exchange = FakeExchange()
    with pytest.raises(ZeroDivisionError):
        send(stream(workers, Numbers(fails=1, failure=ZeroDivisionError())), exchange)
    assert not exchange.ended


def test_a_client_that_waits_hears_heartbeats(workers: Workers) -> None:
    free = threading.Semaphore(0)
    beats = 0

    def on_frame(frame: Frame) -> None:
        nonlocal beats
        beats += frame.kind == "HEARTBEAT"
        if beats == 3:
            free.release(2)

    exchange = FakeExchange(on_frame)
    send(stream(workers, Numbers(2, free=free)), exchange)
    found = kinds(exchange)
    assert found.count("HEARTBEAT") >= 3
    assert [kind for kind in found if kind != "HEARTBEAT"] == ["DATA", "DATA", "END"]
    assert exchange.frames[0].header == {"token": 0}


def test_draining_ends_an_answer_that_waits(workers: Workers) -> None:
    free = threading.Semaphore(0)
    drain = Drain()

    def on_frame(frame: Frame) -> None:
        if frame.kind == "HEARTBEAT":
            drain.hard.set()
            free.release(100)

    exchange = FakeExchange(on_frame)
    send(stream(workers, Numbers(100, free=free), drain=drain), exchange)
    end = exchange.frames[-1]
    assert end.kind == "END"
    assert end.header["reason"] == "drain"
    assert end.header["token"] == sum(kind == "DATA" for kind in kinds(exchange))


def test_a_limit_that_is_reached_is_the_reason_even_while_draining(workers: Workers) -> None:
    drain = Drain()
    drain.hard.set()
    exchange = FakeExchange()
    send(stream(workers, Numbers(5), drain=drain, limits=Limits(count=0)), exchange)
    assert exchange.frames[-1].header["reason"] == "count"


def test_a_client_that_left_ends_the_work(workers: Workers) -> None:
    free = threading.Semaphore(0)
    exchange = FakeExchange()

    def on_frame(_frame: Frame) -> None:
        exchange.disconnected.set()
        free.release(100)

    exchange.on_frame = on_frame
    numbers = Numbers(100, free=free)
    with pytest.raises(ClientDisconnected):
        send(stream(workers, numbers), exchange)
    assert not [kind for kind in kinds(exchange) if kind == "DATA"]


def test_a_format_without_an_ending_is_broken_off(workers: Workers) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(5), NumberLines(), limits=Limits(count=2)), exchange)
    assert (exchange.aborted, exchange.ended) == (True, False)
    assert exchange.data in {b"", b"number\n0\n1\n"}


def test_a_failure_breaks_a_format_without_errors_off(workers: Workers) -> None:
    free = threading.Semaphore(1)
    numbers = Numbers(5, fails=1, failure=StateError("no"), free=free)
    exchange = FakeExchange()
    # The first number is large, so that it is sent before the second is there.
    numbers.nbytes = GROUP_BYTES
    exchange.on_start = free.release
    send(stream(workers, numbers, NumberLines()), exchange)
    assert (exchange.aborted, exchange.ended) == (True, False)
    assert exchange.data == b"number\n0\n"


def test_what_comes_before_the_first_item_is_sent_once_even_without_items(
    workers: Workers,
) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(0), NumberLines()), exchange)
    assert exchange.data == b"number\n"


@pytest.mark.parametrize("live", [True, False])
def test_only_an_answer_nobody_waits_for_gets_a_length(workers: Workers, *, live: bool) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(3), NumberLines(), live=live), exchange)
    assert exchange.data == b"number\n0\n1\n2\n"
    assert exchange.length == (None if live else len(exchange.data))


def test_a_long_answer_nobody_waits_for_is_sent_in_chunks(workers: Workers) -> None:
    exchange = FakeExchange()
    numbers = Numbers(4, nbytes=CHUNK // 2)
    send(stream(workers, numbers, live=False), exchange)
    assert exchange.length is None
    assert kinds(exchange) == ["DATA"] * 4 + ["END"]


def test_a_known_length_is_that_of_the_uncompressed_answer_only(workers: Workers) -> None:
    head = Head({}, 206, 13)
    plain, compressed = FakeExchange(), FakeExchange()
    send(stream(workers, Numbers(3), NumberLines(), head=head), plain)
    assert (plain.status, plain.length) == (206, 13)
    coded = stream(workers, Numbers(3), NumberLines(), head=head, coding="zstd")
    send(coded, compressed)
    assert compressed.length is None
    assert decompress(compressed.data) == plain.data


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_was_sent_of_a_live_answer_can_be_decoded_at_once(
    workers: Workers, coding: str
) -> None:
    import zlib

    from backports.zstd import ZstdDecompressor

    free = threading.Semaphore(1)
    decoder: Any = zlib.decompressobj(31) if coding == "gzip" else ZstdDecompressor()
    decoded = b""
    exchange = FakeExchange()
    original = exchange.write

    async def write(data: bytes | memoryview) -> None:
        nonlocal decoded
        await original(data)
        decoded += decoder.decompress(bytes(data))
        if b"TWG1" in decoded:
            free.release(1)

    exchange.write = write  # type: ignore[method-assign]
    send(stream(workers, Numbers(2, free=free), coding=coding), exchange)
    assert decoded.count(b"TWG1") >= 3


def test_heavy_items_are_encoded_in_workers(workers: Workers) -> None:
    heavy, light = NumberFrames(3, heavy=True), NumberFrames(3)
    for encoder in (heavy, light):
        send(stream(workers, Numbers(3), encoder), FakeExchange())
    assert all(name.startswith("worker") for name in heavy.threads)
    assert light.threads == {threading.current_thread().name}


def test_small_items_are_sent_together(workers: Workers) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(1000)), exchange)
    assert len(exchange.frames) == 1001
    assert len(exchange.writes) < 20


def test_an_answer_that_ended_does_not_wait_for_an_item_without_end(workers: Workers) -> None:
    def numbers() -> Iterator[Number]:
        yield Number(0, GROUP_BYTES)  # a group of its own
        while True:
            current().check("number")

    async def run(exchange: FakeExchange) -> None:
        with Budgets().of_request("ann", asyncio.Event()):
            answer = Stream(
                Ahead(numbers(), workers.start),
                NumberFrames(),
                Head({}),
                workers,
                None,
                limits=Limits(count=1),
            )
            async with asyncio.timeout(PATIENCE):
                await answer.send(cast("Exchange", exchange))

    exchange = FakeExchange()
    asyncio.run(run(exchange))
    assert kinds(exchange) == ["DATA", "END"]


EXCEEDED = BudgetExceededError("too much", stage_name="pad", budget="memory", limit=9)


def test_an_item_over_budget_ends_the_answer_before_it(workers: Workers) -> None:
    exchange = FakeExchange()
    numbers = Numbers(5, fails=2, failure=EXCEEDED)
    send(stream(workers, numbers, over_budget={"memory": "bytes"}), exchange)
    assert kinds(exchange) == ["DATA", "DATA", "END"]
    assert exchange.frames[-1].header == {"reason": "bytes", "token": 2, "count": 2}


def test_a_first_item_over_budget_is_a_problem(workers: Workers) -> None:
    exchange = FakeExchange()
    numbers = Numbers(5, fails=0, failure=EXCEEDED)
    with pytest.raises(BudgetExceededError):
        send(stream(workers, numbers, over_budget={"memory": "bytes"}), exchange)
    assert not exchange.started


def test_a_budget_that_ends_no_answer_is_an_error(workers: Workers) -> None:
    exchange = FakeExchange()
    send(stream(workers, Numbers(5, fails=2, failure=EXCEEDED)), exchange)
    assert kinds(exchange) == ["DATA", "DATA", "ERROR"]
    problem = exchange.frames[-1].header["problem"]
    assert (problem["code"], problem["stage_name"], problem["budget"]) == (
        "budget-exceeded",
        "pad",
        "memory",
    )
