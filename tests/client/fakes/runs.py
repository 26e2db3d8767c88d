"""The part of the small service that keeps runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .exchange import Exchange, Refusal, Seen
from .frames import DATA, END, Frames, with_beats

RUN = "r1"
ROWS = np.dtype([("EventId", "<i4"), ("Loss", "<f4")])
_STREAM = re.compile(r"/v1/runs/r1/streams/(\w+)$")
_ANSWERS = re.compile(r"/v1/runs/r1/(rows|reports|progress)")


@dataclass
class Stored:
    """A stream."""

    partition: int
    length: int | None
    data: bytearray = field(default_factory=bytearray)
    complete: bool = False

    def json(self, ident: str) -> dict[str, Any]:
        state = "complete" if self.complete else "uploading" if self.data else "created"
        from app.runs.uploads.appending import ContentHasher  # which there is not beside torch

        hasher = ContentHasher()
        hasher.update(memoryview(self.data))
        return {
            "id": ident,
            "partition": self.partition,
            "state": state,
            "offset": len(self.data),
            "length": self.length,
            "events": 0,
            "fault": None,
            "digest": hasher.digest().total if self.complete else None,
        }


@dataclass
class FakeRuns:
    """One run.

    Attributes:
        spec: as it was created with.
        keys: of its creations.
        streams: by id.
        commit: bytes after which an append is told what is stored; 0 for never.
        limit: of one append, None for any.
        received: bytes of all appends.
        state: of the run.
        computing: questions for a report or the state before it is there.
        report: bytes of its only report.
        dtype: of the records of these bytes, as numpy describes it; None for none.
        told: further headers of these bytes.
        events: of its progress.
        document: further members of its description.
        changed: what it was sealed with.
    """

    spec: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    streams: dict[str, Stored] = field(default_factory=dict)
    commit: int = 0
    limit: int | None = None
    received: int = 0
    state: str = "uploading"
    computing: int = 0
    problem: dict[str, Any] | None = None
    report: bytes = b"1,2,3\n" * 1000
    dtype: Any = None
    told: dict[str, str] = field(default_factory=dict)
    events: int = 5
    document: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return {
            "id": RUN,
            "state": self.state,
            "problem": self.problem,
            "streams": {},
            "options": self.spec.get("options", {}),
            **self.document,
        }

    def rows(self, partition: int) -> Any:  # noqa: ANN401
        rows = np.zeros(10, ROWS)
        rows["EventId"] = np.arange(10) + 100 * partition
        return rows


def breaks(seen: Seen) -> bool:
    """Whether a request is one that a script may break."""
    return seen.method == "PATCH" or _ANSWERS.match(seen.path) is not None


def answer(exchange: Exchange, runs: FakeRuns) -> None:
    seen = exchange.seen
    stream = _STREAM.match(seen.path)
    if stream is not None:
        _stream(exchange, runs, stream[1])
    elif seen.path.endswith("/streams"):
        _streams(exchange, runs)
    elif "/rows/" in seen.path:
        _rows(exchange, runs)
    elif "/reports" in seen.path:
        _report(exchange, runs)
    elif seen.path.endswith("/progress"):
        _progress(exchange, runs)
    else:
        _run(exchange, runs)


def _run(exchange: Exchange, runs: FakeRuns) -> None:
    seen, body = exchange.seen, b"".join(exchange.body())
    if seen.method == "POST" and seen.path == "/v1/runs":
        runs.spec = json.loads(body)
        runs.keys.append(seen.headers["idempotency-key"])
        exchange.json(201, runs.json())
    elif seen.path == "/v1/runs":
        last = seen.query.get("after") is not None
        exchange.json(200, {"runs": [runs.json()], "after": None if last else RUN})
    elif seen.path.endswith("/seal"):
        runs.state = "computing"
        runs.changed = json.loads(body or b"{}")
        exchange.json(202, runs.json())
    elif seen.path != f"/v1/runs/{RUN}":
        raise Refusal(404, "not-found")
    elif seen.method == "DELETE":
        exchange.head(204, {}, 0)
    elif seen.method == "PATCH":
        runs.spec |= json.loads(body)
        exchange.json(200, runs.json())
    else:
        if runs.state == "computing":
            runs.computing -= 1
            if runs.computing < 0:
                runs.state = "failed" if runs.problem else "done"
        exchange.json(200, runs.json())


def _streams(exchange: Exchange, runs: FakeRuns) -> None:
    seen, body = exchange.seen, b"".join(exchange.body())
    if seen.method == "GET":
        after = seen.query.get("after", "")
        names = [name for name in sorted(runs.streams) if name > after]
        page = [runs.streams[name].json(name) for name in names[:1]]
        exchange.json(200, {"streams": page, "after": names[0] if len(names) > 1 else None})
        return
    assert not body
    partition = int(seen.query["partition"])
    if any(stream.partition == partition for stream in runs.streams.values()):
        raise Refusal(409, "partition-exists")
    ident = f"s{partition}"
    length = seen.headers.get("upload-length")
    runs.streams[ident] = Stored(partition, None if length is None else int(length))
    exchange.head(201, {"Location": f"http://x/v1/runs/{RUN}/streams/{ident}", **_limit(runs)}, 0)


def _limit(runs: FakeRuns) -> dict[str, str]:
    members = "max-size=1000000000" + (f", max-append-size={runs.limit}" if runs.limit else "")
    return {"Upload-Limit": members}


def _stream(exchange: Exchange, runs: FakeRuns, ident: str) -> None:
    seen = exchange.seen
    stream = runs.streams.get(ident)
    if stream is None:
        raise Refusal(404, "not-found")
    if seen.method == "DELETE":
        del runs.streams[ident]
        exchange.head(204, {}, 0)
    elif seen.method == "HEAD":
        exchange.head(204, {**_state(stream), **_limit(runs)}, 0)
    else:
        assert seen.headers["upload-draft-interop-version"] == "8"
        assert seen.headers["content-type"] == "application/partial-upload"
        _append(exchange, runs, stream)


def _state(stream: Stored) -> dict[str, str]:
    complete = "?1" if stream.complete else "?0"
    return {"Upload-Offset": str(len(stream.data)), "Upload-Complete": complete}


def _append(exchange: Exchange, runs: FakeRuns, stream: Stored) -> None:
    if exchange.fault.early and exchange.refuse():
        return
    if exchange.seen.headers["upload-offset"] != str(len(stream.data)) or stream.complete:
        exchange.json(409, {"code": "offset-mismatch"}, _state(stream))
        return
    told = len(stream.data)
    for piece in exchange.body():
        stream.data += piece
        runs.received += len(piece)
        if runs.commit and len(stream.data) - told >= runs.commit:
            told = len(stream.data)
            exchange.write(f"HTTP/1.1 104 Upload\r\nUpload-Offset: {told}\r\n\r\n".encode())
    if runs.limit is not None:
        assert exchange.seen.size <= runs.limit
    if exchange.refuse():
        return
    stream.complete = exchange.seen.headers["upload-complete"] == "?1"
    exchange.head(200 if stream.complete else 204, _state(stream), 0)


# -- results -------------------------------------------------------------------------------


def _rows(exchange: Exchange, runs: FakeRuns) -> None:
    after = int(exchange.seen.query.get("after", "0"))
    frames: Frames = []
    for number, name in enumerate(sorted(runs.streams)):
        table = runs.rows(runs.streams[name].partition)
        for at in range(0, 10, 2):
            position = 10 * number + at + 2
            if position > after:
                frames.append(_row_frame(runs.streams[name], name, table[at : at + 2], position))
    drained = exchange.fault.drain
    if drained is not None:
        frames = [*frames[:drained], (END, {"reason": "drain"}, b"")]
    else:
        frames.append((END, {"reason": "sealed"}, b""))
    exchange.frames(with_beats(frames))


def _row_frame(stream: Stored, name: str, rows: Any, at: int) -> tuple[int, Any, bytes]:  # noqa: ANN401
    data = rows.tobytes()
    array: dict[str, Any] = {"name": "rows", "dtype": ROWS.descr, "shape": [len(rows)]}
    array |= {"offset": 0, "nbytes": len(data)}
    header: Mapping[str, Any] = {
        "token": str(at),
        "stream": name,
        "partition": stream.partition,
        "arrays": [array],
    }
    return DATA, dict(header), data


def _report(exchange: Exchange, runs: FakeRuns) -> None:
    if exchange.refuse():
        return
    if exchange.seen.method == "POST":
        runs.spec["more"] = json.loads(b"".join(exchange.body()))
        exchange.json(202, {"run": RUN, "variant": "v1", "reports": {}})
        return
    if runs.computing > 0:
        runs.computing -= 1
        exchange.json(202, runs.json(), {"Retry-After": "3"})
        return
    data, start, status = runs.report, 0, 200
    headers = {"ETag": '"e1"', **runs.told}
    if exchange.seen.query["format"] == "bin" and runs.dtype is not None:
        headers["Thalweg-Dtype"] = json.dumps(runs.dtype)
    if "summary_ids" in exchange.seen.query:
        exchange.head(200, headers, None)
        exchange.chunk(data[:3500], last=False)
        exchange.chunk(data[3500:], last=True)
        return
    span = exchange.seen.headers.get("range")
    if span is not None and exchange.seen.headers.get("if-range") == '"e1"':
        start, status = int(span.removeprefix("bytes=").rstrip("-")), 206
        headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
    exchange.head(status, headers, len(data) - start)
    exchange.write(data[start:])


def _progress(exchange: Exchange, runs: FakeRuns) -> None:
    if exchange.refuse():
        return
    after = int(exchange.seen.headers.get("last-event-id", "0"))
    exchange.head(200, {"Content-Type": "text/event-stream"}, None)
    for number in range(after + 1, runs.events + 1):
        state = "done" if number == runs.events else "uploading"
        data = json.dumps({"state": state, "number": number})
        text = f": beat\n\nid: {number}\nevent: state\ndata: {data}\n\n"
        exchange.chunk(text.encode(), last=False)
    exchange.chunk(b'event: end\ndata: {"reason": "exhausted"}\n\n', last=True)
