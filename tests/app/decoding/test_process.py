"""One worker from the service's side; the worker is played by the test."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from app.decoding import wire
from app.decoding.base import DecoderLimits, Effort, LibraryMissingError, OpenHandle, Request
from app.decoding.process import MAX_OPEN, DecoderProcess, StartError
from app.decoding.wire import RefusedError
from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits
from app.errors import DatasetUnreadableError
from app.tracing import Trace
from core.arrays import Octets
from core.errors import BudgetExceededError

READY = {"protections": {"seccomp": True}, "libraries": {"arrow": "pyarrow"}}
LIMITS = DecoderLimits(cpu_seconds=300, memory=1 << 20)


class Actor:
    """A worker without a process of its own, in place of ``subprocess.Popen``."""

    def __init__(self, command: list[str], *, pass_fds: list[int], **_options: object) -> None:
        self.options = json.loads(command[-1])
        self.channel = socket.socket(fileno=os.dup(pass_fds[0]))
        self.channel.settimeout(20)
        self.pid = os.getpid()
        self.killed = False
        self.asked: list[Mapping[str, Any]] = []
        self.given: list[int] = []
        self._thread: threading.Thread | None = None

    def poll(self) -> int | None:
        return -9 if self.killed else None

    def wait(self, seconds: float | None = None) -> int:
        if not self.killed:
            raise subprocess.TimeoutExpired("worker", seconds or 0)
        return -9

    def kill(self) -> None:
        self.killed = True

    def answer(self, *answers: object) -> None:
        """Answer the following messages with these, in a thread."""

        def play() -> None:
            for values in answers:
                asked, descriptors = wire.receive(self.channel, 64)
                wire.close_all(descriptors)
                self.asked.append(asked)
                self.given.append(len(descriptors))
                wire.send(self.channel, values)

        self._thread = threading.Thread(target=play, daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(20)
        self.channel.close()


class Stage(NamedTuple):
    process: DecoderProcess
    actor: Actor


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    actors: list[Actor] = []

    def start(*arguments: Any, **options: Any) -> Actor:  # noqa: ANN401 - those of Popen
        actors.append(Actor(*arguments, **options))
        return actors[-1]

    monkeypatch.setattr("app.decoding.process.subprocess.Popen", start)
    process = DecoderProcess(LIMITS)
    (actor,) = actors
    try:
        yield Stage(process, actor)
    finally:
        process.kill()
        actor.close()


@pytest.fixture
def ready(stage: Stage) -> Stage:
    wire.send(stage.actor.channel, READY)
    stage.process.wait_until_ready()
    return stage


def request(key: str = "k", form: str = "hdf5", **effort: int) -> Request:
    return Request("a.h5", OpenHandle(key, form), "read", effort=Effort(**effort))


def parsed(values: Mapping[str, Any], octets: Octets) -> tuple[Mapping[str, Any], int]:
    return values, octets.nbytes


def test_a_worker_may_have_all_files_open_that_it_is_given(stage: Stage) -> None:
    # Besides its libraries' own: subjects, those of a request, a connection and segments.
    assert stage.actor.options["descriptors"] >= MAX_OPEN + wire.MAX_DESCRIPTORS + 16


def test_a_worker_that_is_ready_says_what_protects_it(ready: Stage) -> None:
    assert ready.process.protections == {"seccomp": True}
    assert ready.process.alive
    ready.actor.kill()
    assert not ready.process.alive


@pytest.mark.parametrize(
    "first", [{"libraries": 5}, {"protections": 5}, [], 7, {"libraries": [1]}, None]
)
def test_one_that_does_not_speak_the_protocol_does_not_start(stage: Stage, first: object) -> None:
    if first is None:
        stage.actor.channel.sendall(b"\xff" * 100)
    else:
        wire.send(stage.actor.channel, first)
    with pytest.raises(StartError, match="does not speak our protocol"):
        stage.process.wait_until_ready()
    assert stage.actor.killed


def test_one_that_ends_or_fails_does_not_start(stage: Stage) -> None:
    wire.send(stage.actor.channel, {"failed": "no such library"})
    with pytest.raises(StartError, match="no such library"):
        stage.process.wait_until_ready()
    assert stage.actor.killed


def test_a_format_without_its_library_is_not_asked_for(ready: Stage) -> None:
    with pytest.raises(LibraryMissingError) as caught:
        ready.process.ask(request(form="arrow"), parsed)
    assert caught.value.package == "pyarrow"
    ready.actor.channel.setblocking(False)
    with pytest.raises(BlockingIOError):
        ready.actor.channel.recv(1)
    assert ready.process.alive


def test_a_worker_is_idle_from_its_last_answer_on(ready: Stage) -> None:
    ready.process.idle_since = 0.0
    before = time.monotonic()
    ready.actor.answer({"ok": {"a": 1}})
    assert ready.process.ask(request(), parsed) == ({"a": 1}, 0)
    assert ready.process.idle_since >= before


def test_a_result_of_a_size_that_the_worker_tells_may_be_empty(ready: Stage) -> None:
    ready.actor.answer({"need": 0}, {"ok": {}})
    # A segment was sent nevertheless, for the worker expects one.
    assert ready.process.ask(request(max_bytes=10), parsed) == ({}, 0)
    assert ready.actor.asked[1]["segment"][1] >= 1


@pytest.mark.parametrize("effort", [{"nbytes": 10}, {"max_bytes": 10}])
def test_shared_memory_is_handed_over_once(ready: Stage, effort: dict[str, Any]) -> None:
    answers: list[object] = [{"need": 10}, {"ok": {}}]
    ready.actor.answer(*(2 * answers[0 if "max_bytes" in effort else 1 :]))
    for _ in range(2):
        assert ready.process.ask(request(**effort), parsed) == ({}, 10)
    lent = [asked["segment"] for asked in ready.actor.asked if asked["segment"] is not None]
    assert lent[0] == lent[1]
    assert [count for count in ready.actor.given if count] == [1]


@pytest.mark.parametrize(
    ("effort", "need"), [({"max_bytes": 10}, 11), ({"max_bytes": 10}, 1 << 40), ({}, 1)]
)
def test_a_result_is_as_large_as_allowed_at_most(
    ready: Stage, effort: dict[str, Any], need: int
) -> None:
    ready.actor.answer({"need": need})
    with pytest.raises(DatasetUnreadableError, match="more than the 1 MiB") as caught:
        ready.process.ask(request(**effort), parsed)
    assert caught.value.members["reason"] == "memory"
    assert ready.actor.killed


def test_a_result_and_its_copy_count_in_the_budget(ready: Stage) -> None:
    ready.actor.answer({"need": 600})
    budgets = Budgets(BudgetLimits(memory=1000)).of_request("ann", threading.Event())
    with budgets as budget, pytest.raises(BudgetExceededError, match="'decode' needs"):
        budget.run(ready.process.ask, request(max_bytes=4096), parsed)
    assert ready.actor.killed


def test_the_time_of_a_worker_counts_in_the_budget(
    ready: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = itertools.count(step=7.0)
    monkeypatch.setattr("app.decoding.process.time.clock_gettime", lambda _: next(used))
    budgets = Budgets(BudgetLimits(cpu_seconds=5)).of_request("ann", threading.Event())
    with budgets as budget, pytest.raises(BudgetExceededError, match="'decode'"):
        budget.run(ready.process.ask, request(), parsed)
    assert ready.actor.killed


@pytest.mark.parametrize(
    "answer",
    [
        *({}, {"ok": []}, {"ok": None}, {"need": -1}, {"need": "1"}, {"need": True}),
        {"refused": {}},
        {"refused": {"message": 1, "hint": None, "offset": None}},
        {"refused": {"message": "bad", "hint": 1, "offset": None}},
        {"refused": {"message": "bad", "hint": None, "offset": -1}},
        {"refused": {"message": "bad", "hint": None, "offset": True}},
    ],
)
def test_an_invalid_answer_ends_the_worker(ready: Stage, answer: object) -> None:
    ready.actor.answer(answer)
    with pytest.raises(DatasetUnreadableError, match="invalid answer") as caught:
        ready.process.ask(request(max_bytes=10), parsed)
    assert caught.value.members == {"file": "a.h5", "reason": "protocol"}
    assert ready.actor.killed


class Traced(Trace):
    """A span that keeps what it is told."""

    is_recorded, header = True, "00-1-2-01"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, float]] = []

    def past(self, name: str, seconds: float, **_values: object) -> None:
        self.told.append((name, seconds))


@pytest.mark.parametrize("nanoseconds", [0, 3_000_000, (1 << 64) - 1])
def test_a_worker_that_is_told_of_a_span_says_how_long_it_took(
    ready: Stage, nanoseconds: int
) -> None:
    trace = Traced()
    ready.actor.answer({"ok": {}, "nanoseconds": nanoseconds})
    begun = time.monotonic()
    ready.process.ask(request(), parsed, trace)
    ((name, seconds),) = trace.told
    assert name == "decoder"
    # No longer than the service has waited, whatever it says.
    assert seconds <= min(nanoseconds / 1e9, time.monotonic() - begun)
    assert ready.actor.asked[0]["traceparent"] == trace.header
    ready.actor.answer({"ok": {}})
    ready.process.ask(request(), parsed)
    assert "traceparent" not in ready.actor.asked[1]


@pytest.mark.parametrize("told", [{}, {"nanoseconds": -1}, {"nanoseconds": "1"}])
def test_a_worker_that_does_not_say_how_long_it_took_is_ended(
    ready: Stage, told: dict[str, object]
) -> None:
    ready.actor.answer({"ok": {}, **told})
    with pytest.raises(DatasetUnreadableError, match="invalid answer"):
        ready.process.ask(request(), parsed, Traced())
    assert ready.actor.killed


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError, IndexError, OverflowError])
def test_an_answer_that_cannot_be_parsed_is_invalid(ready: Stage, error: type[Exception]) -> None:
    def parse(_values: Mapping[str, Any], _octets: Octets) -> None:
        raise error

    ready.actor.answer({"ok": {}})
    with pytest.raises(DatasetUnreadableError, match="invalid answer"):
        ready.process.ask(request(), parse)
    assert ready.actor.killed


def test_a_connection_that_is_closed_is_a_crash(ready: Stage) -> None:
    ready.actor.channel.shutdown(socket.SHUT_RDWR)
    with pytest.raises(DatasetUnreadableError, match="closed its connection") as caught:
        ready.process.ask(request(), parsed)
    assert caught.value.members["reason"] == "crash"
    assert ready.actor.killed


def test_subjects_are_opened_once_and_closed_when_forgotten_or_refused(ready: Stage) -> None:
    refusal = {"refused": {"message": "bad", "hint": None, "offset": None}}
    ready.actor.answer({"ok": {}}, {"ok": {}}, {"ok": {}}, refusal, {"ok": {}})
    for key in ("a", "a"):
        ready.process.ask(request(key), parsed)
    ready.process.forget("a")
    ready.process.forget("never opened")
    ready.process.ask(request("b"), parsed)
    with pytest.raises(RefusedError, match="bad"):
        ready.process.ask(request("c"), parsed)
    ready.process.ask(request("b"), parsed)
    opened = [asked["open"] is not None for asked in ready.actor.asked]
    assert opened == [True, False, True, True, False]
    assert [asked["close"] for asked in ready.actor.asked] == [[], [], ["a"], [], ["c"]]
    assert list(ready.process.known) == ["b"]


def test_so_many_subjects_stay_open(ready: Stage) -> None:
    keys = [str(number) for number in range(MAX_OPEN + 1)]
    ready.actor.answer(*[{"ok": {}}] * len(keys))
    for key in keys:
        ready.process.ask(request(key), parsed)
    assert list(ready.process.known) == keys[1:]
    assert [asked["close"] for asked in ready.actor.asked if asked["close"]] == [["0"]]
