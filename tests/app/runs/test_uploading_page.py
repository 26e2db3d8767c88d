"""The page about uploads: every block is run against a server, by the tool it is for."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client
from tests.interop.suite import loss_stream
from tests.server_process import ROOT, ServerProcess

PAGE = (ROOT / "app" / "runs" / "README.md").read_text()
MODULES = Path(os.environ.get("THALWEG_NODE_MODULES", ROOT / ".venv-node" / "node_modules"))
PARTS = [loss_stream(events=200), loss_stream(events=300, first=1001)]


def blocks(language: str) -> list[str]:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("server"))
    yield process
    process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the streams, a fifo's folder, and commands of this tree."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (tmp_path / "fifo").mkdir()
    for number, content in enumerate(PARTS, 1):
        (tmp_path / f"p{number}.bin").write_bytes(content)
    thalweg = f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} -m app.client "$@"\n'
    for name, text in (("thalweg", thalweg), ("model", '#!/bin/bash\ncat "p$2.bin"\n')):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return tmp_path


def shell(server: ServerProcess, folder: Path, text: str) -> None:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "THALWEG_URL": server.url}
    done = subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


@pytest.fixture
def run(server: ServerProcess) -> str:
    with Client(server.url) as client:
        return client.runs.create("gul", ["melt"]).id


def stored(server: ServerProcess, run: str) -> dict[int, int]:
    with Client(server.url) as client:
        return {s.partition: s.offset for s in client.runs.streams(run) if s.complete}


SIZES = {number: len(content) for number, content in enumerate(PARTS, 1)}


def test_the_command(server: ServerProcess, folder: Path) -> None:
    create, *_ = blocks("sh")
    shell(server, folder, create)
    with Client(server.url) as client:
        rows = np.concatenate([client.losses.read("melt", part).rows for part in PARTS])
    assert len((folder / "melt.csv").read_text().splitlines()) == len(rows) + 1


def test_in_place_of_a_tee(server: ServerProcess, folder: Path, run: str) -> None:
    _, tee, producer, *_ = blocks("sh")
    shell(server, folder, f"run={run}\n{tee}")
    assert stored(server, run) == {1: SIZES[1]}
    with Client(server.url) as client:
        other = client.runs.create("gul", ["melt"]).id
    shell(server, folder, f"run={other}\n{producer}")
    assert stored(server, other) == SIZES


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")
def test_curl(server: ServerProcess, folder: Path, run: str) -> None:
    *_, whole, resumable = blocks("sh")
    shell(server, folder, whole)
    assert len((folder / "melt.csv").read_text().splitlines()) > 1
    shell(server, folder, f"run=/v1/runs/{run}\n{resumable}")
    assert stored(server, run) == {1: SIZES[1]}


def test_tuspy(
    server: ServerProcess, folder: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tusclient.client")
    monkeypatch.chdir(folder)
    (code,) = blocks("python")
    names: dict[str, Any] = {"url": server.url, "run": run}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(code, names)  # noqa: S102 - the example is ours
    assert said.getvalue().startswith("http")
    assert stored(server, run) == {1: SIZES[1]}


@pytest.mark.skipif(
    not (MODULES / "tus-js-client").is_dir() or shutil.which("node") is None,
    reason="Node or tus-js-client is not installed: make interop runs this",
)
def test_tus_js_client(server: ServerProcess, folder: Path, run: str) -> None:
    (code,) = blocks("js")
    (folder / "node_modules").symlink_to(MODULES.resolve())
    names = f'const url = "{server.url}", run = "{run}";\n'
    for protocol in ("tus-v1", "ietf-draft-05"):
        text = code.replace("uploadSize", f'protocol: "{protocol}", uploadSize')
        (folder / "upload.mjs").write_text(names + text.replace("p1.bin", "p2.bin"))
        done = subprocess.run(
            ["node", "upload.mjs"], cwd=folder, capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        assert stored(server, run) == {1: SIZES[2]}
        with Client(server.url) as client:
            (stream,) = client.runs.streams(run)
            client.runs.delete_stream(run, stream.id)
