"""A service with lanes whose processes die, under clients whose requests go through all of them."""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from tests.e2e.service import KEY, Answer, AnswerCut, Connection, Service, aggregate, until
from tests.scale import SOAK
from tests.streams import Block, Stream

STREAM = Stream("summary", 2, 4, tuple(Block(e, 1, ((-1, 2.5), (1, 1.0))) for e in range(1, 51)))
MELT = "/v1/losses/melt?format=csv"
PATHS = ("/healthz", "/zarr/none/0", "/v1/runs/a/rows/b")
"""One of each lane."""
CONNECTIONS, SHARE = 60, 42
SECONDS = 60.0 if SOAK else 3.0


@pytest.fixture(scope="module")
def laned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {"token_keys": KEY, "lanes": "front=1,quick=1,long=1"}
    server = Service(
        tmp_path_factory.mktemp("lanes"), max_connections=CONNECTIONS, audit_log="", **settings
    )
    server.expected_failures = ["worker died"]
    try:
        yield server
        assert server.stop() == 0, server.log()
        assert not server.failures()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return aggregate(tmp_path_factory.mktemp("table"), STREAM.encode(), "melt")


def lane_of(server: Service, path: str) -> int:
    """Pid of the process that answers a request."""
    with suppress(OSError, AnswerCut), server.connect(timeout=10) as connection:
        connection.request("GET", path)
        return server.lane_of(connection)
    return 0


def lanes_of(server: Service) -> list[int]:
    """Pids of the processes of front, quick and long; 0 for those that are gone."""
    return [lane_of(server, path) for path in PATHS]


