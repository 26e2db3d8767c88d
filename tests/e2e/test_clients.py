"""Clients that people have, each in the modes it can do: exact bytes, rows in time."""

from __future__ import annotations

import asyncio
import http.client
import io
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import httpx
import pytest
import requests

from tests.e2e import samples
from tests.e2e.service import Service, aggregate, in_pieces
from tests.frames import FrameReader, Received
from tests.server_process import HOST

SECONDS = 30.0
"""After which a client that waits for rows in vain has failed."""
CSV = "/v1/losses/melt?format=csv"
LIVE = CSV + "&duplex=true"


class Sample(NamedTuple):
    path: Path
    data: bytes
    csv: bytes
    """Its melt table, as the command makes it."""

    @property
    def half(self) -> int:
        return len(self.data) // 2


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    directory = tmp_path_factory.mktemp("clients")
    data = samples.large_stream(3)
    table = aggregate(directory, data, "melt")
    path = directory / "stream.bin"
    return Sample(path, data, table)


# -- curl ----------------------------------------------------------------------------

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="there is no curl on this machine")


@needs_curl
def test_curl_puts_a_file(service: Service, sample: Sample) -> None:
    run = subprocess.run(
        ["curl", "-sS", "--fail", "-T", str(sample.path), service.url + CSV],
        capture_output=True,
        check=True,
    )
    assert run.stdout == sample.csv


@needs_curl
def test_curl_posts_a_compressed_file_and_decompresses_the_answer(
    service: Service, sample: Sample
) -> None:
    gzip = subprocess.run(["gzip", "-1c", str(sample.path)], capture_output=True, check=True)
    coding = ["--compressed", "-H", "Content-Encoding: gzip", "--data-binary", "@-"]
    run = subprocess.run(
        ["curl", "-sS", "--fail", *coding, service.url + CSV],
        input=gzip.stdout,
        capture_output=True,
        check=True,
    )
    assert run.stdout == sample.csv


