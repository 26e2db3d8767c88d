"""What an abuser does: each case is well-formed, legal, and meant to cost others dearly.

Most cases were seen to stop, starve or drown a service. A case is a function that runs once
and returns; it ends early when ``stop`` is set. Whatever it is answered is fine, as long as
others do not notice.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tests.abuse.files import MIB, SPARSE_FRAMES
from tests.abuse.requests import Caller
from tests.e2e.samples import large_stream

Stop = threading.Event
Case = Callable[[Caller, Stop], None]

_FOREVER = {"op": "repeat", "times": 10**9}
_EVENTS = {"op": "source", "dataset": "events"}
_LINES = {"op": "source", "dataset": "one"}
_ROWS = {"op": "source", "dataset": "rows"}


def _mixed(*stages: Mapping[str, Any]) -> dict[str, Any]:
    return {"op": "mix", "inputs": [[*stages]]}


PIPELINES: Mapping[str, list[dict[str, Any]]] = {
    "never a batch": [
        _mixed({**_EVENTS, "fields": ["event"]}, _FOREVER),
        {"op": "filter", "pred": "greater", "args": {"field": "event", "value": 2e9}},
        {"op": "batch", "size": 8},
    ],
    "ragged": [_mixed(_LINES, _FOREVER), {"op": "batch", "size": 400}],
    "padded": [
        _mixed(_EVENTS, _FOREVER),
        {"op": "batch", "size": 64},
        {"op": "pad", "length": 2**24},
    ],
    "row group": [_ROWS, {"op": "batch", "size": 1}],
}
"""Stages of pipelines that cost far more than they seem to."""

DATASETS: Mapping[str, dict[str, Any]] = {
    "events": {"files": ["events.bin"], "format": "loss"},
    "one": {"files": ["one.txt"], "format": "lines"},
    "rows": {"files": ["rows.parquet"], "format": "parquet"},
    "bomb-hdf5": {"files": ["bomb.h5"], "array": "data"},
    "bomb-zarr": {"files": ["bomb.zarr"]},
    "sparse": {
        "files": ["sparse.raw"],
        "format": "raw",
        "dtype": "<f4",
        "sig_shape": [512, 512],
        "nav_shape": [SPARSE_FRAMES],
    },
}
"""Datasets that the abuser registers, by id."""


def register(caller: Caller, stop: Stop) -> None:
    """Register the datasets, some of them costly, again and again."""
    for ident, entry in DATASETS.items():
        if not stop.is_set():
            caller.ask("POST", "/v1/datasets", {"id": ident, **entry})


def _read(caller: Caller, path: str, stop: Stop, seconds: float = 20.0) -> None:
    """Read an answer to its end, but leave after some seconds."""
    deadline = time.monotonic() + seconds
    with contextlib.closing(caller.connection(timeout=2.0)) as connection:
        connection.request("GET", path, headers=caller.headers())
        with contextlib.suppress(TimeoutError):
            answer = connection.getresponse()
            while answer.read(MIB) and not stop.is_set() and time.monotonic() < deadline:
                pass


def _pipeline(name: str) -> Case:
    def case(caller: Caller, stop: Stop) -> None:
        spec = {"order": 1, "stages": PIPELINES[name]}
        answer = caller.ask("POST", "/v1/pipelines", spec)
        if answer.status in {200, 201}:
            _read(caller, f"/v1/pipelines/{answer.json()['id']}/batches", stop)

    case.__name__ = f"pipeline, {name}"
    return case


def trickle(caller: Caller, stop: Stop, connections: int = 256) -> None:
    """Hold posts open that send a byte a second."""
    data = large_stream(1)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(connections):
            with contextlib.suppress(OSError):
                head = caller.open("POST", "/v1/losses/melt", f"Content-Length: {len(data)}")
                clients.append(stack.enter_context(head))
        for at in range(30):
            for client in clients:
                with contextlib.suppress(OSError):
                    client.sendall(data[at : at + 1])
            if stop.wait(1.0):
                return


def _hold(caller: Caller, stop: Stop, method: str, path: str, size: int, count: int) -> None:
    """Send bodies of some size but for their last bytes, and hold them."""
    block = bytes(MIB)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                framing = (f"Content-Length: {size}", "Content-Type: application/json")
                client = stack.enter_context(caller.open(method, path, *framing))
                client.settimeout(2.0)
                for _ in range(size // MIB - 1):
                    client.sendall(block)
        stop.wait(10.0)


def held_inputs(caller: Caller, stop: Stop) -> None:
    """Hold ten auxiliary files of 128 MB that are almost complete."""
    _hold(caller, stop, "PUT", "/v1/inputs/quantiles", 128 * MIB, 10)


def held_views(caller: Caller, stop: Stop) -> None:
    """Hold six lists of frames of 42 MB that are almost complete."""
    _hold(caller, stop, "POST", "/v1/datasets/sparse/views", 42 * MIB, 6)


def long_list(caller: Caller, stop: Stop) -> None:
    """Send a legal list of two million frames."""
    frames = np.random.default_rng(2).integers(0, SPARSE_FRAMES, 2_000_000)
    text = ",".join(map(str, frames.tolist()))
    if not stop.is_set():
        body = f'{{"select":{{"frames":[{text}]}}}}'.encode()
        caller.ask("POST", "/v1/datasets/sparse/views", body)


def many_quantiles(caller: Caller, stop: Stop) -> None:
    """Ask for 100,000 quantiles of every block."""
    quantiles = np.unique(np.linspace(0, 1, 100_000, dtype="<f4")).tobytes()
    digest = caller.ask("PUT", "/v1/inputs/quantiles", quantiles)
    if digest.status in {200, 201} and not stop.is_set():
        path = f"/v1/losses/qelt?format=bin&quantiles={digest.json()['digest']}"
        data = large_stream(2)
        with caller.open("POST", path, f"Content-Length: {len(data)}") as client:
            client.sendall(data)
            stop.wait(15.0)


def abandoned_images(caller: Caller, stop: Stop) -> None:
    """Ask for the picture of a file of 20 GB, and leave at once."""
    for _ in range(20):
        with caller.open("GET", "/v1/datasets/sparse/image.png"):
            if stop.wait(0.2):
                return


def bombs(caller: Caller, stop: Stop) -> None:
    """Read single pixels of chunks that decode to a gigabyte."""
    for ident in ("bomb-hdf5", "bomb-zarr"):
        if not stop.is_set():
            select = {"select": {"frames": [0]}}
            view = caller.ask("POST", f"/v1/datasets/{ident}/views", select)
            if view.status in {200, 201}:
                path = f"/v1/datasets/{ident}/views/{view.json()['id']}/tiles/0"
                _read(caller, path, stop)


def counted_lines(caller: Caller, stop: Stop) -> None:
    """Have the lines of a gzip file counted that decodes to 3 GB."""
    entry = {"id": f"lines-{time.time_ns()}", "files": ["bomb.txt.gz"], "format": "lines"}
    with contextlib.closing(caller.connection(timeout=5.0)) as connection:
        connection.request(
            "POST", "/v1/datasets", json.dumps(entry).encode(), caller.headers(entry)
        )
        with contextlib.suppress(TimeoutError):
            connection.getresponse().read()
        stop.wait(1.0)


def globs(caller: Caller, stop: Stop) -> None:
    """Match patterns against a large tree."""
    for pattern in ("**/*.raw", "tree/**/*1*/**/*.raw", "**/**/**/*.none"):
        if not stop.is_set():
            entry = {"id": "glob", "files": [pattern], "format": "raw", "dtype": "<u2"}
            caller.ask("POST", "/v1/datasets", {**entry, "sig_shape": [8, 8]})


def small_requests(caller: Caller, stop: Stop) -> None:
    """Ask for small things as fast as the connection allows."""
    with contextlib.closing(caller.connection()) as connection:
        for _ in range(2000):
            if stop.is_set():
                return
            caller.ask("GET", "/v1/datasets?limit=1", connection=connection)


def deep_json(caller: Caller, stop: Stop) -> None:
    """Send JSON of great depth and large numbers."""
    for body in (b"[" * 100_000, b'{"select":{"frames":[' + b"9" * 100_000 + b"]}}"):
        if not stop.is_set():
            caller.ask("POST", "/v1/datasets/sparse/views", body)


CASES: Iterable[Case] = (
    *(_pipeline(name) for name in PIPELINES),
    trickle,
    held_inputs,
    held_views,
    long_list,
    many_quantiles,
    abandoned_images,
    bombs,
    counted_lines,
    globs,
    small_requests,
    deep_json,
)
