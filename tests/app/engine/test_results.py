"""Results of calls in threads wake their tasks in the turn in which they arrive."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from app.engine.workers import Result

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def run(work: Coroutine[object, object, None], new_loop: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:  # type: ignore[arg-type]
        runner.run(asyncio.wait_for(work, 20.0))


@LOOPS
def test_the_task_goes_on_before_anything_else_that_is_ready(
    new_loop: Callable[[], object],
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        order: list[str] = []
        result: Result[int] = Result(loop)

        async def wait() -> None:
            order.append(f"task {await result}")

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        loop.call_soon(result.settle, 7, None)
        loop.call_soon(order.append, "other")
        await task
        assert order == ["task 7", "other"]

    run(main(), new_loop)


@LOOPS
def test_errors_values_and_late_waiters(new_loop: Callable[[], object]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        failing: Result[int] = Result(loop)
        loop.call_soon(failing.settle, None, ValueError("x"))
        with pytest.raises(ValueError, match="x"):
            await failing
        result: Result[int] = Result(loop)
        loop.call_soon(result.settle, 1, None)
        assert tuple(await asyncio.gather(result, asyncio.shield(result))) == (1, 1)
        result.settle(2, None)
        assert await result == 1

    run(main(), new_loop)


@LOOPS
def test_cancelling_wakes_the_task(new_loop: Callable[[], object]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def wait(result: Result[int]) -> int:
            return await result

        for cancel_the_task in (True, False):
            result: Result[int] = Result(loop)
            task = asyncio.create_task(wait(result))
            await asyncio.sleep(0)
            (task if cancel_the_task else result).cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert result.cancelled()
            result.settle(1, None)
            assert result.cancelled()

    run(main(), new_loop)


@LOOPS
def test_waiting_with_a_time_limit(new_loop: Callable[[], object]) -> None:
    async def main() -> None:
        result: Result[int] = Result(asyncio.get_running_loop())
        done, pending = await asyncio.wait([result], timeout=0.01)
        assert (done, pending) == (set(), {result})
        assert result._waiting == []
        asyncio.get_running_loop().call_soon(result.settle, 1, None)
        done, pending = await asyncio.wait([result], timeout=20.0)
        assert (done, pending) == ({result}, set())

    run(main(), new_loop)


def test_callbacks_run_in_their_context() -> None:
    async def main() -> None:
        name = contextvars.ContextVar("name", default="none")
        result: Result[int] = Result(asyncio.get_running_loop())
        seen: list[str] = []
        context = contextvars.copy_context()
        context.run(name.set, "own")
        result.add_done_callback(lambda _: seen.append(name.get()), context=context)
        name.set("mine")
        result.add_done_callback(lambda _: seen.append(name.get()))
        name.set("later")
        result.settle(1, None)
        assert seen == ["own", "mine"]

    run(main(), asyncio.new_event_loop)


def test_a_callback_that_was_removed_is_not_called() -> None:
    async def main() -> None:
        result: Result[int] = Result(asyncio.get_running_loop())
        seen: list[object] = []
        result.add_done_callback(seen.append)
        assert result.remove_done_callback(seen.append) == 1
        assert result.remove_done_callback(seen.append) == 0
        result.settle(1, None)
        assert seen == []

    run(main(), asyncio.new_event_loop)
