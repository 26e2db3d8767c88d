"""The blocking channel: what runs beside, and what is closed at the end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError
from functools import partial

import pytest

from app.client.errors import ConnectionFailed
from app.client.transport.blocking import SocketConnector
from app.client.transport.channel import Channel
from app.client.transport.http import Address
from app.client.transport.requests import Request
from app.client.transport.streams import Items

from ..fakes.clock import FakeClock
from ..fakes.service import FakeService

READY = Request("GET", "/readyz")


@pytest.fixture
def connector(service: FakeService) -> Iterator[SocketConnector]:
    made = SocketConnector(Address.parse(service.url, None, 5, None), 1)
    yield made
    made.close()


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("thalweg-worker")]


def test_what_is_asked_in_turn(connector: SocketConnector, clock: FakeClock) -> None:
    with connector.channel() as channel:
        channel.sleep(3)
        assert channel.work(lambda: 4) == 4
        assert channel.exchange(READY).head.status == 200
    assert clock.pauses == [3]


def test_operations_beside_run_at_once(connector: SocketConnector) -> None:
    meeting = threading.Barrier(3, timeout=10)

    def meet(n: int, channel: Channel) -> int:
        channel.work(meeting.wait)
        return n

    with connector.channel(workers=3) as channel:
        jobs = [channel.beside(partial(meet, n)) for n in range(3)]
        assert [channel.join(job) for job in jobs] == [0, 1, 2]
    assert not workers()


def test_an_error_beside_comes_where_it_is_joined(connector: SocketConnector) -> None:
    def fail(_: Channel) -> None:
        raise LookupError("beside")

    with connector.channel() as channel:
        job = channel.beside(fail)
        with pytest.raises(LookupError, match="beside"):
            channel.join(job)


def test_operations_beside_stop_with_the_others(
    connector: SocketConnector, service: FakeService
) -> None:
    """One waits for an answer, one would sleep for ever, one has not begun."""
    service.pipeline.delays = {0: 60.0}
    begun: list[str] = []

    def asks(channel: Channel) -> None:
        begun.append("asks")
        channel.send(Request("GET", "/v1/pipelines/p1/batches?after=0.f0.k&rank=0&world=1"))
        channel.receive(memoryview(bytearray(9)))

    def sleeps(channel: Channel) -> None:
        begun.append("sleeps")
        while True:
            channel.sleep(1)

    def late(_: Channel) -> None:
        begun.append("late")

    def run() -> None:
        with connector.channel(workers=2) as channel:
            for each in (asks, sleeps, late):
                channel.beside(each)
            while not (service.streams and "sleeps" in begun):
                channel.sleep(0)
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        run()
    assert sorted(begun) == ["asks", "sleeps"]
    assert not workers()


def test_a_channel_that_was_stopped_does_nothing(connector: SocketConnector) -> None:
    channel = connector.channel()
    channel.stop()
    with pytest.raises(CancelledError):
        channel.exchange(READY)
    channel.close()


def test_what_is_to_be_released_is_once(connector: SocketConnector) -> None:
    released: list[int] = []
    channel = connector.channel(release=lambda: released.append(1))
    channel.close()
    channel.close()
    assert released == [1]


def numbers(log: list[str]) -> Generator[int, None, None]:
    try:
        yield from range(3)
    finally:
        log.append("closed")


def test_items_are_closed_at_their_end_or_before(connector: SocketConnector) -> None:
    log: list[str] = []

    def items() -> Items[int]:
        return Items(connector.channel(release=lambda: log.append("released")), numbers(log))

    assert list(items()) == [0, 1, 2]
    assert log == ["closed", "released"]
    with items() as some:
        assert next(some) == 0
    assert next(some, None) is None
    assert log == ["closed", "released"] * 2
    next(items())
    gc.collect()
    assert sorted(log[4:]) == ["closed", "released"]


def test_items_are_closed_while_another_thread_waits_for_one(connector: SocketConnector) -> None:
    waiting, going_on = threading.Event(), threading.Event()

    def slow() -> Generator[int, None, None]:
        waiting.set()
        going_on.wait(10)
        yield 1

    items = Items(connector.channel(), slow())
    thread = threading.Thread(target=next, args=(items,))
    thread.start()
    assert waiting.wait(10)
    items.close()
    going_on.set()
    thread.join(10)
    assert not thread.is_alive()


def test_an_answer_that_is_left_closes_its_connection(
    connector: SocketConnector, service: FakeService
) -> None:
    def steps(channel: Channel) -> Generator[int, None, None]:
        channel.send(READY)
        yield 1

    channel = connector.channel()
    items = Items(channel, steps(channel))
    next(items)
    assert not service.gone.is_set()
    del items, channel
    gc.collect()
    assert service.gone.wait(10)


def test_nobody_there(clock: FakeClock) -> None:
    with FakeService() as service:
        address = Address.parse(service.url, None, 1, None)
    connector = SocketConnector(address, 2)
    with pytest.raises(ConnectionFailed):
        connector.call(READY)
    assert len(clock.pauses) == 2
    connector.close()
