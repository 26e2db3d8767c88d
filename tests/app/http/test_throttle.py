"""Requests in progress and in a time, by owner."""

from __future__ import annotations

import pytest

from app.errors import BusyError, RateLimitedError, ShareExceededError, problem_of
from app.http import throttle as throttle_module
from app.http.throttle import Rate, Throttle
from app.tally import Column, Table


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_owner_has_its_share_of_requests_in_progress() -> None:
    throttle = Throttle(4, 2)
    for _ in range(2):
        throttle.enter("alice")
    with pytest.raises(ShareExceededError) as caught:
        throttle.enter("alice")
    problem = problem_of(caught.value)
    assert (problem.status, problem.retry_after) == (429, 1)
    assert problem.members["setting"] == "THALWEG_OWNER_SHARE"
    assert throttle.is_spent("alice")
    assert not throttle.is_spent("bob")
    throttle.enter("bob")
    throttle.leave("alice")
    throttle.enter("alice")
    assert (throttle.running, throttle._tally.of("alice")) == (3, 2)
    throttle.enter("carol")
    with pytest.raises(BusyError) as full:
        throttle.enter("dave")
    assert problem_of(full.value).members["setting"] == "THALWEG_MAX_REQUESTS"
    for owner in ("alice", "alice", "bob", "carol"):
        throttle.leave(owner)
    assert (throttle.running, throttle._tally.of("alice")) == (0, 0)
    assert throttle.refused == {"requests": 2}
    assert throttle.headers("alice") == {}


def test_a_burst_is_free_and_then_the_rate_counts() -> None:
    clock = Clock()
    throttle = Throttle(100, 100, rate=Rate(2.0, 5), clock=clock)
    policy = '"default";q=5;w=3'
    for left in (4, 3, 2, 1, 0):
        throttle.enter("alice")
        assert throttle.headers("alice") == {
            "RateLimit-Policy": policy,
            "RateLimit": f'"default";r={left};t={-(-(5 - left) // 2)}',
        }
    with pytest.raises(RateLimitedError) as caught:
        throttle.enter("alice")
    problem = problem_of(caught.value)
    assert (problem.status, problem.code, problem.retry_after) == (429, "rate-limited", 1)
    assert problem.members["setting"] == "THALWEG_OWNER_RATE"
    throttle.enter("bob")
    clock.now += 0.5
    throttle.enter("alice")
    with pytest.raises(RateLimitedError):
        throttle.enter("alice")
    clock.now += 1000
    assert throttle.headers("alice")["RateLimit"] == '"default";r=5;t=0'
    assert throttle.refused == {"rate": 2}


def test_a_slow_rate_says_how_long_to_wait() -> None:
    throttle = Throttle(100, 100, rate=Rate(0.1, 1), clock=Clock())
    throttle.enter("alice")
    with pytest.raises(RateLimitedError) as caught:
        throttle.enter("alice")
    assert caught.value.retry_after == 10


def test_a_bucket_makes_room_where_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "BUCKETS", 8)
    clock = Clock()
    throttle = Throttle(100, 100, rate=Rate(1.0, 2), clock=clock)
    throttle.enter("first")
    clock.now += 0.5
    for k in range(7):
        throttle.enter(str(k))
        throttle.enter(str(k))
    throttle.enter("late")
    assert throttle.headers("first")["RateLimit"] == '"default";r=2;t=0'
    assert throttle.headers("6")["RateLimit"] == '"default";r=0;t=2'
    assert throttle.headers("late")["RateLimit"] == '"default";r=1;t=1'


def test_both_limits_are_those_of_all_processes() -> None:
    table, clock = Table(2), Clock()
    first, second = (
        Throttle(3, 2, rate=Rate(1.0, 4), clock=clock, column=Column(table, k)) for k in (0, 1)
    )
    first.enter("alice")
    second.enter("alice")
    assert (first.running, first._tally.of("alice")) == (2, 2)
    with pytest.raises(ShareExceededError):
        second.enter("alice")
    second.enter("bob")
    with pytest.raises(BusyError):
        first.enter("carol")
    table.clear(1)
    first.enter("alice")
    with pytest.raises(RateLimitedError):
        first.enter("alice")
    assert second.headers("alice")["RateLimit"] == '"default";r=0;t=4'
