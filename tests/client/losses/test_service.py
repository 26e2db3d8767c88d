"""The client against the real service: uncut, and through a proxy that cuts."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, End, ProblemError, ProducerFailed
from app.client.command.main import main
from app.client.losses.requests import Mode
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.scale import PURE_PYTHON, examples
from tests.server_process import ServerProcess

from ..conftest import Connect
from ..running import ROOT, cutting

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

SPEC = SampleSpec(events=400, summaries=8, samples=60)
STREAM = b"".join(generate_stream(SPEC))
INPUTS = generate_inputs(SPEC)
MODES: tuple[Mode, ...] = ("parts", "whole", "duplex")
PART = 50_001


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()
    assert not process.failures()


@pytest.fixture
def url(server: ServerProcess) -> str:
    return server.url


@pytest.fixture(scope="module")
def wanted(server: ServerProcess) -> dict[str, bytes]:
    with Client(server.url) as client:
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
def test_cuts_leave_no_trace(
    connect: Connect, server: ServerProcess, wanted: dict[str, bytes], mode: Mode, seed: int
) -> None:
    with cutting(server, seed, cuts=12, limit=len(STREAM) // 2) as proxy:
        with connect(proxy.url, retries=30) as client:
            answer = client.losses.post("selt", STREAM, mode=mode, part_size=PART)
            got = b"".join(rows.tobytes() for rows in answer)
        assert proxy.cuts
    assert got == wanted["selt"]


@pytest.mark.parametrize("table_format", ["csv", "ndjson", "bin", "arrow", "parquet"])
def test_saved_tables(
    connect: Connect,
    server: ServerProcess,
    wanted: dict[str, bytes],
    tmp_path: Path,
    table_format: str,
) -> None:
    with connect(server.url) as client:
        client.losses.save("selt", STREAM, tmp_path / "whole", table_format, mode="whole")
        whole = (tmp_path / "whole").read_bytes()
        if table_format == "bin":
            assert whole == wanted["selt"]
        if table_format in {"arrow", "parquet"}:
            return
        with (
            cutting(server, 1, cuts=9, limit=200_000) as proxy,
            connect(proxy.url, retries=30) as cut_off,
        ):
            cut_off.losses.save("selt", STREAM, tmp_path / "parts", table_format, part_size=PART)
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
    # Until it has ended, if only by a kill after its last act; one may come before that, too.
    done = ["in", "out.bin"]
    while sorted(p.name for p in tmp_path.iterdir()) != done:
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            code = process.wait(0.25 + rng.random() * 0.2 if kills < 8 else 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        else:
            assert code == 0
            assert sorted(p.name for p in tmp_path.iterdir()) == done
    assert (tmp_path / "out.bin").read_bytes() == wanted["selt"]


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


def test_it_resumes_when_the_service_restarts(connect: Connect, server: ServerProcess) -> None:
    with connect(server.url, retries=100) as client:
        answer = client.losses.post("selt", STREAM, part_size=PART)
        got = next(answer).tobytes()
        server.kill()
        server.start()
        got += b"".join(rows.tobytes() for rows in answer)
        assert got == b"".join(rows.tobytes() for rows in client.losses.post("selt", STREAM))


def test_the_command_gives_each_of_several_reports_its_inputs(url: str, tmp_path: Path) -> None:
    stream, occurrence, out = (tmp_path / name for name in ("stream", "occurrence", "out"))
    stream.write_bytes(STREAM)
    occurrence.write_bytes(INPUTS["occurrence.bin"])
    options = ["--quantiles", "0.5,0.9", "--occurrence", str(occurrence)]
    options += ["--return-periods", "50,10", "--expect-bytes", str(len(STREAM)), "--url", url]
    post = ["post", str(stream), "--report", "melt,qelt,ept,aal", "-o", str(out), *options]
    assert main(post) == 0
    assert {path.name for path in out.iterdir()} == {"melt.csv", "qelt.csv", "ept.csv", "aal.csv"}
    assert all(path.read_bytes().count(b"\n") > 1 for path in out.iterdir())
