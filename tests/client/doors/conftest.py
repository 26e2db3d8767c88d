"""A real service with one dataset, and what it holds: plugins are tried as their users use them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, Dataset
from tests.server_process import ServerProcess

KEY = "the-key-of-alice"
VALUES = np.random.default_rng(5).integers(0, 4000, (6, 5, 8, 7), "<u2")
AXES = [
    {"name": "y", "size": 6, "unit": "nm", "scale": 0.5, "offset": 10.0},
    {"name": "x", "size": 5},
    {"name": "ky", "size": 8, "unit": "1/nm", "scale": 0.1},
    {"name": "kx", "size": 7, "unit": "not a unit"},
]
SPEC: dict[str, Any] = {
    "format": "raw",
    "dtype": "<u2",
    "nav_shape": [6, 5],
    "sig_shape": [8, 7],
    "axes": AXES,
}


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    VALUES.tofile(directory / "scan.raw")
    return directory


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, roots: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(
        tmp_path_factory.mktemp("service"),
        api_keys=f"alice:{sha256(KEY.encode()).hexdigest()}",
        dataset_roots=roots,
    )
    yield process
    process.stop()
    assert not process.failures()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_KEY", KEY)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url, KEY) as client:
        yield client


@pytest.fixture
def scan(client: Client) -> Dataset:
    return client.datasets.register(SPEC, id="scan", files=["scan.raw"])


@pytest.fixture
def address(server: ServerProcess, scan: Dataset) -> str:
    return f"{server.url}/v1/datasets/{scan.id}"
