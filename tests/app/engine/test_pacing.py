"""Requests of those who use most of a late event loop are spaced out, those of others are not."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

import pytest

from app.engine import pacing as pacing_module
from app.engine.pacing import Pacing
from app.engine.precedence import HOLD_SECONDS, LAG_SECONDS

LATE = 2 * LAG_SECONDS
COST = 0.001
"""CPU seconds of a request after its head."""


class Service:
    """Clients with one connection each, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lag: float = LATE) -> None:
        self.now = 1000.0
        self.lag = lag
        self.late_turns = 1
        """One turn of the loop in so many is late."""
        self._turns = 0
        self.pacing = Pacing(lambda: self.now)
        self.waits: dict[str, list[float]] = {}
        self._slept = 0.0
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self._slept = seconds

    def ask(self, owner: str, cost: float = COST) -> float:
        """Make a request; return for how long it waited."""
        self._slept = 0.0
        asyncio.run(self.pacing.wait(owner))
        self.pacing.charge(owner, cost)
        self.pacing.note_cost(owner, cost)
        self.waits.setdefault(owner, []).append(self._slept)
        return self._slept

    def run(self, seconds: float, rates: Mapping[str, int]) -> Counter[str]:
        """Let clients ask again so long after each answer; return the requests that started."""
        due = {owner: (self.now, owner) for owner in rates}
        started: Counter[str] = Counter()
        end, measured = self.now + seconds, self.now
        while (at := min(due.values()))[0] < end:
            while measured <= at[0]:
                self.now, measured = measured, measured + 0.1
                self._turns += 1
                self.pacing.note_lag(0.0 if self._turns % self.late_turns else self.lag)
            self.now, owner = at
            wait = self.ask(owner)
            started[owner] += 1
            due[owner] = (self.now + max(wait, 1 / rates[owner]), owner)
        self.now = end
        return started


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(monkeypatch)


def test_whoever_asks_for_much_is_paced_and_others_never_wait(service: Service) -> None:
    service.run(2.0, {"ann": 15, "bob": 400})
    started = service.run(3.0, {"ann": 15, "bob": 400})
    assert not any(service.waits["ann"])
    assert started["ann"] >= 45
    assert started["bob"] < 400


def test_a_steady_reader_never_waits_because_others_were_paced_down_to_its_use(
    service: Service,
) -> None:
    started = service.run(10.0, {"ann": 90, "bob": 400})
    assert not any(service.waits["ann"])
    assert started["ann"] < started["bob"] < 2 * started["ann"]


def test_a_loop_that_is_late_in_one_turn_of_ten_is_late(service: Service) -> None:
    service.late_turns = 10
    service.run(20.0, {"ann": 15, "bob": 400})
    started = service.run(5.0, {"ann": 15, "bob": 400})
    assert not any(service.waits["ann"])
    assert started["bob"] < 5 * 200


def test_nobody_waits_while_the_event_loop_is_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, lag=LAG_SECONDS / 2)
    service.run(2.0, {"ann": 15, "bob": 400})
    assert not any(service.waits["bob"])


def test_pacing_ends_some_seconds_after_the_event_loop_is_on_time_again(service: Service) -> None:
    service.run(2.0, {"ann": 15, "bob": 400})
    assert any(service.waits["bob"])
    service.lag = 0.0
    service.run(HOLD_SECONDS + 1.0, {"ann": 1})
    service.waits.clear()
    started = service.run(1.0, {"ann": 15, "bob": 400})
    assert not any(service.waits["bob"])
    assert started["bob"] >= 399


def test_whoever_is_alone_has_the_whole_loop(service: Service) -> None:
    service.run(3.0, {"bob": 400})
    assert not any(service.waits["bob"])


def test_owners_who_want_as_much_have_even_shares(service: Service) -> None:
    started = service.run(5.0, {"ann": 300, "bob": 300, "cid": 300})
    assert max(started.values()) < 1.2 * min(started.values())
    assert sum(started.values()) > 3000, "the loop is left idle"


def test_a_burst_is_spread_and_nobody_waits_for_ever(service: Service) -> None:
    service.run(2.0, {"ann": 15, "bob": 400})
    waits = [service.ask("bob") for _ in range(1000)]
    assert waits[10] > waits[1]
    assert max(waits) <= pacing_module._LONGEST
    assert service.ask("ann") == 0


def test_of_many_requests_at_once_few_start_before_the_first_has_run(service: Service) -> None:
    service.run(3.0, {"ann": 15, "bob": 60})
    started = 0
    for _ in range(256):
        service._slept = 0.0
        asyncio.run(service.pacing.wait("bob"))
        started += service._slept == 0.0
    assert started < 100


def test_a_request_is_charged_while_it_runs(service: Service) -> None:
    async def work() -> None:
        account = service.pacing._accounts["ann"]
        before = account.rate(service.now)
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        await asyncio.get_running_loop().run_in_executor(None, int)
        assert account.rate(service.now) - before >= 0.02

    async def request() -> None:
        await service.pacing.wait("ann")
        await service.pacing.run("ann", work(), bool)

    service.pacing.note_lag(LATE)
    asyncio.run(request())


def test_a_wait_ends_when_an_event_is_set(service: Service) -> None:
    service.run(2.0, {"ann": 15, "bob": 400})
    service.pacing._accounts["bob"].next = service.now + 3600.0

    async def leave() -> None:
        gone, drained = asyncio.Event(), asyncio.Event()
        waiting = asyncio.create_task(service.pacing.wait("bob", gone, drained))
        asyncio.get_running_loop().call_soon(gone.set)
        await asyncio.wait_for(waiting, 60.0)
        assert len(asyncio.all_tasks()) == 1, "what watched the events goes on"

    asyncio.run(leave())


def test_waits_are_counted(service: Service) -> None:
    service.run(2.0, {"ann": 15, "bob": 400})
    before = service.pacing.paced
    assert before == sum(wait > 0 for waits in service.waits.values() for wait in waits)
    assert service.ask("ann") == 0
    assert service.pacing.paced == before


def test_nobody_adds_up_all_owners_at_a_request(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {f"owner {number}": 20 for number in range(50)}
    service.run(2.0, owners)
    asked: list[str] = []
    rate = pacing_module._Use.rate

    def noted(self: pacing_module._Use, now: float) -> float:
        asked.append(type(self).__name__)
        return rate(self, now)

    monkeypatch.setattr(pacing_module._Use, "rate", noted)
    service.ask("owner 7")
    assert len(asked) < 10
    now, accounts = service.now, service.pacing._accounts.values()
    used = sum(rate(account, now) for account in accounts)
    assert rate(service.pacing._all, now) == pytest.approx(used, rel=0.05)


def test_a_request_is_charged_until_its_answer_starts(service: Service) -> None:
    has_started = False

    def compute(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    async def work() -> None:
        nonlocal has_started
        compute(0.02)
        await asyncio.get_running_loop().run_in_executor(None, compute, 0.2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        has_started = True
        await asyncio.get_running_loop().run_in_executor(None, int)
        compute(0.2)

    async def request() -> None:
        await service.pacing.wait("ann")
        account = service.pacing._accounts["ann"]
        before = account.rate(service.now)
        await service.pacing.run("ann", work(), lambda: has_started)
        assert 0.02 <= account.rate(service.now) - before < 0.2

    service.pacing.note_lag(LATE)
    asyncio.run(request())


def test_what_a_request_raises_passes_through(service: Service) -> None:
    async def work() -> None:
        raise LookupError

    service.pacing.note_lag(LATE)
    with pytest.raises(LookupError):
        asyncio.run(service.pacing.run("ann", work(), bool))
