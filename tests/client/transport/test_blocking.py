"""The blocking shell: what runs beside, and what is closed at the end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from app.client.errors import ConnectionFailed
from app.client.transport.answers import exchange
from app.client.transport.blocking import BlockingRunner
from app.client.transport.effects import Ask, Deliver, Join, Sleep, Spawn, Steps, Work
from app.client.transport.http import Address
from app.client.transport.items import BlockingItems
from app.client.transport.requests import Request

from ..fakes.clock import FakeClock
from ..fakes.service import FakeService

READY = Request("GET", "/readyz")


@pytest.fixture
def runner(service: FakeService) -> Iterator[BlockingRunner]:
    made = BlockingRunner(Address.parse(service.url, None, 5, None), retries=1)
    yield made
    made.close()


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("thalweg-worker")]


def test_what_steps_return(runner: BlockingRunner, clock: FakeClock) -> None:
    def steps() -> Steps[int]:
        yield Sleep(3)
        number: int = yield Work(lambda: 4)
        reply = yield from exchange(READY)
        return number + reply.head.status

    assert runner.run(steps()) == 204
    assert clock.pauses == [3]


def test_an_error_is_thrown_into_the_steps(runner: BlockingRunner) -> None:
    def fail() -> None:
        raise LookupError("mine")

    def steps() -> Steps[str]:
        try:
            yield Work(fail)
        except LookupError as error:
            return str(error)
        return "nothing"

    assert runner.run(steps()) == "mine"


def test_steps_beside_run_at_once(runner: BlockingRunner) -> None:
    meeting = threading.Barrier(3, timeout=10)

    def meet(n: int) -> Steps[int]:
        yield Work(meeting.wait)
        return n

    def steps() -> Steps[list[int]]:
        jobs = []
        for n in range(3):
            jobs.append((yield Spawn(meet(n))))  # noqa: PERF401 - it yields
        numbers = []
        for job in jobs:
            numbers.append((yield Join(job)))  # noqa: PERF401 - it yields
        return numbers

    assert runner.run(steps(), workers=3) == [0, 1, 2]
    assert not workers()


def test_an_error_beside_comes_where_it_is_joined(runner: BlockingRunner) -> None:
    def fail() -> Steps[None]:
        yield Sleep(0)
        raise LookupError("beside")

    def steps() -> Steps[None]:
        job = yield Spawn(fail())
        yield Join(job)

    with pytest.raises(LookupError, match="beside"):
        runner.run(steps())


def test_steps_beside_stop_with_the_others(runner: BlockingRunner, service: FakeService) -> None:
    """One waits for an answer, one would sleep for ever, one has not begun."""
    service.pipeline.delays = {0: 60.0}
    begun: list[str] = []

    def asks() -> Steps[None]:
        begun.append("asks")
        yield Ask(Request("GET", "/v1/pipelines/p1/batch?after=0.f0.k&offset=0&rank=0&world=1"))

    def sleeps() -> Steps[None]:
        begun.append("sleeps")
        while True:
            yield Sleep(1)

    def late() -> Steps[None]:
        begun.append("late")
        yield Sleep(0)

    def steps() -> Steps[None]:
        for each in (asks(), sleeps(), late()):
            yield Spawn(each)
        while not (service.streams and "sleeps" in begun):
            yield Sleep(0)
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        runner.run(steps(), workers=2)
    assert sorted(begun) == ["asks", "sleeps"]
    assert not workers()


def test_a_shell_that_was_stopped_does_nothing(runner: BlockingRunner) -> None:
    shell = runner.shell()
    shell.stop()
    with pytest.raises(CancelledError):
        shell.run(exchange(READY))
    shell.close()


def test_what_is_to_be_released_is_once(runner: BlockingRunner) -> None:
    released: list[int] = []
    shell = runner.shell(release=lambda: released.append(1))
    shell.close()
    shell.close()
    assert released == [1]
    assert runner.run(exchange(READY), release=lambda: released.append(2)).head.status == 200
    assert released == [1, 2]


def numbers(log: list[str]) -> Steps[None]:
    try:
        for n in range(3):
            yield Deliver(n)
    finally:
        log.append("closed")


def test_items_are_closed_at_their_end_or_before(runner: BlockingRunner) -> None:
    log: list[str] = []

    def items() -> BlockingItems[int]:
        return BlockingItems(runner.shell(release=lambda: log.append("released")), numbers(log))

    assert list(items()) == [0, 1, 2]
    assert log == ["closed", "released"]
    with items() as some:
        assert next(some) == 0
    assert next(some, None) is None
    assert log == ["closed", "released"] * 2
    next(items())
    gc.collect()
    assert sorted(log[4:]) == ["closed", "released"]


def test_an_answer_that_is_left_closes_its_connection(
    runner: BlockingRunner, service: FakeService
) -> None:
    def steps() -> Steps[None]:
        yield Ask(READY)
        yield Deliver(1)

    items: BlockingItems[int] = BlockingItems(runner.shell(), steps())
    next(items)
    assert not service.gone.is_set()
    del items
    gc.collect()
    assert service.gone.wait(10)


def test_nobody_there(clock: FakeClock) -> None:
    with FakeService() as service:
        address = Address.parse(service.url, None, 1, None)
    runner = BlockingRunner(address, retries=2)
    with pytest.raises(ConnectionFailed):
        runner.call(READY)
    assert len(clock.pauses) == 2
    runner.close()
