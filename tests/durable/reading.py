"""Reads of every lane, again and again, beside whatever kills the processes that answer them."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from xxhash import xxh3_64

from app.client import Client, Dataset
from tests.server_process import HOST

_FRAMES = (8, 8, 32, 32)
_RETRIES = 10_000
_PATHS = {"front": "/v1/datasets", "quick": "/zarr/none/0", "long": "/v1/runs/a/rows/b"}
"""A small request of each lane: its answer takes as long as the lane is missing."""


class Readers:
    """Ask for the same things until they are stopped, and compare answers with the first ones.

    Args:
        url: of the service.
        port: of the service.
        root: a dataset root of the service, for a file of frames.
        stream: a loss stream.
    """

    def __init__(self, url: str, port: int, root: Path, stream: Path) -> None:
        rng = np.random.default_rng(3)
        np.save(root / "scan.npy", rng.integers(0, 4000, _FRAMES, dtype="<u2"))
        self.answers = self.wrong = 0
        self.longest = dict.fromkeys(_PATHS, 0.0)
        self._url, self._port, self._stream = url, port, stream
        self._done = threading.Event()
        with Client(url, retries=_RETRIES) as client:
            dataset = client.datasets.register({"id": "scan", "files": ["scan.npy"]})
            # Before anything is killed.
            self._first = [read(client, dataset) for read in self._reads()]
        targets: list[Callable[[], None]] = [self._read, *map(self._prober, _PATHS)]
        self._threads = [threading.Thread(target=target) for target in targets]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, once each has its answer."""
        self._done.set()
        for thread in self._threads:
            thread.join()

    def describe(self) -> str:
        """What was seen by now."""
        missing = ", ".join(f"{lane} {seconds:.2f} s" for lane, seconds in self.longest.items())
        return f"{self.wrong} of {self.answers} reads wrong, longest answers: {missing}"

    def _reads(self) -> list[Callable[[Client, Dataset], bytes]]:
        stages = [{"op": "source", "dataset": "scan"}, {"op": "permute", "seed": 7, "epochs": 20}]
        spec = {"order": 1, "stages": [*stages, {"op": "batch", "size": 16}]}

        def batches(client: Client, _: Dataset) -> bytes:
            return _digest(
                np.asarray(values).tobytes()
                for batch in client.pipeline(spec).batches()
                for values in batch.values()
            )

        def posted(client: Client, _: Dataset) -> bytes:
            return _digest(rows.tobytes() for rows in client.losses.post("melt", self._stream))

        def tiles(_: Client, dataset: Dataset) -> bytes:
            return _digest([dataset.view().read().tobytes()])

        def reduced(_: Client, dataset: Dataset) -> bytes:
            return _digest(values.tobytes() for values in dataset.reduce("std").values())

        return [batches, posted, tiles, reduced]

    def _read(self) -> None:
        with Client(self._url, retries=_RETRIES) as client:
            while not self._done.is_set():
                for read, first in zip(self._reads(), self._first, strict=True):
                    self.wrong += read(client, client.datasets["scan"]) != first
                    self.answers += 1

    def _prober(self, lane: str) -> Callable[[], None]:
        def probe() -> None:
            while not self._done.is_set():
                begin = time.monotonic()
                while not self._is_answered(_PATHS[lane]):
                    time.sleep(0.002)
                self.longest[lane] = max(self.longest[lane], time.monotonic() - begin)
                time.sleep(0.02)

        return probe

    def _is_answered(self, path: str) -> bool:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _digest(pieces: Iterator[bytes] | list[bytes]) -> bytes:
    digest = xxh3_64()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
