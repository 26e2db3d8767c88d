"""Reads tiles with the peer's data sets; started by the peer's own interpreter.

Reads one JSON object a line from standard input: a file, how to read it, and where to
put the bytes of all tiles. Answers each with a line: ``{"tiles": [[origin, shape,
scheme index], …], "dtype"}``, or ``{"error"}`` with what it raised. A request with a
member ``only_time`` is answered with ``{"seconds"}`` that going through all tiles took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def _corrections(job: dict[str, Any], sig_shape: tuple[int, ...]) -> Any:  # noqa: ANN401
    import sparse  # type: ignore[import-not-found]
    from libertem.io.corrections import CorrectionSet  # type: ignore[import-not-found]

    excluded = None
    if job["excluded"]:
        coords = np.array(job["excluded"]).T
        excluded = sparse.COO(coords=coords, data=True, shape=sig_shape)
    dark, gain = (None if job[name] is None else np.load(job[name]) for name in ("dark", "gain"))
    return CorrectionSet(dark=dark, gain=gain, excluded_pixels=excluded)


def _reading(job: dict[str, Any]) -> list[Iterator[Any]]:
    """The tiles of each partition, yet to be read."""
    from libertem.common import Shape  # type: ignore[import-not-found]
    from libertem.executor.inline import InlineJobExecutor  # type: ignore[import-not-found]
    from libertem.io.dataset.base import TilingScheme  # type: ignore[import-not-found]
    from libertem.io.dataset.npy import NPYDataSet  # type: ignore[import-not-found]
    from libertem.io.dataset.raw import RawFileDataSet  # type: ignore[import-not-found]

    options = {
        "path": job["path"],
        "nav_shape": tuple(job["nav_shape"]),
        "sig_shape": tuple(job["sig_shape"]),
        "sync_offset": job["sync_offset"],
    }
    if job["format"] == "raw":
        dataset = RawFileDataSet(dtype=job["dtype"], num_partitions=1, **options)
    else:
        dataset = NPYDataSet(num_partitions=1, **options)
    dataset = dataset.initialize(InlineJobExecutor())
    scheme = TilingScheme.make_for_shape(
        tileshape=Shape(tuple(job["tile_shape"]), sig_dims=len(job["sig_shape"])),
        dataset_shape=dataset.shape,
    )
    roi = None if job["roi"] is None else np.load(job["roi"])
    partitions = list(dataset.get_partitions())
    for partition in partitions:
        if job["dark"] or job["gain"] or job["excluded"]:
            partition.set_corrections(_corrections(job, tuple(job["sig_shape"])))
    return [p.get_tiles(scheme, dest_dtype=job["read_dtype"], roi=roi) for p in partitions]


def _seconds(job: dict[str, Any]) -> dict[str, Any]:
    reading = _reading(job)
    begin = time.perf_counter()
    count = sum(1 for partition in reading for _ in partition)
    return {"seconds": time.perf_counter() - begin, "count": count}


def _run(job: dict[str, Any]) -> dict[str, Any]:
    tiles: list[list[Any]] = []
    kept: list[Any] = []
    for tile in (tile for partition in _reading(job) for tile in partition):
        data = np.asarray(tile.data)
        where = [int(i) for i in tile.tile_slice.origin]
        tiles.append([where, list(data.shape), int(tile.scheme_idx)])
        # As a caller may: look at each tile in turn, or keep them all.
        kept.append(data if job["keep"] else data.copy())
    little = np.dtype(job["read_dtype"]).newbyteorder("<")
    octets = [np.ascontiguousarray(data, little).tobytes() for data in kept]
    Path(job["out"]).write_bytes(b"".join(octets))
    return {"tiles": tiles, "dtype": little.str}


def main() -> None:
    for line in sys.stdin:
        try:
            job = json.loads(line)
            answer = _seconds(job) if job.get("only_time") else _run(job)
        except Exception as e:  # noqa: BLE001 - whatever it is, it is the answer
            answer = {"error": f"{type(e).__name__}: {str(e)[:300]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
