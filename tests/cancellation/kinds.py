"""Every kind of work, at the largest size that is admitted or that takes some ten seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.cancellation.leaving import Work
from tests.e2e.service import Service
from tests.streams import make_header

PERIODS = 1_000_000
FRAME = (256, 256)


@dataclass(frozen=True, slots=True)
class Place:
    """A server and the directory of its datasets.

    Attributes:
        server: takes any CPU time, and names no limit that a kind of work would meet.
        root: of datasets.
    """

    server: Service
    root: Path

    def store(self, kind: str, data: bytes, query: str = "") -> str:
        """Store an auxiliary file; its digest."""
        with self.server.connect(timeout=600) as connection:
            answer = connection.request("PUT", f"/v1/inputs/{kind}{query}", data)
        assert answer.status in {200, 201}, answer.body
        digest: str = answer.json()["digest"]
        return digest

    def send(self, target: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """POST an object, which creates something."""
        body = json.dumps(values).encode()
        answer = self.server.post(target, body, "Content-Type: application/json")
        assert answer.status in {200, 201}, answer.body
        return answer.json()


Kind = Callable[[Place, float], Work]
"""Prepares work, of a part of the largest size."""


def summary_stream(events: int, summaries: int, samples: int) -> bytes:
    """Blocks of all samples, for every event and summary."""
    pairs = ("pairs", [("sidx", "<i4"), ("loss", "<f4")], samples + 2)
    dtype = np.dtype([("event", "<i4"), ("ident", "<i4"), ("exposure", "<f4"), pairs])
    made = np.zeros(events * summaries, dtype)
    made["event"] = np.repeat(np.arange(1, events + 1), summaries)
    made["ident"] = np.tile(np.arange(1, summaries + 1), events)
    made["exposure"] = 1e9
    made["pairs"]["sidx"] = [-1, *range(1, samples + 1), 0]
    losses = np.random.default_rng(1).random((len(made), samples + 1), np.float32)
    made["pairs"]["loss"][:, :-1] = losses * 1e6
    return make_header("summary", samples) + made.tobytes()


def occurrences(events: int, count: int, periods: int = PERIODS) -> bytes:
    """A packed file: events happen in any order."""
    rng = np.random.default_rng(2)
    rows = np.empty((count, 3), "<i4")
    rows[:, 0] = rng.integers(1, events + 1, count)
    rows[:, 1] = rng.integers(1, periods + 1, count)
    rows[:, 2] = rng.integers(700_000, 730_000, count)
    return np.array([1, periods], "<i4").tobytes() + rows.tobytes()


def report(name: str, *, events: int, summaries: int, samples: int, count: int = 0) -> Kind:
    """A posted stream: of so many events, summaries and samples, and occurrences."""

    def prepare(place: Place, part: float) -> Work:
        query = "over_bound=try"
        if count:
            data = occurrences(events, int(count * part))
            query += f"&occurrence={place.store('occurrence', data)}"
        if name in {"qelt", "qplt"}:
            quantiles = np.linspace(0, 1, 10_000, dtype="<f4").tobytes()
            query += f"&quantiles={place.store('quantiles', quantiles)}"
        body = summary_stream(max(int(events * part), 1), summaries, samples)
        return Work("POST", f"/v1/losses/{name}?{query}", body)

    return prepare


def at_return_periods(name: str, **sizes: int) -> Kind:
    """The same, with exceedance curves that are read at return periods."""

    def prepare(place: Place, part: float) -> Work:
        work = report(name, **sizes)(place, part)
        return Work(work.method, f"{work.target}&return_periods=1000,250,100,10,5,2", work.body)

    return prepare


def occurrence_csv(place: Place, part: float) -> Work:  # noqa: ARG001 - a kind of work
    """The largest csv that is taken as an input."""
    line = b"1234,%d,2000,1,1\n"
    body = b"".join(line % period for period in range(1, int(5_000_000 * part)))
    return Work("PUT", f"/v1/inputs/occurrence?no_of_periods={PERIODS * 10}", body)


def summaries_of_items(place: Place, part: float) -> Work:
    """Items that are added up into as many summaries."""
    items = int(1_000_000 * part)
    xref = np.ones((items, 3), "<i4")
    xref[:, 0] = xref[:, 1] = np.arange(1, items + 1)
    digest = place.store("summary_xref", xref.tobytes())
    block = np.zeros(items, [("event", "<i4"), ("item", "<i4"), ("pairs", "<i4,<f4", 4)])
    block["item"] = np.arange(1, items + 1)
    block["pairs"]["f0"] = [-1, 1, 2, 0]
    block["pairs"]["f1"] = [1, 2, 3, 0]
    body = [make_header("loss", 2)]
    for event in range(1, 6):
        block["event"] = event
        body.append(block.tobytes())
    return Work("POST", f"/v1/losses/selt?summary_xref={digest}", b"".join(body))


def _frames(place: Place, part: float) -> str:
    """A sparse recording of frames; its dataset."""
    frames = max(int((1 << 16) * part), 1)
    ident = f"frames-{frames}"
    path = place.root / ident
    if not path.exists():
        with path.open("wb") as file:
            file.truncate(frames * FRAME[0] * FRAME[1] * 2)
        entry = {"id": ident, "files": [ident], "format": "raw", "dtype": "<u2"}
        place.send("/v1/datasets", {**entry, "sig_shape": FRAME})
    return ident


def tiles(**view: Any) -> Kind:  # noqa: ANN401 - JSON
    """The tiles of a view of a recording."""

    def prepare(place: Place, part: float) -> Work:
        ident = _frames(place, part)
        made = place.send(f"/v1/datasets/{ident}/views", view)
        return Work("GET", f"/v1/datasets/{ident}/views/{made['id']}/tiles")

    return prepare


def reduction(**spec: Any) -> Kind:  # noqa: ANN401 - JSON
    """A reduction of a whole recording."""

    def prepare(place: Place, part: float) -> Work:
        body = json.dumps({"reduction": spec}).encode()
        headers = ("Content-Type: application/json",)
        return Work("POST", f"/v1/datasets/{_frames(place, part)}/reduce", body, headers)

    return prepare


def pipeline(*stages: dict[str, Any]) -> Kind:
    """Batches of long records in another order."""

    def prepare(place: Place, part: float) -> Work:
        rows = max(int(2_000_000 * part), 1000)
        path = place.root / f"rows-{rows}.npy"
        if not path.exists():
            np.save(path, np.arange(4 * rows, dtype=np.float32).reshape(rows, 4))
            entry = {"id": f"rows-{rows}", "files": [path.name], "format": "npy", "sig_dims": 1}
            place.send("/v1/datasets", entry)
        source = {"op": "source", "dataset": f"rows-{rows}"}
        made = place.send("/v1/pipelines", {"order": 1, "stages": [source, *stages]})
        return Work("GET", f"/v1/pipelines/{made['id']}/batches")

    return prepare


def decoding(place: Place, part: float) -> Work:
    """Compressed chunks of HDF5, decoded by processes of their own."""
    frames = max(int(2048 * part), 1)
    path = place.root / f"frames-{frames}.h5"
    if not path.exists():
        values = np.random.default_rng(3).poisson(5, (frames, *FRAME)).astype("<u2")
        with h5py.File(path, "w") as file:
            chunks = (min(frames, 64), *FRAME)
            file.create_dataset("data", data=values, chunks=chunks, compression="gzip")
        entry = {"id": path.stem, "files": [path.name], "format": "hdf5", "path": "/data"}
        place.send("/v1/datasets", entry)
    body = json.dumps({"reduction": {"op": "std", "over": "frames"}}).encode()
    target = f"/v1/datasets/{path.stem}/reduce"
    return Work("POST", target, body, ("Content-Type: application/json",))


_LONG = {"events": 200, "summaries": 20, "samples": 100, "count": 3_000_000}
_WIDE = {"events": 1000, "summaries": 1, "samples": 100, "count": 10_000}
_MANY = {"events": 20_000, "summaries": 10, "samples": 100}

KINDS: dict[str, Kind] = {
    **{name: report(name, **_MANY) for name in ("events", "selt", "melt")},
    "qelt": report("qelt", events=2000, summaries=10, samples=100),
    **{name: report(name, **_LONG) for name in ("splt", "mplt", "qplt")},
    "aal": report("aal", events=1000, summaries=20, samples=100, count=8_000_000),
    "alct": report("alct", events=1000, summaries=20, samples=100, count=8_000_000),
    "ept": report("ept", **_WIDE),
    "psept": report("psept", **_WIDE),
    "ept at return periods": at_return_periods("ept", **_WIDE | {"count": 100_000}),
    "ept of many occurrences": at_return_periods("ept", **_WIDE | {"count": 8_000_000}),
    "summaries of items": summaries_of_items,
    "occurrence csv": occurrence_csv,
    "tiles": tiles(dtype="<f8"),
    "shuffled tiles": tiles(select={"shuffle": {"seed": 1}}),
    "sum": reduction(op="sum", over="frames"),
    "std": reduction(op="std", over="frames"),
    "com": reduction(op="com"),
    "virtual detectors": reduction(
        op="virtual",
        detectors=[{"disk": {"centre": [128, 128], "radius": r}} for r in range(9, 73)],
    ),
    "shuffle": pipeline(
        {"op": "shuffle", "kind": "block", "size": 1 << 18}, {"op": "batch", "size": 64}
    ),
    "reservoir": pipeline(
        {"op": "shuffle", "kind": "reservoir", "size": 1 << 18}, {"op": "batch", "size": 64}
    ),
    "decoding": decoding,
}
"""What servers work on, by name. A new kind of work is a row here."""
