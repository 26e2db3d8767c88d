"""The one loop, without a network: each attempt follows a script."""

from __future__ import annotations

from typing import Any

import pytest

from app.client.errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from app.client.transport.effects import (
    Ask,
    Deliver,
    Drop,
    Effect,
    Finish,
    Receive,
    Sleep,
    Steps,
)
from app.client.transport.requests import Head
from app.client.transport.resumable import Cure, ResumableStream
from app.client.transport.retry import Backoff

CUT = ConnectionFailed("cut")


def problem(status: int, code: str = "x") -> ProblemError:
    return ProblemError(status, {"code": code, "detail": code})


class Stream(ResumableStream):
    """Delivers numbers up to five; each attempt delivers some and then fails, or ends."""

    def __init__(self, *script: tuple[int, ThalwegError | None], retries: int = 3) -> None:
        super().__init__(Backoff(retries, lambda: 1.0), "t0")
        self.script = list(script)
        self.number = 0
        self.forgotten: list[int] = []
        self.lacking = False
        self.cured = 0

    @property
    def done(self) -> bool:
        return self.number == 5

    @property
    def position(self) -> object:
        return self.token, self.number

    def _attempt(self) -> Steps[None]:
        count, failure = self.script.pop(0)
        for _ in range(count):
            self.number += 1
            yield Deliver(self.number)
        if failure is not None:
            raise failure

    def _forget(self) -> Steps[None]:
        self.forgotten.append(self.number)
        yield from ()

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:
        return self.lacking and failure is CUT

    def _cure(self, problem: ProblemError) -> Cure | None:
        return self._mend if problem.code == "mend" else super()._cure(problem)

    def _mend(self) -> Steps[None]:
        self.cured += 1
        if self.cured == 1 and self.script and self.script[0][0] < 0:
            _, failure = self.script.pop(0)
            assert failure is not None
            raise failure
        yield from ()


def run(stream: ResumableStream, *answers: Any) -> list[Effect]:  # noqa: ANN401
    left = list(answers)
    effects: list[Effect] = []
    steps = stream.run()
    try:
        effect = next(steps)
        while True:
            effects.append(effect)
            wanted = isinstance(effect, Ask | Receive) and left
            effect = steps.send(left.pop(0) if wanted else None)
    except StopIteration:
        return effects


def delivered(effects: list[Effect]) -> list[Any]:
    return [effect.item for effect in effects if isinstance(effect, Deliver)]


def pauses(effects: list[Effect]) -> list[float]:
    return [effect.seconds for effect in effects if isinstance(effect, Sleep)]


def test_an_answer_that_ends_well() -> None:
    assert run(Stream((5, None))) == [Deliver(n) for n in range(1, 6)]


def test_it_resumes_after_what_was_delivered() -> None:
    stream = Stream((2, CUT), (0, None), (1, CUT), (2, None))
    effects = run(stream)
    assert delivered(effects) == [1, 2, 3, 4, 5]
    assert stream.forgotten == [2, 3]
    assert effects[2:4] == [Drop(), Sleep(0.25)]


def test_failures_count_only_without_progress() -> None:
    stream = Stream(*[(1, CUT)] * 4, (1, None), retries=1)
    assert pauses(run(stream)) == [0.25] * 4
    with pytest.raises(ConnectionFailed):
        run(Stream((0, CUT), (0, CUT), retries=1))
    # An attempt that ended as it should is progress too.
    assert pauses(run(Stream((0, CUT), (0, None), (0, CUT), (5, None), retries=1))) == [0.25] * 2


def test_delays_double() -> None:
    assert pauses(run(Stream(*[(0, CUT)] * 3, (5, None)))) == [0.25, 0.5, 1]


@pytest.mark.parametrize("failure", [CUT, ProtocolError("lie"), problem(503)])
def test_what_is_tried_again(failure: ThalwegError) -> None:
    assert delivered(run(Stream((1, failure), (4, None)))) == [1, 2, 3, 4, 5]


def test_a_refusal_is_raised() -> None:
    stream = Stream((1, problem(422)))
    with pytest.raises(ProblemError):
        run(stream)
    assert stream.forgotten == [1]


def test_an_error_that_is_not_the_services_passes() -> None:
    with pytest.raises(LookupError):
        run(Stream((1, LookupError()), (4, None)))  # type: ignore[arg-type]


def test_nothing_is_asked_again_where_only_the_end_is_missing() -> None:
    stream = Stream((3, CUT))
    stream.lacking = True
    assert run(stream)[-1] == Drop()


def test_a_cure_is_tried_once_without_a_pause() -> None:
    mend = problem(410, "mend")
    stream = Stream((1, mend), (1, mend), (3, None))
    effects = run(stream)
    assert delivered(effects) == [1, 2, 3, 4, 5]
    assert (stream.cured, pauses(effects)) == (2, [])
    stream = Stream((1, mend), (0, mend))
    with pytest.raises(ProblemError):
        run(stream)
    assert stream.cured == 1


def test_a_cure_that_failed_is_tried_again() -> None:
    stream = Stream((0, problem(410, "mend")), (-1, CUT), (5, None))
    effects = run(stream)
    assert (stream.cured, pauses(effects)) == (2, [0.25])
    stream = Stream((0, problem(410, "mend")), (-1, problem(422)))
    with pytest.raises(ProblemError) as caught:
        run(stream)
    assert caught.value.status == 422


def test_a_retired_token_is_refreshed_and_that_is_no_progress() -> None:
    stream = Stream((0, problem(410, "token-retired")), (0, CUT), (5, None), retries=1)
    answer = [Head(200, {}), 0]
    steps = stream.run()
    assert next(steps) == Drop()
    ask = steps.send(None)
    assert isinstance(ask, Ask)
    assert ask.request.body == b'{"token": "t0"}'
    receive = steps.send(answer[0])
    assert isinstance(receive, Receive)
    receive.view[:15] = b'{"token": "t1"}'
    assert isinstance(steps.send(15), Receive)
    assert steps.send(0) == Finish()
    assert steps.send(None) == Drop()
    assert stream.token == "t1"  # noqa: S105 - of the fake
    assert steps.send(None) == Sleep(0.25)
    assert [effect.item for effect in steps if isinstance(effect, Deliver)] == [1, 2, 3, 4, 5]


def test_a_stream_without_a_token_has_none_to_refresh() -> None:
    stream = Stream((0, problem(410, "token-retired")))
    stream.token = None
    with pytest.raises(ProblemError):
        run(stream)
