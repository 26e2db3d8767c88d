"""Clients that read nothing, send nothing, or leave: nobody else notices, nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from isal import isal_zlib

from core.losses.analysis import aggregate
from tests.e2e.samples import large_stream, twenty_thousand_bytes
from tests.e2e.service import Alive, Answer, Connection, ObservedService, Service, until
from tests.frames import FrameReader, Received
from tests.scale import SOAK

WRITE_SECONDS = 0.8
IDLE_SECONDS = 0.4
ABUSES = 5000 if SOAK else 160
MIB = 1 << 20
LANES = 3
STEADY = 24 * MIB
"""Growth of memory in a quarter of the abuses that is none."""
SELT = "/v1/losses/selt?format=bin"
FRAMES = "/v1/losses/selt?format=frames&duplex=true"


class Sample(NamedTuple):
    data: bytes
    rows: bytes
    """Its selt table, as the engine makes it."""


def make_sample(data: bytes) -> Sample:
    return Sample(data, aggregate(data, ["selt"])["selt"].tobytes())


@pytest.fixture(scope="module")
def small() -> Sample:
    return make_sample(twenty_thousand_bytes())


@pytest.fixture(scope="module")
def medium() -> Sample:
    return make_sample(large_stream(2))


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedService]:
    """A server that waits for nobody long, and keeps few rows in memory."""
    server = ObservedService(
        tmp_path_factory.mktemp("impatient"),
        "--threads=2",
        write_seconds=WRITE_SECONDS,
        idle_seconds=IDLE_SECONDS,
        header_seconds=IDLE_SECONDS,
        keep_alive_seconds=IDLE_SECONDS,
        spool_memory=65536,
    )
    try:
        yield server
        assert server.stop() == 0
        assert not server.failures()
    finally:
        server.kill()


def spool_files(server: Service) -> list[str]:
    return [path for path in server.open_files() if "/spool/" in path]


def running(server: Service) -> int:
    """Requests besides the one that asks."""
    return int(server.metrics()["thalweg_requests_running"]) - 1


# -- clients that do not read --------------------------------------------------------


@pytest.mark.parametrize("duplex", [False, True], ids=["default", "duplex"])
def test_a_client_that_never_reads_stalls_nobody_and_is_cut(
    impatient: ObservedService, small: Sample, duplex: bool
) -> None:
    data = large_stream(16)
    times = []
    with impatient.connect(room=4096) as idle:
        idle.begin("POST", SELT + ("&duplex=true" if duplex else ""), size=len(data))
        with idle.sending(lambda: idle.send(data)):
            assert until(lambda: running(impatient) == 1, 10)
            begin = time.monotonic()
            on_disk: list[str] = []
            while running(impatient):
                start = time.monotonic()
                assert impatient.get("/healthz").status == 200
                assert impatient.post(SELT, small.data).body == small.rows
                times.append(time.monotonic() - start)
                # The last sight of it: some filesystems give it a name for a moment.
                on_disk = spool_files(impatient) or on_disk
            seconds = time.monotonic() - begin
        with pytest.raises(ConnectionError):
            idle.answer()
    # Who were stalled would wait for as long as the client is not cut.
    assert len(times) > 2
    assert min(times) < WRITE_SECONDS / 2
    # The upload takes its part of it, on a busy machine for seconds.
    assert 0.9 * WRITE_SECONDS < seconds < 15 * WRITE_SECONDS
    # Its rows waited in a file without a name, which is gone.
    assert on_disk
    assert all(path.endswith("(deleted)") for path in on_disk)
    assert until(lambda: not spool_files(impatient), 5)
    assert not list((impatient.data_dir / "spool").iterdir())


def test_a_slow_reader_gets_everything(impatient: ObservedService, medium: Sample) -> None:
    got = b""
    with impatient.connect(room=4096) as slow:
        slow.begin("POST", SELT, size=len(medium.data))
        slow.send(medium.data)
        head = slow.read_head()
        begin = time.monotonic()
        for piece in slow.pieces():
            got += piece
            if time.monotonic() - begin < 2.5 * WRITE_SECONDS:
                time.sleep(WRITE_SECONDS / 4)
    assert head.status == 200
    assert got == medium.rows


# -- clients that stop sending -------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_a_body_that_stops_is_a_problem_with_a_token(
    impatient: ObservedService, small: Sample, chunked: bool
) -> None:
    def stop_after(sent: int) -> None:
        with impatient.connect() as connection:
            connection.begin("POST", SELT, size=None if chunked else len(small.data))
            if sent:
                part = small.data[:sent]
                (connection.send_chunk if chunked else connection.send)(part)
            problem = stalled(connection.answer())
        assert problem["resume_offset"] == 0
        again = impatient.post(f"{SELT}&after={problem['token']}", small.data)
        assert again.body == small.rows

    # In nothing, the header, an event, a block.
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(stop_after, (0, 7, 5000, 10_000)))) == 4


def stalled(answer: Answer) -> dict[str, object]:
    assert answer.status == 408
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert problem["code"] == "stalled"
    return problem


def test_a_second_part_that_stops_names_its_own_beginning(
    impatient: ObservedService, small: Sample
) -> None:
    first = impatient.post(SELT, small.data[:9000], "Upload-Complete: ?0")
    token, offset = first.headers["thalweg-token"], int(first.headers["thalweg-offset"])
    rest = small.data[offset:]
    with impatient.connect() as connection:
        connection.begin("POST", f"{SELT}&after={token}", size=len(rest))
        connection.send(rest[:5000])
        problem = stalled(connection.answer())
    assert problem["resume_offset"] == offset
    last = impatient.post(f"{SELT}&after={problem['token']}", rest)
    assert first.body + last.body == small.rows


def test_duplex_frames_that_stop_end_with_an_error_to_go_on_from(
    impatient: ObservedService, small: Sample
) -> None:
    reader, received = FrameReader(), Received()
    with impatient.connect() as connection:
        connection.begin("POST", FRAMES)
        connection.send_chunk(small.data[:12_345])
        for frame in reader.feed(connection.answer().body):
            received.take(frame)
    reader.close()
    assert received.problem is not None
    assert received.problem["code"] == "stalled"
    assert 12_000 < received.offset <= 12_345
    rest = impatient.post(f"{SELT}&after={received.token}", small.data[received.offset :])
    assert received.tables["selt"] + rest.body == small.rows


def test_duplex_ndjson_that_stops_ends_with_an_error_to_go_on_from(
    impatient: ObservedService, small: Sample
) -> None:
    with impatient.connect() as connection:
        connection.begin("POST", "/v1/losses/selt?format=ndjson&duplex=true")
        connection.send_chunk(small.data[:12_345])
        lines = [json.loads(line) for line in connection.answer().body.splitlines()]
    error = lines.pop()
    assert error["error"]["code"] == "stalled"
    # Rows behind the last checkpoint are of an event that is not whole: they come again.
    places = [number for number, line in enumerate(lines) if "checkpoint" in line]
    assert lines[places[-1]]["checkpoint"]["offset"] == error["offset"]
    rows = places[-1] + 1 - len(places)
    rest = impatient.post(f"{SELT}&after={error['token']}", small.data[error["offset"] :])
    assert small.rows[20 * rows :] == rest.body


@pytest.mark.parametrize("form", ["csv", "bin", "arrow", "parquet"])
def test_duplex_tables_that_stop_cannot_be_taken_for_whole(
    impatient: ObservedService, medium: Sample, form: str
) -> None:
    with impatient.connect() as connection:
        connection.begin("POST", f"/v1/losses/selt?format={form}&duplex=true")
        connection.send_chunk(medium.data[: MIB + 5])
        assert connection.read_head().status == 200
        with pytest.raises(ConnectionError):
            list(connection.pieces())


def test_half_a_head_is_answered_with_408(impatient: ObservedService) -> None:
    with impatient.connect() as connection:
        connection.send(b"POST /v1/losses/selt HTTP/1.1\r\nHost: x\r\nContent-")
        assert connection.answer().status == 408


# -- clients that leave --------------------------------------------------------------

Phase = Callable[[Connection, Sample, Sample], None]


def half_a_head(connection: Connection, _small: Sample, _medium: Sample) -> None:
    connection.send(b"POST /v1/losses/selt HTTP/1.1\r\nHos")


def long_head(connection: Connection, _small: Sample, _medium: Sample) -> None:
    connection.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)


def only_a_head(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", SELT, size=len(medium.data))


def wait_for_100(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", SELT, "Expect: 100-continue", size=len(medium.data))
    connection._receive()


def half_a_body(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", SELT, size=len(medium.data))
    connection.send(medium.data[:MIB])


def half_a_chunk_size(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT)
    connection.send_chunk(small.data[:1000])
    connection.send(b"4")


def half_a_chunk(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT)
    connection.send(b"4000\r\n" + small.data[:1000])


def broken_chunks(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT)
    connection.send_chunk(small.data[:1000])
    connection.send(b"zz\r\n")


def no_loss_stream(connection: Connection, _small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT, size=100_000)
    connection.send(b"\xff" * 50_000)


def half_of_gzip(connection: Connection, _small: Sample, medium: Sample) -> None:
    body = isal_zlib.compress(medium.data[:MIB], 1, wbits=31)
    connection.begin("POST", SELT, "Content-Encoding: gzip", size=len(body))
    connection.send(body[: len(body) // 2])


def broken_gzip(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT, "Content-Encoding: gzip", size=len(small.data))
    connection.send(small.data)


def half_a_part(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT, "Upload-Complete: ?0", size=len(small.data))
    connection.send(small.data[:9000])


def half_an_input(connection: Connection, _small: Sample, _medium: Sample) -> None:
    connection.begin("PUT", "/v1/inputs/quantiles", size=1000)
    connection.send(b"quantile\n0.1\n")


def whole_body(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", SELT, size=len(medium.data))
    connection.send(medium.data)


def answer_begun(connection: Connection, _small: Sample, medium: Sample) -> None:
    whole_body(connection, _small, medium)
    assert connection.read_head().status == 200
    next(connection.pieces())


def compressed_answer_begun(connection: Connection, _small: Sample, medium: Sample) -> None:
    headers = ("Accept-Encoding: zstd",)
    connection.begin("POST", "/v1/losses/selt", *headers, size=len(medium.data))
    connection.send(medium.data)
    assert connection.read_head().status == 200


def duplex_rows_read(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", FRAMES, size=len(medium.data))
    connection.send(medium.data[:MIB])
    assert connection.read_head().status == 200
    next(connection.pieces())


def duplex_rows_unread(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", FRAMES, size=len(medium.data))
    connection.send(medium.data)


def duplex_stalls(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", FRAMES)
    connection.send_chunk(small.data[:9000])
    connection.answer()


def default_stalls(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.begin("POST", SELT, size=len(small.data))
    connection.send(small.data[:9000])
    stalled(connection.answer())


def forged_token(connection: Connection, _small: Sample, medium: Sample) -> None:
    connection.begin("POST", f"{SELT}&after={'A' * 80}", size=len(medium.data))
    connection.send(medium.data[:MIB])


def pipelined(connection: Connection, small: Sample, _medium: Sample) -> None:
    for _ in range(3):
        connection.begin("POST", SELT, size=len(small.data))
        connection.send(small.data)
    connection.answer()


def nonsense(connection: Connection, small: Sample, _medium: Sample) -> None:
    connection.send(b"\x16\x03\x01" + small.data[:500] + b"\r\n\r\n")


def nothing(_connection: Connection, _small: Sample, _medium: Sample) -> None:
    """Only connect."""


PHASES: tuple[Phase, ...] = (
    nothing,
    nonsense,
    half_a_head,
    long_head,
    only_a_head,
    wait_for_100,
    half_a_body,
    half_a_chunk_size,
    half_a_chunk,
    broken_chunks,
    no_loss_stream,
    half_of_gzip,
    broken_gzip,
    half_a_part,
    half_an_input,
    whole_body,
    answer_begun,
    compressed_answer_begun,
    duplex_rows_read,
    duplex_rows_unread,
    duplex_stalls,
    default_stalls,
    forged_token,
    pipelined,
)


def abuse(server: Service, small: Sample, medium: Sample, number: int) -> None:
    """Behave badly in one way; every way of leaving is combined with every phase."""
    rng = np.random.default_rng(number)
    phase = PHASES[number % len(PHASES)]
    with server.connect(room=65536) as connection:
        # Being refused, or cut, on the way is what some of them ask for.
        with contextlib.suppress(ConnectionError):
            phase(connection, small, medium)
        time.sleep(float(rng.choice([0, 0, 0.01, 0.1])))
        way = number // len(PHASES) % 3
        if way == 0:
            connection.reset()
        elif way == 1:
            connection.stop_sending()
            with contextlib.suppress(ConnectionError, ValueError, IndexError):
                connection.answer()


def is_quiet(server: Service) -> bool:
    metrics = server.metrics()
    return (metrics["thalweg_requests_running"], metrics["thalweg_buffers_used"]) == (1, 0)


def settle(server: ObservedService) -> Alive:
    """Wait until nobody is connected and no thread works; what is alive then."""
    found = []

    def is_settled() -> bool:
        if not is_quiet(server):
            return False
        found.append(server.alive())
        # A thread delivers the result of a call just before it lets go of the call.
        return not any(name.endswith(("Protocol", "_Call")) for name in found[-1].objects)

    assert until(is_settled, 20), (server.metrics(), found[-1:])
    return found[-1]


def holdings(server: Service, alive: Alive) -> Counter[str]:
    """What a server holds: files, threads, tasks and objects, by name."""
    # A number names each socket.
    files = (path.partition(":")[0] for path in server.open_files())
    held = Counter([*files, *server.threads(), *alive.tasks]) + alive.objects
    # Each code of a problem, and there are few, has a counter from its first one on.
    del held["CountUp"]
    # Each process remembers the owner, for each limit, from the first time on.
    del held["_Row"]
    # Each thread that waits has one, and threads are counted. Those of the first threads are not
    # seen, as collections pass over them: when others take their place, there seem to be more.
    del held["_Idler"]
    assert alive.pooled <= LANES * ((os.cpu_count() or 1) + 4)
    held["python"] -= alive.pooled
    return held


def test_every_way_of_leaving_leaves_nothing_behind(
    impatient: ObservedService, small: Sample, medium: Sample, record_property: Callable[..., None]
) -> None:
    def abuse_many(numbers: range) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda number: abuse(impatient, small, medium, number), numbers))

    # Until each process has met what it opens, starts or remembers once.
    numbers = range(ABUSES // 4)
    abuse_many(numbers)
    # The first pass of the sweeper opens something, and the first question leaves something.
    assert until(lambda: impatient.metrics()["thalweg_sweeps_total"] >= 1, 60)
    settle(impatient)
    alive = settle(impatient)
    before = holdings(impatient, alive)
    resident = [impatient.memory()]
    # What the most clients at once needed stays with the process, for the next ones: its
    # memory has to cease growing.
    while len(resident) <= 4 or resident[-1] - resident[-2] > STEADY:
        assert len(resident) <= 16, [f"{size / MIB:.0f} MiB" for size in resident]
        numbers = range(numbers.stop, numbers.stop + len(numbers))
        abuse_many(numbers)
        assert until(lambda: is_quiet(impatient), 20)
        resident.append(impatient.memory())
    assert impatient.get("/healthz").status == 200
    # A probe of its own readiness, say, may just be running.
    left = []

    def is_clean() -> bool:
        left.append(holdings(impatient, settle(impatient)) - before)
        return not left[-1]

    assert until(is_clean, 20), left[-1]
    alive_after = settle(impatient)
    assert alive_after.total - alive.total < ABUSES
    assert not spool_files(impatient)
    sizes = ", ".join(f"{size / MIB:.0f}" for size in resident)
    record_property("resident_mib", sizes)
    print(f"{numbers.stop} abuses, MiB resident: {sizes}")
    for sample in (small, medium):
        assert impatient.post(SELT, sample.data).body == sample.rows
