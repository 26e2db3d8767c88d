"""The client against the real service: uncut, and through a proxy that cuts."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import app.client
from app.client import AsyncClient, Client, End, ProblemError, ProducerFailed
from app.client.losses.requests import Mode
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.scale import PURE_PYTHON, examples

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

ROOT = Path(app.client.__file__).parents[2]
SPEC = SampleSpec(events=400, summaries=8, samples=60)
STREAM = b"".join(generate_stream(SPEC))
INPUTS = generate_inputs(SPEC)
MODES: tuple[Mode, ...] = ("parts", "whole", "duplex")
PART = 50_001


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("service")
    command = [sys.executable, "-m", "app.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(directory / "data")], cwd=ROOT, stderr=log
        )
    try:
        yield _listening(process, directory / "log")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"listening on (http://\S+)", log.read_text())
        if found:
            with Client(found[1]) as client:
                while not client.health():
                    time.sleep(0.05)
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


class Cutter:
    """Passes bytes on, and cuts each connection after some."""

    def __init__(self, url: str, rng: np.random.Generator, cuts: int, most: int) -> None:
        self._target = int(url.rsplit(":", 1)[1])
        self._rng = rng
        self._cuts = cuts
        self._most = most
        self.cut = 0
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for end in self._ends:
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._ends += [near, far]
            left = [int(self._rng.integers(0, self._most)) if self.cut < self._cuts else 1 << 60]
            for a, b in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(a, b, left), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _pass_on(self, a: socket.socket, b: socket.socket, left: list[int]) -> None:
        try:
            while data := a.recv(4096):
                left[0] -= len(data)
                if left[0] < 0:
                    self.cut += 1
                    break
                b.sendall(data)
        except OSError:
            pass
        _shut(a)
        _shut(b)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@pytest.fixture(scope="module")
def wanted(url: str) -> dict[str, bytes]:
    with Client(url) as client:
        got: dict[str, bytes] = {}
        reports = ("events", "selt", "melt", "qelt")
        for report, rows in client.losses.post(
            reports,
            STREAM,
            mode="whole",
            quantiles=[0.1, 0.5],
            event_rates=INPUTS["event_rates.csv"],
        ):
            got[report] = got.get(report, b"") + rows.tobytes()
    return got


def options() -> dict[str, Any]:
    return {"quantiles": [0.1, 0.5], "event_rates": INPUTS["event_rates.csv"]}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part_size", [1000, PART, 1 << 24])
def test_every_mode_gives_the_same(
    url: str, wanted: dict[str, bytes], mode: Mode, part_size: int
) -> None:
    with Client(url) as client:
        answer = client.losses.post(
            tuple(wanted), STREAM, mode=mode, part_size=part_size, **options()
        )
        got: dict[str, bytes] = {}
        for report, rows in answer:
            got[report] = got.get(report, b"") + rows.tobytes()
    assert got == wanted
    assert answer.end == End("complete", "declared", 400, len(STREAM), "whole")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(examples(4)))
def test_cuts_leave_no_trace(url: str, wanted: dict[str, bytes], mode: Mode, seed: int) -> None:
    cutter = Cutter(url, np.random.default_rng(seed), cuts=12, most=len(STREAM) // 2)
    try:
        with Client(cutter.url, retries=30) as client:
            answer = client.losses.post("selt", STREAM, mode=mode, part_size=PART)
            got = b"".join(rows.tobytes() for rows in answer)
    finally:
        cutter.close()
    assert got == wanted["selt"]
    assert cutter.cut


@pytest.mark.parametrize("seed", range(examples(3)))
def test_cuts_leave_no_trace_asynchronously(url: str, wanted: dict[str, bytes], seed: int) -> None:
    async def run(mode: Mode) -> bytes:
        cutter = Cutter(url, np.random.default_rng(seed), cuts=6, most=len(STREAM) // 2)
        try:
            async with AsyncClient(cutter.url, retries=30) as client:
                answer = client.losses.post("selt", STREAM, mode=mode, part_size=PART)
                return b"".join([rows.tobytes() async for rows in answer])
        finally:
            cutter.close()

    for mode in MODES:
        assert asyncio.run(run(mode)) == wanted["selt"]


@pytest.mark.parametrize("table_format", ["csv", "ndjson", "bin", "arrow", "parquet"])
def test_saved_tables(
    url: str, wanted: dict[str, bytes], tmp_path: Path, table_format: str
) -> None:
    with Client(url) as client:
        client.losses.save("selt", STREAM, tmp_path / "whole", table_format, mode="whole")
        whole = (tmp_path / "whole").read_bytes()
        if table_format == "bin":
            assert whole == wanted["selt"]
        if table_format in {"arrow", "parquet"}:
            return
        cutter = Cutter(url, np.random.default_rng(1), cuts=9, most=200_000)
        with Client(cutter.url, retries=30) as cut_off:
            cut_off.losses.save("selt", STREAM, tmp_path / "parts", table_format, part_size=PART)
        cutter.close()
        assert (tmp_path / "parts").read_bytes() == whole


def test_a_saved_csv_is_what_curl_gets(url: str, tmp_path: Path) -> None:
    with Client(url) as client:
        client.losses.save("selt", STREAM, tmp_path / "out", part_size=PART)
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    connection.request("POST", "/v1/losses/selt", STREAM)
    answer = connection.getresponse().read()
    connection.close()
    assert (tmp_path / "out").read_bytes() == answer


def test_a_command_killed_again_and_again(
    url: str, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(STREAM)
    command = [sys.executable, "-m", "app.client", "post", str(tmp_path / "in"), "--url", url]
    command += ["--report", "selt", "-o", str(tmp_path / "out.bin"), "--part-size", "10000"]
    rng = np.random.default_rng(3)
    kills = 0
    while not (tmp_path / "out.bin").exists():
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            process.wait(0.25 + rng.random() * 0.2 if kills < 8 else 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    assert (tmp_path / "out.bin").read_bytes() == wanted["selt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out.bin"]


@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_fails(
    url: str, wanted: dict[str, bytes], tmp_path: Path, mode: Mode
) -> None:
    (tmp_path / "in").write_bytes(STREAM[: len(STREAM) // 2])
    parts: list[bytes] = []
    command = ["sh", "-c", f"cat {tmp_path / 'in'}; exit 1"]
    with Client(url) as client:
        answer = client.losses.post("selt", exec=command, mode=mode, part_size=PART)
        with pytest.raises(ProducerFailed):
            parts.extend(rows.tobytes() for rows in answer)
    got = b"".join(parts)
    assert wanted["selt"].startswith(got)
    assert len(wanted["selt"]) // 3 < len(got) < len(wanted["selt"])


def test_tokens_and_inputs(url: str, wanted: dict[str, bytes]) -> None:
    with Client(url) as client:
        answer = client.losses.post(
            "melt", STREAM, part_size=PART, event_rates=INPUTS["event_rates.csv"]
        )
        got = next(answer).tobytes()
        token, offset = answer.token, answer.offset
        answer.close()
        assert token is not None
        assert client.tokens.inspect(token)["offset"] == offset
        rest = client.losses.post(
            "melt",
            STREAM,
            after=client.tokens.refresh(token),
            offset=offset,
            event_rates=INPUTS["event_rates.csv"],
        )
        got += b"".join(rows.tobytes() for rows in rest)
        assert got == wanted["melt"]
        with pytest.raises(ProblemError) as caught:
            next(client.losses.post("selt", STREAM, after=token, offset=offset))
        assert caught.value.code == "token-foreign"
        with pytest.raises(ProblemError) as caught:
            next(client.losses.post("melt", STREAM, event_rates="0" * 32))
        assert caught.value.code == "input-gone"


def test_wrong_streams(url: str) -> None:
    with Client(url) as client:
        for mode in MODES:
            with pytest.raises(ProblemError) as caught:
                list(client.losses.post("melt", STREAM[:-4], mode=mode, part_size=PART))
            assert caught.value.code == "stream-truncated"
            assert caught.value.event
        with pytest.raises(ProblemError) as caught:
            list(client.losses.post("melt", STREAM, expect_events=401))
        assert caught.value.code == "stream-incomplete"
        with pytest.raises(ProblemError) as caught:
            list(client.losses.post("none", STREAM))
        assert caught.value.status in {404, 422}


def test_it_goes_on_when_the_service_restarts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "app.cli", "serve", "--host", "127.0.0.1", "--port", port]

    def serve(log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--data-dir", str(tmp_path / "data")], cwd=ROOT, stderr=file
            )
        _listening(process, log)
        return process

    process = serve(tmp_path / "a")
    with Client(f"http://127.0.0.1:{port}", retries=100) as client:
        answer = client.losses.post("selt", STREAM, part_size=PART)
        got = next(answer).tobytes()
        process.kill()
        process.wait()
        process = serve(tmp_path / "b")
        got += b"".join(rows.tobytes() for rows in answer)
        assert got == b"".join(rows.tobytes() for rows in client.losses.post("selt", STREAM))
    process.send_signal(signal.SIGTERM)
    process.wait(60)
