from __future__ import annotations

from typing import Any

import pytest

from app.client.errors import ConnectionFailed
from app.client.transport.effects import Deliver, Drop, Finish, Sleep, Steps, next_item


def run(steps: Steps[Any], *answers: Any) -> tuple[list[Any], Any]:  # noqa: ANN401
    """Effects of steps that are answered one after the other, and what they return."""
    left, effects = list(answers), []
    effect: Any
    try:
        effect = next(steps)
        while True:
            effects.append(effect)
            answer = left.pop(0) if left else None
            if isinstance(answer, BaseException):
                effect = steps.throw(answer)
            else:
                effect = steps.send(answer)
    except StopIteration as stop:
        return effects, stop.value


def items(log: list[Any]) -> Steps[None]:
    try:
        log.append((yield Sleep(1)))
        yield Deliver("a")
        try:
            yield Sleep(2)
        except ConnectionFailed as error:
            log.append(str(error))
        yield Deliver("b")
        yield Finish()
    finally:
        log.append("closed")


def test_items_come_one_by_one_and_effects_pass_through() -> None:
    log: list[Any] = []
    steps = items(log)
    assert run(next_item(steps), "first") == ([Sleep(1)], "a")
    assert run(next_item(steps), ConnectionFailed("cut")) == ([Sleep(2)], "b")
    assert run(next_item(steps)) == ([Finish()], None)
    assert run(next_item(steps)) == ([], None)
    assert log == ["first", "cut", "closed"]


def test_an_error_that_is_not_handled_comes_out() -> None:
    log: list[Any] = []
    steps = items(log)
    with pytest.raises(LookupError):
        run(next_item(steps), LookupError())
    assert log == ["closed"]
    assert run(next_item(steps)) == ([], None)


def test_closing_the_outer_steps_closes_the_inner_ones() -> None:
    log: list[Any] = []
    outer = next_item(items(log))
    next(outer)
    outer.close()
    assert log == ["closed"]


def test_steps_of_steps() -> None:
    def doubled(steps: Steps[None]) -> Steps[None]:
        while (item := (yield from next_item(steps))) is not None:
            yield Deliver(item * 2)
            yield Drop()

    steps = doubled(items([]))
    assert run(next_item(steps)) == ([Sleep(1)], "aa")
    assert run(next_item(steps)) == ([Drop(), Sleep(2)], "bb")
    assert run(next_item(steps)) == ([Drop(), Finish()], None)
