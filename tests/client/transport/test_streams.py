"""The one loop, without a network: each attempt follows a script."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import pytest

from app.client.errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from app.client.transport.frames import FrameAnswer
from app.client.transport.requests import Head
from app.client.transport.retry import Backoff
from app.client.transport.streams import Recovery, Repeated, Resumable

from ..fakes.channel import FakeChannel
from ..fakes.frames import BytesReader

CUT = ConnectionFailed("cut")


def problem(status: int, code: str = "x") -> ProblemError:
    return ProblemError(status, {"code": code, "detail": code})


class Stream(Resumable[int]):
    """Yields numbers up to five; each attempt yields some and then fails, or ends."""

    def __init__(
        self,
        *script: tuple[int, ThalwegError | None],
        retries: int = 3,
        answers: Iterable[Head | bytes] = (),
    ) -> None:
        self.channel = FakeChannel(*answers)
        super().__init__(self.channel, "t0")
        self._backoff = Backoff(retries, lambda: 1.0)
        self.script = list(script)
        self.number = 0
        self.forgotten: list[int] = []
        self.lacking = False
        self.cured = 0

    @property
    def position(self) -> object:
        return self.token, self.number

    def _attempt(self) -> Generator[int, None, None]:
        count, failure = self.script.pop(0)
        for _ in range(count):
            self.number += 1
            self.done = self.number == 5
            yield self.number
        if failure is not None:
            raise failure

    def _forget(self) -> Iterable[int]:
        self.forgotten.append(self.number)
        return ()

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:
        return self.lacking and failure is CUT

    def _recovery(self, problem: ProblemError) -> Recovery | None:
        return self._mend if problem.code == "mend" else super()._recovery(problem)

    def _mend(self) -> None:
        self.cured += 1
        if self.cured == 1 and self.script and self.script[0][0] < 0:
            _, failure = self.script.pop(0)
            assert failure is not None
            raise failure


def run(stream: Stream) -> list[int]:
    return list(stream.run())


def pauses(stream: Stream) -> list[float]:
    run(stream)
    return stream.channel.pauses


def test_an_answer_that_ends_well() -> None:
    stream = Stream((5, None))
    assert run(stream) == [1, 2, 3, 4, 5]
    assert stream.channel.log == []


def test_it_resumes_after_what_was_delivered() -> None:
    stream = Stream((2, CUT), (0, None), (1, CUT), (2, None))
    assert run(stream) == [1, 2, 3, 4, 5]
    assert stream.forgotten == [2, 3]
    assert stream.channel.log == ["drop", 0.25, "drop", 0.25]


def test_failures_count_only_without_progress() -> None:
    stream = Stream(*[(1, CUT)] * 4, (1, None), retries=1)
    assert pauses(stream) == [0.25] * 4
    with pytest.raises(ConnectionFailed):
        run(Stream((0, CUT), (0, CUT), retries=1))
    # An attempt that ended as it should is progress too.
    assert pauses(Stream((0, CUT), (0, None), (0, CUT), (5, None), retries=1)) == [0.25] * 2


def test_delays_double() -> None:
    assert pauses(Stream(*[(0, CUT)] * 3, (5, None))) == [0.25, 0.5, 1]


@pytest.mark.parametrize("failure", [CUT, ProtocolError("lie"), problem(503)])
def test_what_is_tried_again(failure: ThalwegError) -> None:
    assert run(Stream((1, failure), (4, None))) == [1, 2, 3, 4, 5]


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
    assert run(stream) == [1, 2, 3]
    assert stream.channel.log == ["drop"]


def test_a_recovery_is_tried_once_without_a_pause() -> None:
    mend = problem(410, "mend")
    stream = Stream((1, mend), (1, mend), (3, None))
    assert run(stream) == [1, 2, 3, 4, 5]
    assert (stream.cured, stream.channel.pauses) == (2, [])
    stream = Stream((1, mend), (0, mend))
    with pytest.raises(ProblemError):
        run(stream)
    assert stream.cured == 1


def test_a_recovery_that_failed_is_tried_again() -> None:
    stream = Stream((0, problem(410, "mend")), (-1, CUT), (5, None))
    assert pauses(stream) == [0.25]
    assert stream.cured == 2
    stream = Stream((0, problem(410, "mend")), (-1, problem(422)))
    with pytest.raises(ProblemError) as caught:
        run(stream)
    assert caught.value.status == 422


def test_a_retired_token_is_refreshed_and_that_is_no_progress() -> None:
    retired = problem(410, "token-retired")
    answers = (Head(200, {}), b'{"token": "t1"}')
    stream = Stream((0, retired), (0, CUT), (5, None), retries=1, answers=answers)
    assert run(stream) == [1, 2, 3, 4, 5]
    assert stream.token == "t1"  # noqa: S105 - of the fake
    dropped, request, *rest = stream.channel.log
    assert dropped == "drop"
    assert request.body == b'{"token": "t0"}'
    assert rest == ["finish", "drop", 0.25]


def test_a_stream_without_a_token_has_none_to_refresh() -> None:
    stream = Stream((0, problem(410, "token-retired")))
    stream.token = None
    with pytest.raises(ProblemError):
        run(stream)


class Once(Repeated):
    """Is done at the third try."""

    def __init__(self) -> None:
        super().__init__(FakeChannel())
        self.tries = 0

    def _try(self) -> None:
        self.tries += 1
        if self.tries < 3:
            raise CUT
        self.done = True


def test_what_yields_nothing_is_tried_until_it_is_done() -> None:
    once = Once()
    once.complete()
    assert once.tries == 3


def test_an_end_of_the_bytes_is_not_the_end_of_the_answer() -> None:
    class Numbers(FrameAnswer[int, str]):
        def _data(self, frame: Any) -> int:  # noqa: ANN401
            raise NotImplementedError

        def _finish(self, header: Any) -> None:  # noqa: ANN401
            raise NotImplementedError

    stream = Stream()
    with pytest.raises(ProtocolError, match="cut"):
        stream._take(Numbers(), BytesReader())
