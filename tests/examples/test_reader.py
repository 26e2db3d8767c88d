"""The reader in Node prints every row once, and takes no cut or faulty answer for a whole one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.client import Client
from core.losses.samples import SampleSpec, generate_stream
from tests.client.running import ROOT, cutting
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="Node is not installed: apt-get install nodejs"),
    pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed"),
]
STREAM = b"".join(generate_stream(SampleSpec(events=500, summaries=3, samples=10)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()


def read(url: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(ROOT / "deploy/examples/reader.mjs"), url, str(path), "melt"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_all_rows_are_printed(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAM)
    done = read(server.url, tmp_path / "in")
    assert done.returncode == 0, done.stderr
    with Client(server.url) as client:
        rows = client.losses.read("melt", STREAM).rows
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["EventId"] for row in found] == rows["EventId"].tolist()
    assert found[7]["MeanLoss"] == pytest.approx(float(rows["MeanLoss"][7]))


def test_a_fault_is_no_end(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAM[: len(STREAM) // 2 + 1])
    done = read(server.url, tmp_path / "in")
    assert done.returncode != 0
    assert "stream-truncated" in done.stderr


def test_a_cut_is_no_end(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAM)
    with cutting(server, 1, 1, 30_000, ("down",)) as proxy:
        assert read(f"http://127.0.0.1:{proxy.port}", tmp_path / "in").returncode != 0
