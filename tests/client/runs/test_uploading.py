"""Uploads that end whole however often they are cut, with either client."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import (
    Client,
    ConnectionFailed,
    Part,
    ProblemError,
    ProducerFailed,
    SourceError,
    StateError,
    Uploading,
)
from app.client.runs import async_upload, upload, uploading

from ..conftest import Connect
from ..fakes.clock import FakeClock
from ..fakes.exchange import Fault
from ..fakes.faces import leftovers
from ..fakes.runs import RUN, Stored
from ..fakes.service import FakeService

DATA = np.random.default_rng(1).bytes(300_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stream.bin"
    path.write_bytes(DATA)
    return path


def pieces(size: int = 7_000) -> Iterator[bytes]:
    for at in range(0, len(DATA), size):
        yield DATA[at : at + size]


def stored(service: FakeService, partition: int = 1) -> bytes:
    stream = service.run.streams[f"s{partition}"]
    assert stream.complete
    return bytes(stream.data)


@pytest.mark.parametrize("commit", [0, 20_000])
def test_files_pipes_and_memory_arrive_whole(
    service: FakeService, client: Client, file: Path, commit: int
) -> None:
    service.run.commit = commit
    sources: list[Any] = [file, DATA, pieces()]
    for partition, source in enumerate(sources, 1):
        seen: list[Uploading] = []
        done = client.runs.upload(RUN, source, partition=partition, progress=seen.append)
        assert (done.partition, done.bytes, done.sent) == (partition, len(DATA), len(DATA))
        assert stored(service, partition) == DATA
        assert [p.bytes for p in seen] == sorted(p.bytes for p in seen)
        assert seen[-1].bytes == len(DATA)
        assert any(0 < p.bytes < len(DATA) for p in seen) == bool(commit)


def test_a_cut_costs_what_was_not_stored(service: FakeService, client: Client, file: Path) -> None:
    cuts = [1, 50_000, 100_000, 1, 90_000]
    service.script[:] = [Fault(stop_reading=n) for n in cuts]
    done = client.runs.upload(RUN, file)
    assert stored(service) == DATA
    # Bytes on their way at a cut are sent again; the service counts those that it has read.
    assert service.run.received == len(DATA) <= done.sent
    methods = [seen.method for seen in service.seen if seen.path.endswith("/s1")]
    assert methods == ["PATCH"] + ["HEAD", "PATCH"] * len(cuts)


def test_a_cut_pipe_is_not_read_again(service: FakeService, connect: Connect) -> None:
    service.run.commit = 10_000
    service.script[:] = [Fault(stop_reading=n) for n in (1, 30_000, 30_000, 80_000)]
    connect(service).runs.upload(RUN, pieces())
    assert stored(service) == DATA


def test_a_lost_answer_is_no_loss(service: FakeService, client: Client, file: Path) -> None:
    service.script[:] = [Fault(cut=0)]
    client.runs.upload(RUN, file)
    assert service.run.received == len(DATA)
    service.script[:] = [Fault(cut=10), Fault(cut=10)]
    client.runs.upload(RUN, pieces(), partition=2)
    assert stored(service, 2) == DATA


def test_a_full_window_ends_an_append(
    service: FakeService, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading.Acknowledged.__init__, "__defaults__", (50_000,))
    client.runs.upload(RUN, pieces())
    sizes = [seen.size for seen in service.seen if seen.method == "PATCH"]
    assert stored(service) == DATA
    assert len(sizes) == 7
    assert max(sizes) < 50_000 + 7_000


def test_commits_make_room_for_more(
    service: FakeService, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading.Acknowledged.__init__, "__defaults__", (50_000,))
    service.run.commit = 5_000
    client.runs.upload(RUN, pieces(60_000))
    client.runs.upload(RUN, pieces(20_000), partition=2)
    assert stored(service) == stored(service, 2) == DATA
    sizes = [s.size for s in service.seen if s.path.endswith("/s2") and s.method == "PATCH"]
    assert max(sizes) > 100_000  # one append, though more than the window holds


def test_appends_are_not_larger_than_the_service_allows(
    service: FakeService, client: Client, file: Path
) -> None:
    service.run.limit = 40_000
    client.runs.upload(RUN, file)
    assert stored(service) == DATA


def test_appends_that_a_proxy_refuses_are_shorter(
    service: FakeService, client: Client, file: Path
) -> None:
    allowed = {"limit": "append", "allowed": 30_000}
    service.script[:] = [Fault(status=413, early=True, problem=allowed)]
    client.runs.upload(RUN, file)
    assert stored(service) == DATA
    sizes = [s.size for s in service.seen if s.method == "PATCH"]
    assert max(sizes[1:]) == 30_000


def test_first_appends_are_small_until_commits_are_announced(
    service: FakeService, client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (async_upload, upload):
        monkeypatch.setattr(module, "PART_SIZE", 100_000)
    client.runs.upload(RUN, file)
    assert len([s for s in service.seen if s.method == "PATCH"]) == 3
    service.run.commit = 20_000
    client.runs.upload(RUN, file, partition=2)
    sizes = [s.size for s in service.seen if s.path.endswith("/s2") and s.method == "PATCH"]
    assert sizes == [100_000, 200_000]


def test_another_process_goes_on(
    service: FakeService, connect: Connect, file: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    hasty = connect(service, retries=0)
    sources: list[Callable[[], Any]] = [lambda: file, pieces]
    for partition, source in enumerate(sources, 1):
        service.run.received = 0
        service.run.commit = 10_000
        service.script[:] = [Fault(stop_reading=150_000)]
        with pytest.raises(ConnectionFailed):
            hasty.runs.upload(RUN, source(), partition=partition, state=state)
        with pytest.raises(StateError, match="another upload"):
            hasty.runs.upload("r2", source(), partition=partition, state=state)
        hasty.runs.upload(RUN, source(), partition=partition, state=state)
        assert stored(service, partition) == DATA
        assert service.run.received == len(DATA)
        assert leftovers(tmp_path) == ["stream.bin"]


def test_another_stream_is_not_mixed_in(
    service: FakeService, connect: Connect, file: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    hasty = connect(service, retries=0)
    service.script[:] = [Fault(stop_reading=150_000)]
    with pytest.raises(ConnectionFailed):
        hasty.runs.upload(RUN, file, state=state)
    file.write_bytes(DATA[::-1])
    with pytest.raises(StateError, match="has changed"):
        hasty.runs.upload(RUN, file, state=state)
    service.run.commit = 10_000
    service.script[:] = [Fault(stop_reading=150_000)]
    with pytest.raises(ConnectionFailed):
        hasty.runs.upload(RUN, pieces(), partition=2, state=tmp_path / "state2")
    with pytest.raises(SourceError, match="differ"):
        hasty.runs.upload(RUN, iter([DATA[::-1]]), partition=2, state=tmp_path / "state2")


def test_states_that_are_none(client: Client, file: Path, tmp_path: Path) -> None:
    for text in ("{", "[]", '{"thalweg_upload_state": 9}', '{"thalweg_upload_state": 1}'):
        (tmp_path / "state").write_text(text)
        with pytest.raises(StateError):
            client.runs.upload(RUN, file, state=tmp_path / "state")


def test_a_producer_that_fails_leaves_its_stream_incomplete(
    service: FakeService, client: Client
) -> None:
    script = "import os; os.write(1, bytes(100_000)); os._exit(3)"
    with pytest.raises(ProducerFailed, match="exit code 3"):
        client.runs.upload(RUN, exec=[sys.executable, "-S", "-c", script])
    assert not service.run.streams["s1"].complete
    client.runs.upload(RUN, exec=["printf", "abc"], partition=2)
    assert stored(service, 2) == b"abc"


def test_a_silent_source_holds_no_connection(
    service: FakeService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "_SILENCE_SECONDS", 0.01)
    reading, writing = os.pipe()
    os.write(writing, b"first")

    def next_word(progress: Uploading) -> None:
        if progress.bytes == 5:
            os.write(writing, b"second")
        elif progress.bytes == 11:
            os.close(writing)

    connect(service).runs.upload(RUN, reading, progress=next_word)
    os.close(reading)
    assert stored(service) == b"firstsecond"
    assert [s.size for s in service.seen if s.method == "PATCH"] == [5, 6, 0]


def test_a_partition_that_is_taken_is_refused(client: Client, file: Path) -> None:
    client.runs.upload(RUN, b"else", partition=2)
    client.runs.upload(RUN, b"else", partition=3)
    with pytest.raises(ProblemError, match="partition-exists"):
        client.runs.upload(RUN, file, partition=3)


@pytest.mark.parametrize("size", [5, 4 << 20, (4 << 20) + 5])
def test_what_is_stored_already_is_not_sent_again(
    service: FakeService, client: Client, tmp_path: Path, size: int
) -> None:
    data = bytes(size - 1) + b"x"
    (tmp_path / "again").write_bytes(data)
    first = client.runs.upload(RUN, data)
    for source in (data, tmp_path / "again"):
        again = client.runs.upload(RUN, source, state=tmp_path / "state")
        assert (again.stream, again.bytes, again.sent) == (first.stream, size, 0)
        assert not (tmp_path / "state").exists()
    for other in (data[::-1], data + b"x", iter([data])):
        with pytest.raises(ProblemError, match="partition-exists"):
            client.runs.upload(RUN, other)
    assert service.run.received == size


def test_several_are_uploaded_by_the_call_itself(client: Client, service: FakeService) -> None:
    parts = [Part(1, DATA), Part(2, exec=["false"]), Part(3, iter([DATA]))]
    seen: list[Any] = []
    results = client.runs.upload_all(
        RUN, parts, ended=lambda part, result: seen.append((part, result))
    )
    assert [part for part, _ in results] == parts
    assert [type(result).__name__ for _, result in results] == [
        "Uploaded",
        "ProducerFailed",
        "Uploaded",
    ]
    assert stored(service) == stored(service, 3) == DATA
    assert seen == list(results)


def test_a_creation_whose_answer_was_lost_is_found_again(
    service: FakeService, client: Client, file: Path
) -> None:
    client.runs.upload(RUN, b"else", partition=1)
    service.run.streams["s2"] = Stored(2, None)
    client.runs.upload(RUN, file, partition=2)
    assert stored(service, 2) == DATA


def test_refusals_are_raised(service: FakeService, client: Client, file: Path) -> None:
    service.script[:] = [Fault(status=409, early=True, problem={"code": "stream-failed"})] * 20
    with pytest.raises(ProblemError, match="stream-failed"):
        client.runs.upload(RUN, file)
    service.script[:] = []
    with pytest.raises(ProblemError, match="not-found"):
        client.runs.upload("r9", file)


def test_a_busy_service_is_waited_for(
    service: FakeService, client: Client, file: Path, clock: FakeClock
) -> None:
    service.script[:] = [Fault(status=503, early=True, headers={"Retry-After": "7"})]
    client.runs.upload(RUN, file)
    assert stored(service) == DATA
    assert 7.0 in clock.pauses


def test_states_are_json(service: FakeService, connect: Connect, tmp_path: Path) -> None:
    service.run.commit = 10_000
    service.script[:] = [Fault(stop_reading=150_000)]
    with pytest.raises(ConnectionFailed):
        connect(service, retries=0).runs.upload(RUN, pieces(), state=tmp_path / "state")
    state = json.loads((tmp_path / "state").read_bytes())
    assert (state["run"], state["partition"], state["stream"]) == (RUN, 1, "s1")
    assert 0 < state["offset"] <= 150_000
