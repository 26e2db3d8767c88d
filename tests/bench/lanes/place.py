"""A service to measure: data, keys, and the processes it consists of."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.e2e.samples import large_stream
from tests.server_process import children_of

SCAN, SIG = (64, 64), (128, 128)
"""Frames of 32 KiB: 134 MB in all."""
STREAM_MIB = 47
ITEM = 64
"""float32 values of an item."""
BATCHES = {"batches": 4096, "small batches": 32}
"""Items of a batch of 1 MiB, and of one of 8 KiB."""
PERIODS, OCCURRENCES = 1_000_000, 10_000
OWNERS = ("reader", "reducer", "poster", "trainer", "flooder")


class Data:
    """Files that every service reads.

    Args:
        directory: for the files.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        rng = np.random.default_rng(1)
        np.save(self.root / "scan.npy", rng.integers(0, 4000, (*SCAN, *SIG), dtype=np.uint16))
        with h5py.File(self.root / "scan.h5", "w") as file:
            frames = rng.integers(0, 4000, (256, *SIG), dtype=np.uint16)
            file.create_dataset("frames", data=frames, chunks=(1, *SIG), compression="gzip")
        items = (50 << 20) // (4 * ITEM)
        (self.root / "items").write_bytes(rng.random((items, ITEM), np.float32).tobytes())
        self.stream = large_stream(STREAM_MIB)
        self.small_stream = large_stream(1)
        # Events of the stream in a million periods, so that their sums take long to sort.
        self.occurrences = np.array([1, PERIODS], "<i4").tobytes()
        rows = np.ones((OCCURRENCES, 3), "<i4")
        rows[:, 0] = rng.integers(1, 400, OCCURRENCES)
        rows[:, 1] = rng.integers(1, PERIODS, OCCURRENCES)
        self.occurrences += rows.tobytes()


class Place:
    """A service that runs, with what clients need registered.

    Args:
        code: checkout of the service.
        data: its data.
        variables: settings.

    Attributes:
        paths: of what each owner registered, by name.
    """

    def __init__(self, code: Path, data: Data, **variables: str) -> None:
        self.data = data
        self.paths: Mapping[str, Mapping[str, str]] = {}
        self.keys = {owner: f"key-of-{owner}-0123456789abcdef" for owner in OWNERS}
        self._directory = Path(tempfile.mkdtemp())
        digests = (f"{o}:{hashlib.sha256(k.encode()).hexdigest()}" for o, k in self.keys.items())
        environment = {
            **os.environ,
            "PYTHONPATH": str(code),
            "THALWEG_DATA_DIR": str(self._directory / "data"),
            "THALWEG_DATASET_ROOTS": str(data.root),
            "THALWEG_API_KEYS": ",".join(digests),
            "THALWEG_LOG_LEVEL": "error",
            "THALWEG_PORT": "0",
            **variables,
        }
        self._begun = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.command", "serve"],
            env=environment,
            cwd=self._directory,
            stderr=(self._directory / "log").open("w"),
        )
        self.address = self._await_address()
        self.ready_seconds = self._await_ready()

    def _await_address(self) -> tuple[str, int]:
        while self._process.poll() is None:
            text = (self._directory / "log").read_text()
            if found := re.search(r"listening on http://([\d.]+):(\d+)", text):
                return found[1], int(found[2])
            time.sleep(0.002)
        raise RuntimeError("the service did not start")

    def _await_ready(self) -> float:
        while self.ask("reader", "GET", "/readyz")[0] != 200:
            time.sleep(0.002)
        return time.perf_counter() - self._begun

    def ask(self, owner: str, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Status and body of an answer, on a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        headers = {"Authorization": f"Bearer {self.keys[owner]}"}
        octets = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, octets, headers)
        answer = connection.getresponse()
        result = answer.status, answer.read()
        connection.close()
        return result

    def register(self) -> None:
        """Register datasets, a view and pipelines for every owner."""
        self.paths = {owner: self._register(owner) for owner in OWNERS}

    def _register(self, owner: str) -> dict[str, str]:
        form = {"format": "raw", "dtype": "<f4", "sig_shape": [ITEM], "immutable": True}
        self._create(owner, "/v1/datasets", {"id": "scan", "files": ["scan.npy"]})
        self._create(owner, "/v1/datasets", {"id": "hdf5", "files": ["scan.h5"]})
        self._create(owner, "/v1/datasets", {"id": "items", "files": ["items"], **form})
        view = self._create(owner, "/v1/datasets/scan/views", {"tile_shape": [2, *SIG]})["id"]
        paths = {"tile": f"/v1/datasets/scan/views/{view}/tiles/7"}
        for name, size in BATCHES.items():
            stages = [{"op": "source", "dataset": "items"}, {"op": "batch", "size": size}]
            pipeline = self._create(owner, "/v1/pipelines", {"order": 1, "stages": stages})
            base = f"/v1/pipelines/{pipeline['id']}"
            paths[name] = f"{base}/batches"
            paths[f"one of {name}"] = f"{base}/batch?after={pipeline['token']}"
        stored = self._create(owner, "/v1/inputs/occurrence", self.data.occurrences, "PUT")
        paths["psept"] = f"/v1/losses/psept?over_bound=try&occurrence={stored['digest']}"
        return paths

    def _create(self, owner: str, path: str, body: object, method: str = "POST") -> Any:  # noqa: ANN401 - JSON
        status, answer = self.ask(owner, method, path, body)
        assert status in {200, 201}, answer
        return json.loads(answer)

    @property
    def pids(self) -> list[int]:
        """All processes of the service."""
        found = [self._process.pid]
        for pid in found:
            found += children_of(pid)
        return found

    def cpu(self) -> float:
        """CPU seconds that its present processes have used."""
        total = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MiB of all processes, shared pages counted once (PSS)."""
        rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.pids)
        found = [re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE) for text in rollups]
        return sum(int(sizes[0]) for sizes in found) / 1024

    def stop(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        shutil.rmtree(self._directory)


@contextmanager
def serving(code: Path, data: Data, **variables: str) -> Iterator[Place]:
    """A service for the time of a block."""
    place = Place(code, data, **variables)
    try:
        place.register()
        yield place
    finally:
        place.stop()
