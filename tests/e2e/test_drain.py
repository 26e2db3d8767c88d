"""Servers that are told to stop: what runs is finished or can go on, nothing new begins."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.client import Client
from core.losses.analysis import aggregate
from tests.e2e.conftest import Starter
from tests.e2e.samples import twenty_thousand_bytes
from tests.e2e.service import KEY, Answer, Connection, Service, in_pieces, until
from tests.fault_proxy import FaultProxy
from tests.frames import Received, receive
from tests.server_process import children_of
from tests.streams import random_stream

SELT = "/v1/losses/selt?format=bin"
FRAMES = "/v1/losses/selt?format=frames&duplex=true"
NDJSON = "/v1/losses/selt?format=ndjson&duplex=true"


class Sample(NamedTuple):
    data: bytes
    rows: bytes


def make_sample(data: bytes) -> Sample:
    return Sample(data, aggregate(data, ["selt"])["selt"].tobytes())


@pytest.fixture(scope="module")
def small() -> Sample:
    return make_sample(twenty_thousand_bytes())


@pytest.fixture(scope="module")
def big_events() -> Sample:
    """Four events of some 130,000 bytes."""
    rng = np.random.default_rng(4)
    return make_sample(random_stream(rng, events=4, blocks=160, samples=200).encode())


def refuses(server: Service) -> bool:
    """Whether it takes no connection; that one hangs is not that."""
    try:
        with server.connect(timeout=1.0) as connection:
            connection.request("GET", "/healthz")
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return False


def test_a_running_post_is_finished(start: Starter, small: Sample) -> None:
    server = start("--drain-seconds=10")
    with server.connect() as connection, server.connect() as idle:
        idle.begin("GET", "/healthz", size=0)
        assert idle.answer().status == 200
        connection.begin("POST", SELT, size=len(small.data))
        connection.send(small.data[:9000])
        assert until(functools.partial(has_read, server, 9000), 30)
        server.term()
        assert until(lambda: refuses(server), 5), "new connections are still taken"
        connection.send(small.data[9000:])
        answer = connection.answer()
        assert answer.status == 200
        assert answer.body == small.rows
        with pytest.raises(ConnectionError):
            idle.answer()
    assert server.end(10) == 0


def test_a_signal_to_the_process_group_is_one_signal(start: Starter, small: Sample) -> None:
    server = start("--drain-seconds=10")
    with server.connect() as connection:
        connection.begin("POST", SELT, size=len(small.data))
        connection.send(small.data[:9000])
        assert until(functools.partial(has_read, server, 9000), 30)
        started = server.worker_pids()
        below = [child for parent in started for child in children_of(parent)]
        for pid in (server.process.pid, *started, *below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        assert until(lambda: refuses(server), 5)
        connection.send(small.data[9000:])
        assert connection.answer().body == small.rows
    assert server.end(10) == 0
    assert not server.failures()


def test_new_work_is_refused_while_a_load_balancer_may_still_send_it(
    start: Starter, small: Sample
) -> None:
    server = start("--drain-delay=2", "--drain-seconds=10")
    with server.connect() as running:
        running.begin("POST", SELT)
        running.send_chunk(small.data[:9000])
        assert until(functools.partial(has_read, server, 9000), 30)
        assert server.get("/readyz").status == 200
        begin = time.monotonic()
        server.term()
        assert until(lambda: server.get("/readyz").status == 503, 1.5)
        refused = server.post(SELT, small.data)
        assert refused.status == 503
        assert refused.json()["code"] == "draining"
        assert int(refused.headers["retry-after"]) >= 1
        assert server.get("/healthz").status == 200
        assert until(lambda: refuses(server), 10)
        assert time.monotonic() - begin > 1.9
        running.send_chunk(small.data[9000:])
        running.end_chunks()
        assert running.answer().body == small.rows
    assert server.end(10) == 0


# -- posts that cannot end in time ---------------------------------------------------


class Drained(NamedTuple):
    """What posts were answered that a server could not let end.

    Attributes:
        between: frames of a stream of small events.
        inside: frames of a stream whose next event is long: some of its rows were sent.
        lines: the same as NDJSON.
        refused: the answer to a post that is answered after its body.
        code: how the server ended.
    """

    between: Received
    inside: Received
    lines: list[dict[str, Any]]
    refused: Answer
    code: int


@pytest.fixture(scope="module")
def drained(
    tmp_path_factory: pytest.TempPathFactory, small: Sample, big_events: Sample
) -> Iterator[Drained]:
    server = Service(tmp_path_factory.mktemp("drained"), "--drain-seconds=1.2", token_keys=KEY)
    posts = ((FRAMES, small), (FRAMES, big_events), (NDJSON, big_events), (SELT, small))
    try:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(server.connect()) for _ in posts]
            for connection, (target, sample) in zip(connections, posts, strict=True):
                connection.begin("POST", target)
                send_slowly(connection, server, sample.data[: len(sample.data) * 5 // 8])
            server.term()
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(Connection.answer, connections))
        lines = [json.loads(line) for line in answers[2].body.splitlines()]
        frames = [receive(answer.body) for answer in answers[:2]]
        code = server.end(10)
        assert not server.failures()
        yield Drained(frames[0], frames[1], lines, answers[3], code)
    finally:
        server.kill()


def send_slowly(connection: Connection, server: Service, data: bytes) -> None:
    """Send a part of a body in pieces that are read one by one."""
    total = "thalweg_body_bytes_total"
    for piece in in_pieces(data, 8):
        wanted = server.metrics()[total] + len(piece)
        connection.send_chunk(piece)
        assert until(functools.partial(has_read, server, wanted), 30)


def has_read(server: Service, count: float) -> bool:
    return server.metrics()["thalweg_body_bytes_total"] >= count


def test_a_server_that_cut_posts_ends_well(drained: Drained) -> None:
    assert drained.code == 0


def test_duplex_frames_end_with_a_token_to_go_on_from(
    service: Service, drained: Drained, small: Sample, big_events: Sample
) -> None:
    for received, sample in ((drained.between, small), (drained.inside, big_events)):
        assert received.end is not None
        assert received.end["reason"] == "drain"
        assert received.end["completeness"] == "partial"
        assert 0 < received.offset < len(sample.data)
        rest = service.post(f"{SELT}&after={received.token}", sample.data[received.offset :])
        assert received.tables["selt"] + rest.body == sample.rows


def test_duplex_ndjson_ends_with_a_token_to_go_on_from(
    service: Service, drained: Drained, big_events: Sample
) -> None:
    *lines, last = drained.lines
    end = last["end"]
    assert end["reason"] == "drain"
    places = [number for number, line in enumerate(lines) if "checkpoint" in line]
    assert lines[places[-1]]["checkpoint"]["offset"] == end["offset"]
    rest = service.post(f"{SELT}&after={end['token']}", big_events.data[end["offset"] :])
    # Rows behind the last checkpoint are of an event that is not whole: they come again.
    rows = places[-1] + 1 - len(places)
    assert big_events.rows[20 * rows :] == rest.body


def test_a_post_answered_after_its_body_is_told_to_come_again(drained: Drained) -> None:
    answer = drained.refused
    assert answer.status == 503
    assert answer.json()["code"] == "draining"
    assert "retry-after" in answer.headers


def test_the_client_goes_on_elsewhere_with_each_row_once(
    service: Service, start: Starter, big_events: Sample
) -> None:
    server = start("--drain-seconds=1.2")

    def stream() -> Iterator[bytes]:
        part = len(big_events.data) * 5 // 8
        sent = 0
        for piece in in_pieces(big_events.data[:part], 8):
            yield piece
            sent += len(piece)
            assert until(functools.partial(has_read, server, sent), 30)
        server.term()
        proxy.targets[:] = [service.port]
        assert server.end(10) == 0
        yield big_events.data[part:]

    with FaultProxy([server.port]) as proxy, Client(proxy.url) as client:
        got = [rows.tobytes() for rows in client.losses.post("selt", stream(), mode="duplex")]
    assert b"".join(got) == big_events.rows


# -- several processes ---------------------------------------------------------------

PROCESSES = 7
"""Two for long work, front, quick, the acceptor, the template and its spare."""
RUNNING = "thalweg_requests_running"


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with two processes for posts, which the last test here ends."""
    server = Service(tmp_path_factory.mktemp("crew"), "--workers=2", "--drain-seconds=30")
    try:
        assert until(lambda: len(server.worker_pids()) == PROCESSES, 30)
        yield server
        if server.process.poll() is None:
            server.term()
        assert server.end() == 0
        assert not server.failures()
    finally:
        server.kill()


