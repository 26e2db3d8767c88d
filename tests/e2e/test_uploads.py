"""Durable uploads to the service as users run it, by its own client and by those of others."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import subprocess
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from app.client import Client, ProblemError
from core.losses.samples import SampleSpec, generate_stream
from tests.client.running import cutting
from tests.e2e.service import KEY, Service
from tests.interop.__main__ import table
from tests.interop.ietf import IETF
from tests.interop.suite import Requirement, Server, loss_stream, run
from tests.interop.tus import TUS
from tests.scale import examples

STREAM = b"".join(generate_stream(SampleSpec(events=2_000, summaries=4, samples=40)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server that knows its address, as some clients of tus need absolute Locations."""
    server = Service(tmp_path_factory.mktemp("uploads"), token_keys=KEY)
    try:
        server.stop()
        server.set(public_url=server.url)
        server.start()
        yield server
        assert server.stop() == 0
        assert not server.failures()
    finally:
        server.kill()


@pytest.fixture
def client(server: Service) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def streams(server: Service, client: Client) -> str:
    """Where the streams of a new run are created."""
    return f"{server.url}/v1/runs/{client.runs.create('gul', ['melt']).id}/streams"


def stored(client: Client, streams: str) -> dict[int, tuple[int, bool]]:
    found = client.runs.streams(streams.split("/")[-2])
    return {stream.partition: (stream.offset, stream.complete) for stream in found}


@pytest.mark.parametrize("requirements", [TUS, IETF], ids=["tus", "ietf"])
def test_every_requirement_of_the_protocols_is_met(
    streams: str, requirements: tuple[Requirement, ...]
) -> None:
    results = run(requirements, Server(streams, {}, loss_stream(), itertools.count(1)))
    broken = [r.requirement for r in results if r.outcome == "broken"]
    assert not broken, table(results)
    assert sum(r.outcome == "absent" for r in results) <= 1  # concatenation


def test_our_client_through_cuts(server: Service, client: Client, tmp_path: Path) -> None:
    run = client.runs.create("gul", ["melt"], partitions=2)
    (tmp_path / "stream").write_bytes(STREAM)
    with (
        cutting(server, 3, examples(6), len(STREAM), ("up", "up", "down")) as proxy,
        Client(proxy.url, retries=30) as cut,
    ):
        sources: list[Any] = [tmp_path / "stream", iter([STREAM[:100], STREAM[100:]])]
        for partition, source in enumerate(sources, 1):
            done = cut.runs.upload(run, source, partition=partition)
            assert done.bytes == len(STREAM)
    found = client.runs.streams(run)
    assert [(s.partition, s.offset, s.complete, s.events) for s in found] == [
        (1, len(STREAM), True, 2_000),
        (2, len(STREAM), True, 2_000),
    ]
    assert client.runs.status(run).state == "uploading"


def test_our_client_names_the_fault_of_a_stream(client: Client) -> None:
    run = client.runs.create("gul", ["melt"])
    broken = STREAM[:100_000] + STREAM[100_001:]
    with pytest.raises(ProblemError) as caught:
        client.runs.upload(run, broken)
    assert caught.value.offset is not None
    (stream,) = client.runs.streams(run)
    assert (stream.state, stream.fault is None) == ("failed", False)
    client.runs.delete_stream(run, stream.id)
    assert client.runs.upload(run, STREAM).bytes == len(STREAM)
    client.runs.delete(run)
    with pytest.raises(ProblemError, match=r"not-found|unknown"):
        client.runs.status(run)


def test_plain_curl(client: Client, streams: str, tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(STREAM[:50_000])
    (tmp_path / "rest").write_bytes(STREAM[50_000:])

    def curl(*args: str) -> str:
        command = ["curl", "-sS", "--fail-with-body", "-D", "-", "-o", "/dev/null", *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)
        return done.stdout.decode()

    head = curl("-T", "first", "-X", "POST", "-H", "Upload-Complete: ?0", f"{streams}?partition=4")
    (location,) = (s.split()[1] for s in head.splitlines() if s.lower().startswith("location:"))
    assert "upload-offset: 50000" in curl("-I", location).lower()
    append = ("-H", "Content-Type: application/partial-upload", "-H", "Upload-Offset: 50000")
    curl("-T", "rest", "-X", "PATCH", "-H", "Upload-Complete: ?1", *append, location)
    assert stored(client, streams) == {4: (len(STREAM), True)}


def test_tuspy(client: Client, streams: str) -> None:
    peer: Any = pytest.importorskip("tusclient.client")
    uploader = peer.TusClient(streams).uploader(
        file_stream=BytesIO(STREAM), chunk_size=40_000, upload_checksum=True
    )
    uploader.upload_chunk()
    again = peer.TusClient(streams).uploader(
        file_stream=BytesIO(STREAM), chunk_size=40_000, url=uploader.url
    )
    assert again.get_offset() == 40_000
    again.upload()
    assert stored(client, streams) == {1: (len(STREAM), True)}


def test_aiotus(client: Client, streams: str) -> None:
    pytest.importorskip("aiotus")
    peer: Any = importlib.import_module("aiotus")
    location = asyncio.run(
        peer.upload(streams, BytesIO(STREAM), {"partition": b"7"}, chunksize=100_000)
    )
    assert location is not None
    assert stored(client, streams) == {7: (len(STREAM), True)}
