# mypy: disable-error-code="import-not-found"
"""The example of training: the same losses to the bit, whoever is killed on the way."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import app.client
from app.client import Client

torch = pytest.importorskip("torch", reason="torch is not installed: these are not run")

ROOT = Path(app.client.__file__).parents[2]
SERVER = Path(os.environ.get("THALWEG_SERVER_PYTHON", ROOT / ".venv/bin/python"))
"""The service needs libraries that the environment of torch does not have."""
pytestmark = pytest.mark.skipif(
    not SERVER.exists(), reason="no service: make install, or name one in THALWEG_SERVER_PYTHON"
)
SECONDS = 180


class Server:
    """A service that is started again on its port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = "0"
        self.start()

    def start(self) -> None:
        place = ["--port", self.port, "--data-dir", str(self._directory / "data"), "--threads", "1"]
        log = self._directory / "log"
        log.write_bytes(b"")
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [SERVER, "-m", "app.command", "serve", *place],
                env={**os.environ, "PYTHONPATH": str(ROOT), "THALWEG_LANES": "one"}
                | {"THALWEG_DATASET_ROOTS": str(self._directory / "files")},
                stderr=file,
            )
        for _ in range(10 * SECONDS):
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())
            if found:
                self.port = found[1]
                return
            assert self._process.poll() is None, log.read_text()
            time.sleep(0.1)
        raise AssertionError(log.read_text())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "files").mkdir()
    rng = np.random.default_rng(3)
    rng.integers(0, 4096, (512, 128, 128), "u2").tofile(tmp_path / "files/scan.raw")
    server = Server(tmp_path)
    yield server
    server.kill()


def start(server: Server, checkpoint: Path) -> subprocess.Popen[str]:
    # The example imports the installed package: here, that of the checkout by its name.
    code = (
        "import runpy, sys, app.client, app.client.torch;"
        "sys.modules.update({name.replace('app.client', 'thalweg', 1): module for name, module in"
        " list(sys.modules.items()) if name.startswith('app.client')});"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    example = str(ROOT / "deploy/examples/train.py")
    return subprocess.Popen(
        [sys.executable, "-c", code, example, server.url, "scan", str(checkpoint)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def losses(checkpoint: Path) -> list[float]:
    saved: dict[str, Any] = torch.load(checkpoint)
    found: list[float] = saved["losses"]
    return found


def test_kills_change_no_bit_of_a_loss(server: Server, tmp_path: Path) -> None:
    with Client(server.url) as client:
        client.datasets.register(
            id="scan", files=["scan.raw"], format="raw", dtype="<u2",
            nav_shape=[512], sig_shape=[128, 128],
        )  # fmt: skip
    whole, broken = tmp_path / "whole.pt", tmp_path / "broken.pt"
    with start(server, whole) as trainer:
        assert trainer.wait(SECONDS) == 0
    with start(server, broken) as trainer:
        assert trainer.stdout is not None
        assert len(list(itertools.islice(trainer.stdout, 5))) == 5
        trainer.send_signal(signal.SIGKILL)
    with start(server, broken) as trainer:
        assert trainer.stdout is not None
        assert next(trainer.stdout).startswith(("batch 6:", "batch 7:"))
        server.kill()
        server.start()
        assert trainer.wait(SECONDS) == 0
    assert len(losses(whole)) == 32
    assert losses(broken) == losses(whole)
