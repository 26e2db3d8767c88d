"""Remote batches: ``python -m tests.bench.batches``.

Batches over loopback against the same pipeline in a loop in process, and against a plain
download of the same bytes with the same client, in turn in every round; medians. Then
single batches by offset, resumption, and how long tokens are.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.http.identity import SINGLE_USER
from app.pipelines.opened import OpenPipeline
from app.pipelines.registry import Pipelines
from app.tiles.views import Views
from app.tokens import KeyRing, new_key
from core.warmup import warm_up
from tests.app.state.memory import MemoryStateStore
from tests.bench.__main__ import line, timed
from tests.bench.service import running
from tests.bench.tiles import Client, run_and_print

MIB = 1 << 20
BURST = 200
"""Single batches asked for in a row."""
SHAPES: Mapping[str, tuple[int, int]] = {"small": (64, 32), "large": (4096, 64)}
"""(float32 values of an item, items of a batch): batches of 8 KiB, and of 1 MiB."""


class Data:
    """Items in files, and pipelines over them.

    Args:
        directory: for the files.
        size: bytes of each file.
    """

    def __init__(self, directory: Path, size: int) -> None:
        rng = np.random.default_rng(1)
        self.root = directory
        self.items: dict[str, int] = {}
        for name, (width, _) in SHAPES.items():
            self.items[name] = size // (4 * width)
            values = rng.random((self.items[name], width), np.float32)
            (directory / name).write_bytes(values.tobytes())

    def entry(self, name: str) -> dict[str, Any]:
        """The dataset."""
        width, _ = SHAPES[name]
        form = {"format": "raw", "dtype": "<f4", "sig_shape": [width], "immutable": True}
        return {"id": name, "files": [name], **form}

    def spec(self, name: str, *, shuffled: bool) -> dict[str, Any]:
        """The pipeline: everything once."""
        source = {"op": "source", "dataset": name}
        permute = [{"op": "permute", "seed": 7}] if shuffled else []
        return {"order": 1, "stages": [source, *permute, {"op": "batch", "size": SHAPES[name][1]}]}

    def local(self, name: str, *, shuffled: bool) -> OpenPipeline:
        """The same pipeline in this process."""
        store, keys = MemoryStateStore(), KeyRing([new_key()])
        catalogue = Catalogue(store, Roots([self.root]), {}, BufferPool(4))
        catalogue.register(SINGLE_USER, self.entry(name))[0].close()
        pipelines = Pipelines(catalogue, Views(catalogue, store, keys), store, keys)
        return pipelines.register(SINGLE_USER, self.spec(name, shuffled=shuffled))[0]


def drain(opened: OpenPipeline) -> None:
    """Every batch, one after the other."""
    state, reader = opened.pipeline.initial, opened.pipeline.reader(clock=time.perf_counter)
    while (step := reader.step(state)) is not None:
        state = step.state


def streams(data: Data, name: str, client: Client, rounds: int, *, shuffled: bool) -> None:
    """All batches in one answer, against the local loop and against the file itself."""
    client.json("/v1/datasets", data.entry(name))
    about = client.json("/v1/pipelines", data.spec(name, shuffled=shuffled))
    base = f"/v1/pipelines/{about['id']}"
    batches = about["batches"]
    nbytes = (data.root / name).stat().st_size
    opened = data.local(name, shuffled=shuffled)
    order = "in random order" if shuffled else "in order"
    print(f"{name} batches of {nbytes // batches} bytes, {order}:")
    middle = batches // 2
    contests: dict[str, Callable[[], float]] = {
        "local": timed(lambda: drain(opened)),
        "remote": timed(lambda: client.get(f"{base}/batches")),
        "download": timed(lambda: client.get(f"/v1/datasets/{name}/files/0")),
        "single": timed(
            lambda: [
                client.get(f"{base}/batch?after={about['token']}&offset={k % batches}")
                for k in range(BURST)
            ]
        ),
        "resume": timed(lambda: client.get(f"{base}/batch?after={about['token']}&offset={middle}")),
    }
    result = run_and_print(contests, rounds)
    opened.close()
    seconds = result["remote"]
    print(f"  {batches / seconds:,.0f} batches/s, {nbytes / seconds / 1e6:,.0f} MB/s")
    print(f"  one by one: {BURST / result['single']:,.0f} batches/s on one connection")
    print(f"  a token has {len(about['token'])} characters")
    line("  remote against the local loop", result["local"] / seconds)
    line("  remote against a download of the same bytes", result["download"] / seconds)


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of each file")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp())
    try:
        data = Data(directory, args.mib * MIB)
        warm_up()
        with running(THALWEG_DATASET_ROOTS=str(directory)) as server:
            client = Client(server.address)
            for name in SHAPES:
                for shuffled in (False, True):
                    streams(data, name, client, args.rounds, shuffled=shuffled)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
