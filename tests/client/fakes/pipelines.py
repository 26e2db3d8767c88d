"""The part of the small service that has a pipeline: items in batches, over some epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt

from .exchange import Exchange, Refusal
from .frames import DATA, END, EPOCH, Frames

Array = npt.NDArray[Any]

REGISTERED = "0123456789abcdef" * 2
"""Id of a pipeline of this spec."""
SPEC = {"order": 1, "stages": [{"op": "source", "dataset": "items"}, {"op": "batch", "size": 4}]}
RECORD = np.dtype([("a", "<i4"), ("b", "<f4", (2,))])


@dataclass
class FakePipeline:
    """The pipeline.

    Items are numbered; the fields of item i are functions of i.

    Attributes:
        items: of an epoch.
        size: of a global batch.
        epochs: how often all items come.
        fields: which fields items have: any of x, m, r, t, s.
        fingerprint: changes with the data.
        known: whether the pipeline was told since the service started.
        tells_length: whether it is said how many batches there are.
        most: batches of an answer, if the service has a limit of its own.
        reason: how an answer ends that has reached that limit.
        key: of the tokens; that of ``old`` must be renewed.
        bend: does something to the frames of an answer, once.
        change: members of the description that are others.
        delays: seconds before a batch, by number.
        notes: at the end, of why there is no batch.
    """

    items: int = 22
    size: int = 4
    epochs: int = 2
    fields: tuple[str, ...] = ("x", "m", "r")
    fingerprint: str = "f0"
    known: bool = True
    tells_length: bool = True
    most: int | None = None
    reason: str = "time"
    key: str = "k"
    bend: Callable[[Frames], Frames] | None = None
    change: dict[str, Any] = field(default_factory=dict)
    delays: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def per_epoch(self) -> int:
        return -(-self.items // self.size)

    @property
    def batches(self) -> int:
        return self.per_epoch * self.epochs

    def columns(self, sequence: int, rank: int = 0, world: int = 1) -> dict[str, Any]:
        """Fields of a batch; a ragged one as (values, offsets)."""
        epoch, within = divmod(sequence, self.per_epoch)
        order = np.random.default_rng(epoch).permutation(self.items)
        ids = order[within * self.size : (within + 1) * self.size]
        ids = ids[rank * len(ids) // world : (rank + 1) * len(ids) // world]
        made = {name: _COLUMNS[name](ids) for name in self.fields}
        return {name: made[name] for name in self.fields}

    def rows(self, sequence: int, rank: int, world: int) -> list[int]:
        count = self.count(sequence)
        return [rank * count // world, (rank + 1) * count // world]

    def count(self, sequence: int) -> int:
        within = sequence % self.per_epoch
        return min(self.size, self.items - within * self.size)

    def about(self) -> dict[str, Any]:
        schema = []
        for name, column in self.columns(0).items():
            values = column[0] if isinstance(column, tuple) else column
            schema.append(
                {
                    "name": name,
                    "dtype": _descr(values.dtype),
                    "shape": list(values.shape[1:]),
                    "ragged": isinstance(column, tuple),
                }
            )
        return {
            "id": "p1",
            "token": self.token(0),
            "fingerprint": self.fingerprint,
            "schema": schema,
            "batch_size": self.size,
            "batches": self.batches if self.tells_length else None,
            "batches_per_epoch": self.per_epoch,
            "items": self.items,
            "spec": SPEC,
        } | self.change

    def token(self, sequence: int) -> str:
        return f"{sequence}.{self.fingerprint}.{self.key}"

    def frame(self, sequence: int, rank: int, world: int) -> tuple[int, dict[str, Any], bytes]:
        payload, arrays = bytearray(), []
        for name, column in self.columns(sequence, rank, world).items():
            parts = {name: column}
            if isinstance(column, tuple):
                parts = {name: column[0], f"{name}.offsets": column[1]}
            for part, array in parts.items():
                payload += bytes(-len(payload) % 64)
                arrays.append(
                    {
                        "name": part,
                        "dtype": _descr(array.dtype),
                        "shape": list(array.shape),
                        "offset": len(payload),
                        "nbytes": array.nbytes,
                    }
                )
                payload += array.tobytes()
        header = {
            "seq": sequence,
            "epoch": sequence // self.per_epoch,
            "count": self.count(sequence),
            "rows": self.rows(sequence, rank, world),
            "token": self.token(sequence + 1),
            "arrays": arrays,
        }
        return DATA, header, bytes(payload)

    def stream(self, first: int, rank: int, world: int, most: int | None, every: int = 1) -> Frames:
        asked = self.batches if most is None else first + every * most
        limit = self.batches if self.most is None else first + every * self.most
        last = min(asked, limit, self.batches)
        made: Frames = []
        for sequence in range(first, last, every):
            made.append(self.frame(sequence, rank, world))
            if (sequence + 1) % self.per_epoch == 0:
                token = self.token(sequence + 1)
                made.append((EPOCH, {"epoch": sequence // self.per_epoch, "token": token}, b""))
        reason = "exhausted" if last == self.batches else "count" if last == asked else self.reason
        end = {
            "reason": reason,
            "data_finished": last == self.batches,
            "token": self.token(max(range(first, last, every), default=first - 1) + 1),
            "profile": {"source": 0.25},
        } | ({"notes": self.notes} if self.notes else {})
        made.append((END, end, b""))
        return made


def _ragged(ids: Array) -> tuple[Array, Array]:
    lengths = ids % 3
    values = np.repeat(ids, lengths).astype(">f8")
    return values, np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")


def _records(ids: Array) -> Array:
    made = np.zeros(len(ids), RECORD)
    made["a"] = ids
    made["b"] = np.stack([ids, -ids], axis=1)
    return made


_COLUMNS: Mapping[str, Callable[[Array], Any]] = {
    "x": lambda ids: ids.astype("<i8"),
    "m": lambda ids: (ids[:, None, None] + np.arange(6).reshape(2, 3)).astype("<f4"),
    "r": _ragged,
    "t": _records,
    "s": lambda ids: np.array([f"item {i}" for i in ids], "S8"),
    "w": lambda ids: ids.astype("<M8[s]"),
}


def _descr(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401
    return dtype.str if dtype.names is None else dtype.descr


def answer(exchange: Exchange, pipeline: FakePipeline, body: bytes) -> None:
    """Answer a request about pipelines."""
    parts = urlsplit(exchange.seen.target)
    query = {k: v[0] for k, v in parse_qs(parts.query).items()}
    route = parts.path.removeprefix("/v1/pipelines").strip("/").split("/")
    try:
        match route:
            case [""]:
                _create(exchange, pipeline, json.loads(body))
            case ["p1"] if exchange.seen.method == "DELETE" and pipeline.known:
                pipeline.known = False
                exchange.head(204, {}, 0)
            case [ident] if ident == REGISTERED:
                exchange.json(200, {"id": ident, "spec": SPEC})
            case ["p1", "batches"]:
                _stream(exchange, pipeline, query)
            case _:
                exchange.json(404, {"code": "not-found", "detail": "there is no such pipeline"})
    except Refusal as e:
        exchange.json(e.status, e.problem)


def _create(exchange: Exchange, pipeline: FakePipeline, spec: Any) -> None:  # noqa: ANN401
    if not spec.get("stages"):
        raise Refusal(422, "pipeline")
    pipeline.known = True
    exchange.json(201, pipeline.about())


def _position(pipeline: FakePipeline, query: Mapping[str, str]) -> tuple[int, int, int]:
    if not pipeline.known:
        raise Refusal(404, "not-found")
    place, fingerprint, key = query["after"].split(".")
    if key == "cut":
        raise Refusal(403, "token-forged")
    if key == "old":
        raise Refusal(410, "token-retired")
    if fingerprint != pipeline.fingerprint:
        raise Refusal(412, "data-changed")
    rank, world = int(query["rank"]), int(query["world"])
    if not rank < world <= pipeline.size:
        raise Refusal(422, "options")
    return int(place), rank, world


def _stream(exchange: Exchange, pipeline: FakePipeline, query: Mapping[str, str]) -> None:
    first, rank, world = _position(pipeline, query)
    most = int(query["max_batches"]) if "max_batches" in query else None
    first, every = first + int(query.get("offset", "0")), int(query.get("every", "1"))
    made = pipeline.stream(first, rank, world, most, every)
    bend, pipeline.bend = pipeline.bend, None
    made = bend(made) if bend else made
    if (drain := exchange.fault.drain) is not None:
        end = {"reason": "drain", "data_finished": False, "token": pipeline.token(first + drain)}
        data = [number for number, each in enumerate(made) if each[0] == DATA]
        made = [*made[: data[drain] if drain < len(data) else -1], (END, end, b"")]
    late = {n: pipeline.delays.get(each[1].get("seq", -1)) for n, each in enumerate(made)}
    exchange.frames(made, pauses={n: seconds for n, seconds in late.items() if seconds})
