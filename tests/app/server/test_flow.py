"""Flags behave as events of asyncio, and callers take turns at the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from app.server.flow import PER_TURN, Flag, Spread
from tests.app.server.harness import LOG, Answer, head, make_app, serving, wait_until


@pytest.mark.parametrize("kind", [asyncio.Event, Flag])
def test_who_waits_is_woken_once(kind: type[asyncio.Event | Flag]) -> None:
    async def run() -> None:
        event = kind()
        assert not event.is_set()
        waits = [asyncio.create_task(event.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await asyncio.sleep(0)
        assert [wait.done() for wait in waits] == [True, False, False]
        event.set()
        event.clear()
        late = asyncio.create_task(event.wait())
        await asyncio.gather(*waits[1:])
        assert not event.is_set()
        assert not late.done()
        event.set()
        await late
        await event.wait()
        assert event.is_set()

    asyncio.run(run())


def test_a_future_of_its_own_may_be_cancelled() -> None:
    async def run() -> None:
        flag = Flag()
        left, stays = flag.future(), flag.future()
        left.cancel()
        await asyncio.sleep(0)
        assert flag._waiters is not None
        assert len(flag._waiters) == 1
        flag.set()
        await stays
        await flag.future()

    asyncio.run(run())


LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def turns_of(new_loop: Callable[[], Any], calls: list[tuple[str, int]]) -> list[list[str]]:
    """Make calls in one turn; return what is called in this and each following turn."""
    turns: list[list[str]] = []

    async def main() -> None:
        loop, spread = asyncio.get_running_loop(), Spread()
        current: list[str] = []
        for caller, number in calls:
            spread.call(loop, caller, partial(current.append, f"{caller}{number}"))
        while current:
            turns.append(list(current))
            current.clear()
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert not current

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    return turns


@LOOPS
def test_few_calls_are_made_at_once(new_loop: Callable[[], Any]) -> None:
    assert turns_of(new_loop, [("a", 1), ("b", 1)]) == [["a1", "b1"]]


@LOOPS
def test_many_calls_take_many_turns_and_callers_take_turns(new_loop: Callable[[], Any]) -> None:
    turns = turns_of(new_loop, [*(("a", number) for number in range(6)), ("b", 0)])
    assert turns == [["a0", "a1"], ["a2", "b0"], ["a3", "a4"], ["a5"]]


def test_later_calls_never_pass_those_that_wait() -> None:
    async def main() -> None:
        loop, spread = asyncio.get_running_loop(), Spread()
        seen: list[int] = []
        for round_ in range(5):
            for number in range(3):
                spread.call(loop, "a", partial(seen.append, 3 * round_ + number))
            await asyncio.sleep(0)
        for _ in range(15):
            await asyncio.sleep(0)
        assert seen == list(range(15))

    asyncio.run(asyncio.wait_for(main(), 20.0))


@pytest.mark.parametrize("kind", ["ours", "ours-asyncio"])
def test_a_request_waits_for_few_of_another_caller(kind: str) -> None:
    started: list[bytes] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        key = dict(scope["headers"]).get(b"authorization", b"")
        started.append(key)
        if key == b"stall":
            # Heads of all others arrive meanwhile.
            time.sleep(0.5)  # noqa: ASYNC251
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with serving(kind, app=app) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(60)]
        wait_until(lambda: len(server.server.server_state.connections) == 60)
        clients[0].sendall(head("/", "Authorization: stall", method="GET"))
        wait_until(lambda: len(started) == 1)
        for client in clients[1:-1]:
            client.sendall(head("/", "Authorization: many", method="GET"))
        clients[-1].sendall(head("/", "Authorization: one", method="GET"))
        for client in clients:
            assert Answer(client, method="GET").status == 204
    assert started.index(b"one") <= 1 + 2 * PER_TURN
    assert len(started) == 60


@pytest.mark.parametrize("kind", ["ours", "ours-asyncio"])
def test_all_requests_end_when_their_clients_leave_at_once(kind: str) -> None:
    with serving(kind, app=make_app()) as server:
        with contextlib.ExitStack() as stack:
            for path in ("/hold", "/sum"):
                for _ in range(40):
                    client = stack.enter_context(server.connect())
                    client.sendall(head(path, "Content-Length: 100") + bytes(20))
            wait_until(lambda: len(server.server.server_state.tasks) == 80)
        wait_until(server.quiet)
        assert LOG.count("hold ended") == 40
        assert LOG.count("left after 20") == 40
