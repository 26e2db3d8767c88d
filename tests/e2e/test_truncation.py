"""Files that are cut under load: the server lives, and every answer is right or an error."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.errors import KINDS
from tests.e2e.service import Answer, AnswerCut, Service
from tests.frames import FrameReader
from tests.scale import SOAK

WAYS = ("default", "immutable", "buffered", "direct")
CUTS = 1000 if SOAK else 20
FRAMES, SIG = 160, (128, 128)
DEPTH = 32
CATALOGUE = """
[{way}]
files = ["{way}.raw"]
format = "raw"
dtype = "<u2"
sig_shape = [128, 128]
nav_shape = [{frames}]
{more}
"""
MORE = {"immutable": "immutable = true", "buffered": 'backend = "buffered"'}
MORE |= {"direct": 'backend = "direct"', "default": ""}


class Cut:
    """A file that is cut and written again, over and over."""

    def __init__(self, path: Path, content: bytes, seed: int) -> None:
        self.path = path
        self.content = content
        self.cuts = 0
        self._rng = random.Random(seed)  # noqa: S311 - repeatable
        path.write_bytes(content)

    def run(self) -> None:
        while self.cuts < CUTS:
            # What is opened right after a change waits for the clock: leave it time.
            time.sleep(self._rng.choice([0.002, 0.01, 0.08]))
            os.truncate(self.path, self._rng.randrange(len(self.content)))
            time.sleep(self._rng.choice([0, 0.002]))
            with self.path.open("r+b") as file:
                file.write(self.content)
            self.cuts += 1


class Reader:
    """A client that keeps asking for one dataset in several forms."""

    def __init__(self, service: Service, way: str, values: np.ndarray[tuple[int, ...]]) -> None:
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._service = service
        self._way = way
        self._stored = values.astype("<u2").tobytes()
        self._floats = values.astype("<f4").tobytes()
        self._views = {
            dtype: self._register({"dtype": dtype, "tile_shape": [DEPTH, *SIG]})
            for dtype in ("<u2", "<f4")
        }

    def _register(self, view: dict[str, object]) -> str:
        answer = self._service.post(f"/v1/datasets/{self._way}/views", json.dumps(view).encode())
        assert answer.status == 201, answer
        return str(answer.json()["id"])

    def ask(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - repeatable
        dtype = rng.choice(["<u2", "<f4"])
        base = f"/v1/datasets/{self._way}/views/{self._views[dtype]}"
        whole = self._stored if dtype == "<u2" else self._floats
        nbytes = len(whole) // (FRAMES // DEPTH)
        if rng.random() < 0.5:
            k = rng.randrange(FRAMES // DEPTH)
            self._note(self._answer(f"{base}/tiles/{k}"), whole[k * nbytes : (k + 1) * nbytes])
        elif rng.random() < 0.5:
            self._note(self._answer(f"{base}/raw"), whole)
        else:
            answer = self._answer(f"{base}/tiles")
            if answer is not None and answer.status == 200:
                self._note_stream(answer.body, whole)
            else:
                self._note(answer, whole)

    def _answer(self, path: str) -> Answer | None:
        try:
            return self._service.get(path)
        except AnswerCut:
            return None

    def _note(self, answer: Answer | None, expected: bytes) -> None:
        if answer is None:
            self.seen["cut"] += 1
        elif answer.status == 200:
            # The file may have been opened while it was shorter.
            right = answer.body == expected[: len(answer.body)]
            self.seen["right" if len(answer.body) == len(expected) else "short"] += 1
            if not right:
                self.wrong.append(f"{len(answer.body)} bytes")
        else:
            code = answer.json()["code"]
            self.seen[code] += 1
            if code not in KINDS or answer.status == 500:
                self.wrong.append(code)

    def _note_stream(self, body: bytes, whole: bytes) -> None:
        reader = FrameReader()
        at = 0
        for frame in reader.feed(body):
            if frame.kind == "DATA":
                if frame.payload != whole[at : at + len(frame.payload)]:
                    self.wrong.append("a frame")
                at += len(frame.payload)
            elif frame.kind == "ERROR":
                self.seen[frame.header["problem"]["code"]] += 1
            else:
                self.seen["right" if at == len(whole) else "short"] += 1


@pytest.fixture
def values() -> np.ndarray[tuple[int, ...]]:
    # No zeros, which a cut file would be filled up with.
    return np.random.default_rng(3).integers(1, 60_000, (FRAMES, *SIG)).astype("<u2")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    root = tmp_path / "root"
    root.mkdir()
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(
        "".join(CATALOGUE.format(way=way, frames=FRAMES, more=MORE[way]) for way in WAYS)
    )
    made = Service(tmp_path / "service", dataset_roots=root, catalogue=catalogue, threads=4)
    yield made
    assert made.stop() == 0


def test_files_are_cut_under_load(
    service: Service, tmp_path: Path, values: np.ndarray[tuple[int, ...]]
) -> None:
    content = values.tobytes()
    files = [Cut(tmp_path / "root" / f"{way}.raw", content, k) for k, way in enumerate(WAYS)]
    readers = [Reader(service, way, values) for way in WAYS]
    processes = set(service.worker_pids())
    cutters = [threading.Thread(target=file.run) for file in files]

    def keep_asking(reader: Reader, first: int) -> None:
        seed = first
        while any(cutter.is_alive() for cutter in cutters):
            seed += 1
            reader.ask(seed)

    clients = [
        threading.Thread(target=keep_asking, args=(reader, 1_000_000 * k))
        for k, reader in enumerate([*readers, *readers])
    ]
    for thread in [*cutters, *clients]:
        thread.start()
    for thread in [*cutters, *clients]:
        thread.join()
    assert [file.cuts for file in files] == [CUTS] * len(WAYS)
    for way, reader in zip(WAYS, readers, strict=True):
        assert not reader.wrong, (way, reader.wrong[:5])
        assert sum(reader.seen.values()) > reader.seen["right"], (way, reader.seen)
        before = reader.seen["right"]
        for seed in range(20):
            reader.ask(seed)
        assert reader.seen["right"] == before + 20
        print(way, dict(reader.seen))
    assert service.process.poll() is None
    assert processes <= set(service.worker_pids())
    assert not service.failures()
