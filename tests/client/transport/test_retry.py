from __future__ import annotations

from typing import Any

import pytest

from app.client.errors import (
    ConnectionFailed,
    ProblemError,
    ProducerFailed,
    ProtocolError,
    SourceError,
    ThalwegError,
)
from app.client.transport.retry import Backoff, is_retryable, shorter


def test_what_is_worth_another_try() -> None:
    good: list[ThalwegError] = [ConnectionFailed(), ProtocolError()]
    good += [ProblemError(status, {}) for status in (408, 429, 502, 503, 504)]
    good.append(ProblemError(429, {"code": "quota-exceeded", "limit": "spools.bytes"}))
    good += [ProblemError(429, {"code": code}, 1) for code in ("share-exceeded", "rate-limited")]
    bad: list[ThalwegError] = [SourceError(), ProducerFailed("x", 1)]
    bad += [ProblemError(status, {}) for status in (400, 401, 404, 409, 410, 412, 413, 422, 500)]
    bad.append(ProblemError(429, {"code": "quota-exceeded", "limit": "views.count"}, 10.0))
    assert all(map(is_retryable, good))
    assert not any(map(is_retryable, bad))


def test_delays_double_up_to_a_bound() -> None:
    backoff = Backoff(9, lambda: 1.0)
    delays = [backoff.delay(ConnectionFailed()) for _ in range(9)]
    assert delays == [0.25, 0.5, 1, 2, 4, 8, 15, 15, 15]
    with pytest.raises(ConnectionFailed):
        backoff.delay(ConnectionFailed())


def test_chance_takes_at_most_half() -> None:
    assert Backoff(1, lambda: 0.0).delay(ConnectionFailed()) == 0.125


def test_progress_begins_anew() -> None:
    backoff = Backoff(1, lambda: 1.0)
    backoff.delay(ConnectionFailed())
    backoff.progressed()
    assert backoff.failures == 0
    assert backoff.delay(ConnectionFailed()) == 0.25


def test_retry_after_is_a_lower_bound() -> None:
    assert Backoff(1).delay(ProblemError(503, {}, 7.0)) == 7
    assert Backoff(1).delay(ProblemError(503, {}, 1e9)) == 300


def test_refusals_are_raised() -> None:
    with pytest.raises(ProblemError):
        Backoff(5).delay(ProblemError(422, {}))


@pytest.mark.parametrize(
    ("status", "members", "size", "allowed"),
    [
        (413, {"limit": "body", "allowed": 70_000}, 200_000, 70_000),
        (413, {"limit": "append", "allowed": 1}, 2, 1),
        (413, {"allowed": 2}, 2, None),
        (413, {"allowed": 0}, 200_000, 100_000),
        (413, {"allowed": "1"}, 200_000, 100_000),
        (413, {}, 128 << 10, 64 << 10),
        (413, {}, (128 << 10) - 1, None),
        (413, {"limit": "query", "allowed": 70_000}, 200_000, None),
        (422, {"limit": "body", "allowed": 70_000}, 200_000, None),
    ],
)
def test_what_is_too_long_is_sent_shorter(
    status: int, members: dict[str, Any], size: int, allowed: int | None
) -> None:
    assert shorter(ProblemError(status, members), size) == allowed


def test_a_service_that_is_away_and_back_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "thalweg")
    backoff = Backoff(3, lambda: 1.0)
    for _ in range(2):
        backoff.delay(ConnectionFailed("it is away"))
    backoff.progressed()
    backoff.progressed()
    assert caplog.messages == ["it is away: trying again", "it goes on"]