@needs_curl
@pytest.mark.parametrize("source", ["-", "."])
def test_curl_shows_rows_before_the_end_of_a_pipe(
    service: Service, sample: Sample, source: str
) -> None:
    process = subprocess.Popen(
        ["curl", "-sS", "--fail", "-N", "-T", source, "-m", str(SECONDS), service.url + LIVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        come = threading.Event()
        got = bytearray()

        def read() -> None:
            assert process.stdout is not None
            while piece := process.stdout.read1():  # type: ignore[attr-defined]
                got.extend(piece)
                come.set()

        reader = threading.Thread(target=read)
        reader.start()
        pieces = iter(in_pieces(sample.data, 40))
        for piece in pieces:
            process.stdin.write(piece)
            process.stdin.flush()
            # With "-" curl reads its input blocking, and looks for an answer in between.
            if come.wait(0.02):
                break
        assert come.is_set(), "no row came before the end of the body"
        assert sample.csv.startswith(bytes(got))
        for piece in pieces:
            process.stdin.write(piece)
        process.stdin.close()
        reader.join()
    assert process.returncode == 0
    assert bytes(got) == sample.csv


# -- aiohttp -------------------------------------------------------------------------


def test_aiohttp_after_the_body(service: Service, sample: Sample) -> None:
    async def run() -> bytes:
        async with (
            aiohttp.ClientSession(service.url) as session,
            session.post(CSV, data=io.BytesIO(sample.data)) as answer,
        ):
            assert answer.status == 200
            return await answer.read()

    assert asyncio.run(run()) == sample.csv


def test_aiohttp_reads_rows_while_it_sends(service: Service, sample: Sample) -> None:
    async def run() -> bytes:
        come = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield sample.data[: sample.half]
            # What follows is sent only when rows were seen.
            await asyncio.wait_for(come.wait(), SECONDS)
            yield sample.data[sample.half :]

        got = b""
        async with (
            aiohttp.ClientSession(service.url) as session,
            session.post(LIVE, data=body()) as answer,
        ):
            async for piece in answer.content.iter_any():
                got += piece
                come.set()
        return got

    assert asyncio.run(run()) == sample.csv


# -- httpx ---------------------------------------------------------------------------


def test_httpx_after_the_body(service: Service, sample: Sample) -> None:
    with httpx.Client(base_url=service.url) as client:
        sized = client.post(CSV, content=sample.data)
        chunked = client.post(CSV, content=iter(in_pieces(sample.data, 20)))
    for answer in (sized, chunked):
        assert answer.status_code == 200
        assert answer.headers["thalweg-completeness"] == "undeclared"
        assert answer.content == sample.csv


def test_httpx_in_parts(service: Service, sample: Sample) -> None:
    got = b""
    options = {"format": "csv"}
    offset = 0
    size = 500_000
    with httpx.Client(base_url=service.url) as client:
        while offset + size < len(sample.data):
            part = sample.data[offset : offset + size]
            answer = client.post(
                "/v1/losses/melt", params=options, content=part, headers={"Upload-Complete": "?0"}
            )
            assert answer.status_code == 200
            got += answer.content
            options["after"] = answer.headers["Thalweg-Token"]
            offset = int(answer.headers["Thalweg-Offset"])
        rest = sample.data[offset:]
        declared = {"Upload-Length": str(len(sample.data))}
        answer = client.post("/v1/losses/melt", params=options, content=rest, headers=declared)
    assert answer.headers["Thalweg-Completeness"] == "declared"
    assert got + answer.content == sample.csv


def test_httpx_survives_a_duplex_answer_although_it_reads_only_afterwards(
    service: Service, sample: Sample
) -> None:
    answer = httpx.post(service.url + LIVE, content=iter(in_pieces(sample.data, 20)))
    assert answer.content == sample.csv


def test_httpx_async_after_the_body(service: Service, sample: Sample) -> None:
    async def run() -> bytes:
        async with httpx.AsyncClient(base_url=service.url) as client:
            return (await client.post(CSV, content=sample.data)).content

    assert asyncio.run(run()) == sample.csv


# -- requests ------------------------------------------------------------------------


def test_requests_after_the_body(service: Service, sample: Sample) -> None:
    with requests.Session() as session:
        sized = session.post(service.url + CSV, data=sample.data)
        chunked = session.post(service.url + CSV, data=iter(in_pieces(sample.data, 20)))
        with sample.path.open("rb") as file:
            streamed = session.put(service.url + CSV, data=file)
    for answer in (sized, chunked, streamed):
        assert answer.status_code == 200
        assert answer.content == sample.csv


def test_requests_hears_an_early_refusal_of_a_long_body(service: Service, sample: Sample) -> None:
    pieces = in_pieces(sample.data * 4, 60)
    wrong = service.url + "/v1/losses/nothing"
    with requests.post(wrong, data=iter(pieces), timeout=SECONDS) as answer:
        assert answer.status_code == 422
        assert answer.json()["code"] == "option"


# -- http.client ---------------------------------------------------------------------


def test_http_client_after_the_body(service: Service, sample: Sample) -> None:
    connection = http.client.HTTPConnection(HOST, service.port, timeout=SECONDS)
    for _ in range(2):  # on one connection
        connection.request("POST", CSV, sample.data)
        with connection.getresponse() as answer:
            assert answer.status == 200
            assert answer.read() == sample.csv
    connection.close()


def test_http_client_reads_rows_while_a_thread_sends(service: Service, sample: Sample) -> None:
    connection = http.client.HTTPConnection(HOST, service.port, timeout=SECONDS)
    connection.putrequest("POST", LIVE.replace("csv", "frames"))
    connection.putheader("Content-Length", str(len(sample.data)))
    connection.endheaders()
    # The connection lets go of its socket when it reads that it will be closed.
    sock = connection.sock
    come = threading.Event()

    def send() -> None:
        sock.sendall(sample.data[: sample.half])
        assert come.wait(SECONDS)
        sock.sendall(sample.data[sample.half :])

    sender = threading.Thread(target=send)
    sender.start()
    reader, received = FrameReader(), Received()
    with connection.getresponse() as answer:
        while piece := answer.read1():
            for frame in reader.feed(piece):
                received.take(frame)
                come.set()
    sender.join()
    connection.close()
    reader.close()
    assert received.end is not None
    assert received.end["reason"] == "complete"
    whole = service.post("/v1/losses/melt?format=bin", sample.data)
    assert received.tables["melt"] == whole.body


# -- Node ----------------------------------------------------------------------------

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")

_NODE_DEFAULT = """
import { readFileSync } from 'node:fs';
const [url, path] = process.argv.slice(1);
const answer = await fetch(url, { method: 'POST', body: readFileSync(path) });
if (answer.status !== 200) throw new Error(await answer.text());
process.stdout.write(Buffer.from(await answer.arrayBuffer()));
"""

_NODE_DUPLEX = """
import { readFileSync } from 'node:fs';
const [url, path] = process.argv.slice(1);
const data = readFileSync(path);
const half = data.length >> 1;
let come;
const rows = new Promise((resolve) => { come = resolve; });
async function* body() {
  yield data.subarray(0, half);
  await rows;  // what follows is sent only when rows were seen
  yield data.subarray(half);
}
const answer = await fetch(url, {
  method: 'POST', body: ReadableStream.from(body()), duplex: 'half',
});
if (answer.status !== 200) throw new Error(await answer.text());
for await (const piece of answer.body) {
  come();
  process.stdout.write(piece);
}
"""


@needs_node
@pytest.mark.parametrize(
    ("script", "target"), [(_NODE_DEFAULT, CSV), (_NODE_DUPLEX, LIVE)], ids=["default", "duplex"]
)
def test_node_fetch(service: Service, sample: Sample, script: str, target: str) -> None:
    command = ["node", "--input-type=module", "-e", script, service.url + target, str(sample.path)]
    run = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout == sample.csv