def requests_of(number: int) -> bytes:
    """One request for each lane, whose answers say which they are."""
    body = STREAM.encode()
    heads = (
        f"GET /problems/front{number} HTTP/1.1\r\nHost: x\r\n\r\n"
        f"GET /zarr/quick{number}/0 HTTP/1.1\r\nHost: x\r\n\r\n"
        f"POST {MELT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return heads.encode() + body


def check(answers: list[Answer], number: int, table: bytes) -> None:
    front, quick, long = answers
    assert (front.status, quick.status, long.status) == (404, 404, 200), answers
    assert f"front{number}" in front.body.decode()
    assert f"quick{number}" in quick.body.decode()
    assert long.body == table


def is_free(server: Service) -> bool:
    """Whether no connection is counted but ours: then an address has its whole share."""
    with ExitStack() as stack, suppress(OSError, AnswerCut):
        for _ in range(SHARE):
            connection = stack.enter_context(server.connect(timeout=10))
            if connection.request("GET", "/healthz").status != 200:
                return False
        one_more = stack.enter_context(server.connect(timeout=10))
        return bool(one_more.answer().json()["code"] == "share-exceeded")
    return False


def is_well(server: Service, table: bytes) -> bool:
    with suppress(OSError, AnswerCut), server.connect(timeout=10) as connection:
        connection.send(requests_of(1))
        check([connection.answer() for _ in range(3)], 1, table)
        return True
    return False


class Caller(threading.Thread):
    """Pipelines requests for all lanes, again and again; connects again when it is cut.

    Attributes:
        whole: rounds that were answered.
        connections: number of them that it took.
        error: what was wrong.
    """

    def __init__(self, server: Service, table: bytes, until: float) -> None:
        super().__init__()
        self.whole, self.connections = 0, 0
        self.error: BaseException | None = None
        self._server, self._table, self._until = server, table, until

    def run(self) -> None:
        try:
            while time.monotonic() < self._until:
                # A time without a byte is an error: nothing may hang.
                with suppress(AnswerCut, ConnectionError), self._server.connect() as connection:
                    self._call(connection)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error

    def _call(self, connection: Connection) -> None:
        self.connections += 1
        while time.monotonic() < self._until:
            numbers = [random.randrange(10**6) for _ in range(4)]  # noqa: S311 - no secret
            data = b"".join(map(requests_of, numbers))
            with connection.sending(partial(connection.send, data)):
                for number in numbers:
                    check([connection.answer() for _ in range(3)], number, self._table)
                    self.whole += 1


def test_without_its_acceptor_a_request_goes_on_and_others_come_soon(
    laned: Service, table: bytes
) -> None:
    assert until(lambda: is_well(laned, table), 60)
    lanes, body = lanes_of(laned), STREAM.encode()
    assert all(lanes)
    with laned.connect() as running, laned.connect() as kept:
        running.begin("POST", MELT, size=len(body))
        running.send(body[:100])
        assert kept.request("GET", "/healthz").status == 200
        os.kill(laned.acceptor(), signal.SIGKILL)
        begun = time.monotonic()
        assert until(lambda: is_well(laned, table), 30, 0.01)
        print(f"new connections after {time.monotonic() - begun:.3f} s")
        running.send(body[100:])
        assert running.answer().body == table
        for connection in (running, kept):
            connection.send(requests_of(2))
            check([connection.answer() for _ in range(3)], 2, table)
    assert lanes_of(laned) == lanes
    assert until(lambda: is_free(laned), 30)


def test_a_lane_that_is_gone_is_waited_for_and_others_do_not_notice(
    laned: Service, table: bytes
) -> None:
    assert until(lambda: is_well(laned, table), 60)
    quick = lane_of(laned, "/zarr/none/0")
    assert quick
    with laned.connect() as connection, laned.connect() as other:
        os.kill(quick, signal.SIGSTOP)
        connection.send(requests_of(3))
        for _ in range(20):
            other.begin("POST", MELT, size=len(STREAM.encode()))
            other.send(STREAM.encode())
            assert other.answer().body == table
            assert other.request("GET", "/healthz").status == 200
        # What it was offered and did not take, the next one gets.
        os.kill(quick, signal.SIGKILL)
        check([connection.answer() for _ in range(3)], 3, table)


def test_many_requests_behind_each_other_leave_the_front_to_others(
    laned: Service, table: bytes
) -> None:
    """How long others wait depends on the machine, so it is only told."""
    rounds = 200 if SOAK else 80
    assert until(lambda: is_well(laned, table), 60)

    def ask(count: int) -> list[float]:
        seconds = []
        with laned.connect() as connection:
            for _ in range(count):
                begun = time.perf_counter()
                assert connection.request("GET", "/healthz").status == 200
                seconds.append(time.perf_counter() - begun)
        return sorted(seconds)

    idle = ask(rounds)
    with laned.connect() as connection:
        data = b"".join(requests_of(number) for number in range(rounds))
        with connection.sending(lambda: connection.send(data)):
            busy = ask(rounds)
            for number in range(rounds):
                check([connection.answer() for _ in range(3)], number, table)
    for name, seconds in (("idle", idle), ("beside", busy)):
        middle, late = statistics.median(seconds), seconds[int(0.99 * rounds)]
        print(f"{name}: p50 {1e3 * middle:.1f} ms, p99 {1e3 * late:.1f} ms")


def test_refused_connections_are_counted_for_the_service(laned: Service, table: bytes) -> None:
    assert until(lambda: is_well(laned, table), 60)
    name = 'thalweg_problems_total{code="share-exceeded"}'
    before = laned.metrics().get(name, 0.0)
    assert until(lambda: is_free(laned), 30)
    # Until the others are known to be closed, ours is one too many.
    assert until(lambda: laned.get("/metrics").status == 200, 30)
    assert until(lambda: laned.metrics().get(name, 0.0) > before, 30)


def test_lanes_and_acceptors_die_under_pipelined_requests(laned: Service, table: bytes) -> None:
    """Connections end, none hangs, no answer is wrong, and none is counted for ever."""
    assert until(lambda: is_well(laned, table), 60)
    draw = random.Random(11)  # noqa: S311 - no secret
    end = time.monotonic() + SECONDS
    callers = [Caller(laned, table, end + 2) for _ in range(4)]
    for caller in callers:
        caller.start()
    killed = []
    while time.monotonic() < end:
        time.sleep(draw.uniform(0.05, 0.4))
        name = draw.choice([*PATHS, "acceptor"])
        victim = lane_of(laned, name) if name in PATHS else laned.acceptor()
        if victim:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            killed.append(name)
    for caller in callers:
        caller.join()
    assert [caller.error for caller in callers] == [None] * 4
    rounds, cuts = sum(c.whole for c in callers), sum(c.connections - 1 for c in callers)
    print(f"killed {dict(Counter(killed))}: {rounds} rounds of all lanes, {cuts} connections cut")
    assert until(lambda: is_well(laned, table), 60)
    assert until(lambda: is_free(laned), 30)


def test_a_service_that_drains_finishes_what_it_has_accepted(laned: Service, table: bytes) -> None:
    body = STREAM.encode()
    assert until(lambda: is_well(laned, table), 60)
    with laned.connect() as running, laned.connect() as idle, laned.connect() as silent:
        assert idle.request("GET", "/healthz").status == 200
        running.send(requests_of(7)[: -len(body)] + body[:100])
        answers = [running.answer(), running.answer()]
        assert until(lambda: laned.lane_of(running) > 0, 10)
        laned.term()
        for connection in (idle, silent):
            with pytest.raises((AnswerCut, ConnectionError)):
                connection.answer()
        with pytest.raises(ConnectionError):
            laned.connect().answer()
        running.send(body[100:])
        check([*answers, running.answer()], 7, table)
    assert laned.end() == 0
    laned.start()
    assert until(lambda: is_well(laned, table), 60)