def begin_half(server: Service, connection: Connection, small: Sample) -> int:
    """Post half a stream; return the pid of the process that reads it."""
    before = server.metrics()["thalweg_body_bytes_total"]
    connection.begin("POST", SELT, size=len(small.data))
    connection.send(small.data[:9000])
    assert until(functools.partial(has_read, server, before + 9000), 30)
    return server.lane_of(connection)


def end_half(connection: Connection, small: Sample) -> None:
    connection.send(small.data[9000:])
    assert connection.answer().body == small.rows


def test_processes_take_each_others_tokens_and_add_up_their_metrics(
    crew: Service, small: Sample
) -> None:
    before = crew.metrics()
    with contextlib.ExitStack() as stack:
        one, two, three, four = (stack.enter_context(crew.connect()) for _ in range(4))
        # Each post is given to the process that has less to do.
        first = begin_half(crew, one, small)
        part = two.request("POST", SELT, small.data[:9000], "Upload-Complete: ?0")
        second = crew.lane_of(two)
        assert 0 not in {first, second}
        assert first != second
        assert until(lambda: crew.metrics()[RUNNING] == 2, 30)
        assert begin_half(crew, three, small) == second
        end_half(one, small)
        assert until(lambda: crew.metrics()[RUNNING] == 2, 30)
        token, offset = part.headers["thalweg-token"], int(part.headers["thalweg-offset"])
        rest = four.request("POST", f"{SELT}&after={token}", small.data[offset:])
        assert crew.lane_of(four) == first
        assert part.body + rest.body == small.rows
        end_half(three, small)
    assert until(lambda: crew.metrics()[RUNNING] == 1, 30)
    metrics = crew.metrics()
    total = "thalweg_body_bytes_total"
    sent = 2 * len(small.data) + 9000 + len(small.data) - offset
    assert metrics[total] - before[total] == sent
    assert metrics["thalweg_buffers_used"] == 0
    assert posts(metrics) - posts(before) == 4


def posts(metrics: dict[str, float]) -> float:
    names = [n for n in metrics if n.startswith("thalweg_requests_total") and "POST" in n]
    return sum(metrics[name] for name in names)


def test_one_process_answers_for_all(crew: Service, small: Sample) -> None:
    assert until(lambda: crew.get("/readyz").status == 200, 30)
    with crew.connect() as connection:
        chosen = begin_half(crew, connection, small)
        end_half(connection, small)

    def reasons() -> list[str]:
        answer: dict[str, list[str]] = crew.get("/readyz").json()
        return answer.get("reasons", [])

    os.kill(chosen, signal.SIGSTOP)
    try:
        assert until(lambda: any("stood still" in reason for reason in reasons()), 20, 0.3)
        assert crew.get("/healthz").status == 200
    finally:
        os.kill(chosen, signal.SIGCONT)
    assert until(lambda: crew.get("/readyz").status == 200, 30)


def test_a_killed_process_is_replaced_and_no_longer_counted(crew: Service, small: Sample) -> None:
    others = set(crew.worker_pids())
    crew.expected_failures.append('"reason": "SIGKILL"')
    with crew.connect() as lost:
        killed = begin_half(crew, lost, small)
        assert crew.metrics()[RUNNING] == 2
        others.remove(killed)
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(ConnectionError):
            lost.answer()
    assert until(lambda: len({*crew.worker_pids()} - {killed}) == PROCESSES, 60)
    assert until(lambda: 'thalweg_worker_ends_total{reason="SIGKILL"}' in crew.metrics(), 30)
    assert crew.metrics()['thalweg_worker_ends_total{reason="SIGKILL"}'] == 1
    assert others < set(crew.worker_pids())
    assert crew.post(SELT, small.data).body == small.rows
    assert until(lambda: crew.metrics()[RUNNING] == 1, 2)


def test_draining_processes_finish_what_runs_and_refuse_connections(
    crew: Service, small: Sample
) -> None:
    before = crew.metrics()["thalweg_body_bytes_total"]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(crew.connect()) for _ in range(8)]
        for connection in connections:
            connection.begin("POST", SELT, size=len(small.data))
            connection.send(small.data[:9000])
        assert until(functools.partial(has_read, crew, before + 8 * 9000), 30)
        crew.term()
        assert until(lambda: refuses(crew), 15), "new connections are still taken"

        def finish(connection: Connection) -> bytes:
            connection.send(small.data[9000:])
            return connection.answer().body

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(finish, connections)) == [small.rows] * 8
    assert crew.end(10) == 0
