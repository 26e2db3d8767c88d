"""A small service that speaks the contract, and misbehaves by a script.

Its streams are records of 16 bytes: event, value, and eight bytes that do not matter. An
event is a run of equal ids. The one report has a row per record; the other, ``count``,
one per event.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from . import pipelines as fake_batches
from . import tiles as fake_tiles

RECORD = 16
_STREAM = re.compile(
    r"^/v1/(datasets/scan/(tiles|reduce|views/[^/]+/raw)|pipelines/[^/]+/batch(es)?)$"
)
ROWS = np.dtype([("EventId", "<i4"), ("Loss", "<f4")])
COUNTS = np.dtype([("EventId", "<i4"), ("Count", "<i4")])
DTYPES = {"rows": ROWS, "count": COUNTS}
DATA, END, ERROR, HEARTBEAT = 1, 3, 4, 5

Table = npt.NDArray[np.void]


def make_stream(events: int, most: int = 5, seed: int = 1) -> bytes:
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(1, events + 1), rng.integers(1, most, events, endpoint=True))
    records = np.zeros(len(ids), [("event", "<i4"), ("value", "<f4"), ("rest", "<u8")])
    records["event"] = ids
    records["value"] = rng.random(len(ids))
    records["rest"] = rng.integers(0, 1 << 62, len(ids))
    return records.tobytes()


def tables(stream: bytes) -> dict[str, Table]:
    ids = np.frombuffer(stream, "<i4")[::4]
    rows = np.empty(len(ids), ROWS)
    rows["EventId"] = ids
    rows["Loss"] = np.frombuffer(stream, "<f4")[1::4]
    unique, counts = np.unique(ids, return_counts=True)
    count = np.empty(len(unique), COUNTS)
    count["EventId"], count["Count"] = unique, counts
    return {"rows": rows, "count": count}


def csv(table: Table) -> bytes:
    return "".join(f"{a},{b:.6f}\n" for a, b in table.tolist()).encode()


def frame(
    kind: int, header: Mapping[str, Any], payload: bytes, number: int, flags: int = 0
) -> bytes:
    text = json.dumps(header).encode()
    head = struct.pack("<4sBBHIQ", b"TWG1", kind, flags, 0, len(text), len(payload))
    tail = struct.pack("<I", number)
    checksum = xxh3_64_intdigest(head + tail + text + payload)
    return head + struct.pack("<Q", checksum) + tail + text + payload


@dataclass
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    size: int = 0

    @property
    def query(self) -> dict[str, str]:
        return {k: v[0] for k, v in parse_qs(urlsplit(self.target).query).items()}

    @property
    def partial(self) -> bool:
        return self.headers.get("upload-complete") == "?0"


@dataclass
class Fault:
    """What goes wrong with one request.

    Attributes:
        cut: bytes of the answer, its head included, before the connection is closed.
        stop_reading: bytes of the body after which the connection is reset.
        status: refuse with this instead.
        headers: of the refusal.
        problem: of the refusal.
        change: does something to the whole answer.
        early: refuse before the body is read.
        drain: events after which the answer ends because the service stops.
    """

    cut: int | None = None
    stop_reading: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    problem: dict[str, Any] = field(default_factory=dict)
    change: Callable[[bytes], bytes] | None = None
    early: bool = False
    drain: int | None = None


class Gone(Exception):  # noqa: N818
    """The connection is over."""


class Engine:
    """Turns the records of one request into tables, from a token on."""

    def __init__(self, token: str | None) -> None:
        parts = [int(part) for part in token.split(".")] if token else [0, 0, 0, 0, 0]
        self.offset, self._seen, self._digest, self.events, _ = parts
        self._held = b""
        self.read = self.offset
        self._checked = not self._seen

    def feed(self, data: bytes, *, last: bool) -> list[tuple[bytes, str]]:
        """Records of every event that is complete now, each with the token behind it."""
        self._held += data
        self.read += len(data)
        if not self._checked and (last or len(self._held) >= self._seen):
            if xxh3_64_intdigest(self._held[: self._seen]) != self._digest:
                raise Refusal(412, "data-changed", "the bytes are others")
            self._checked = True
        if last and len(self._held) % RECORD:
            raise Refusal(400, "stream-truncated", "the stream ends inside a record", self.read)
        whole = len(self._held) // RECORD * RECORD
        ids = np.frombuffer(self._held[:whole], "<i4")[::4]
        if len(ids) and ids.min() < 1:
            raise Refusal(400, "event-id", "an event id below 1", self.offset)
        edges = [*(np.flatnonzero(np.diff(ids)) + 1), *([len(ids)] if last and len(ids) else [])]
        done: list[tuple[bytes, str]] = []
        at = 0
        for edge in edges:
            event = self._held[at * RECORD : int(edge) * RECORD]
            at = int(edge)
            self.offset += len(event)
            self.events += 1
            done.append((event, self.token(self._held[at * RECORD :])))
        self._held = self._held[at * RECORD :]
        return done

    def token(self, unfinished: bytes | None = None) -> str:
        held = self._held if unfinished is None else unfinished
        return f"{self.offset}.{len(held)}.{xxh3_64_intdigest(held)}.{self.events}.0"


class Refusal(Exception):  # noqa: N818
    def __init__(self, status: int, code: str, detail: str, offset: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = {"code": code, "title": code, "status": status, "detail": detail}
        if offset is not None:
            self.problem["offset"] = offset


class FakeService:
    """Listens on loopback until it is closed.

    Args:
        script: a fault, or None, for each losses request or stream of a dataset or pipeline
            in turn; none after the last.
        split: rows of a frame; an event with more has several, with MORE.
        chunked: answer in chunks instead of with a length.
        heartbeats: send one behind every frame.
        delay: seconds before an answer.
    """

    def __init__(
        self,
        script: list[Fault | None] | None = None,
        *,
        split: int = 2,
        chunked: bool = True,
        heartbeats: bool = False,
        delay: float = 0.0,
    ) -> None:
        self.script = list(script or [])
        self.split = split
        self.chunked = chunked
        self.heartbeats = heartbeats
        self.delay = delay
        self.seen: list[Seen] = []
        self.inputs: dict[str, bytes] = {}
        self.ready = True
        self.scan = fake_tiles.FakeScan()
        self.pipeline = fake_batches.FakePipeline()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def losses(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.target.startswith("/v1/losses")]

    @property
    def streams(self) -> list[Seen]:
        return [seen for seen in self.seen if _STREAM.search(urlsplit(seen.target).path)]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut_all()

    def cut_all(self) -> None:
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rb")
            try:
                while _Exchange(self, connection, file).run():
                    pass
            except (Gone, OSError, ValueError):
                return
            finally:
                file.close()


class _Exchange:
    """One request and its answer."""

    def __init__(self, service: FakeService, connection: socket.socket, file: Any) -> None:  # noqa: ANN401
        self.service = service
        self.connection = connection
        self.file = file
        self.fault = Fault()
        self.sent = 0
        self.number = 0

    def run(self) -> bool:
        line = self.file.readline().decode()
        if not line:
            return False
        method, target, _ = line.split()
        headers = {}
        while (field_line := self.file.readline().decode().strip()) != "":
            name, _, value = field_line.partition(":")
            headers[name.lower()] = value.strip()
        self.seen = Seen(method, target, headers)
        self.service.seen.append(self.seen)
        if target.startswith("/v1/losses") or _STREAM.search(urlsplit(target).path):
            self.fault = (self.service.script.pop(0) if self.service.script else None) or Fault()
        else:
            self.fault = Fault()
        if target.startswith("/v1/losses"):
            self._losses()
        elif target.startswith("/v1/datasets"):
            self.sent = 0
            fake_tiles.answer(self, self.service.scan, b"".join(self._body()))
        elif target.startswith("/v1/pipelines"):
            self.sent = 0
            fake_batches.answer(self, self.service.pipeline, b"".join(self._body()))
        else:
            self._small(b"".join(self._body()))
        return True

    def _body(self) -> Iterator[bytes]:
        for piece in self._pieces():
            self.seen.size += len(piece)
            limit = self.fault.stop_reading
            if limit is not None and self.seen.size >= limit:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                raise Gone
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        if self.seen.headers.get("transfer-encoding") != "chunked":
            left = int(self.seen.headers.get("content-length", "0"))
            while left:
                piece = self.file.read1(min(left, 1 << 16))
                if not piece:
                    raise Gone
                left -= len(piece)
                yield piece
            return
        while size := int(self.file.readline() or b"x", 16):
            piece = self.file.read(size)
            self.file.readline()
            yield piece
        self.file.readline()

    # -- answers ---------------------------------------------------------------------

    def _small(self, body: bytes) -> None:
        path = urlsplit(self.seen.target).path
        if path.startswith("/v1/inputs/"):
            digest = f"{xxh3_64_intdigest(body):016x}"
            self.service.inputs[digest] = body
            self._json(201, {"name": path.rpartition("/")[2], "digest": digest})
        elif path == "/v1/tokens/refresh":
            self._json(200, {"token": json.loads(body)["token"].rpartition(".")[0] + ".0"})
        elif path == "/v1/tokens/inspect":
            self._json(200, {"kind": "losses", "token": json.loads(body)["token"]})
        elif path == "/readyz":
            self._json(200 if self.service.ready else 503, {})
        else:
            self._json(404, {"code": "not-found", "title": "Not found", "status": 404})

    def _json(
        self, status: int, content: dict[str, Any], more: dict[str, str] | None = None
    ) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        body = json.dumps(content).encode()
        self._head(status, {"Content-Type": kind, **(more or {})}, len(body))
        self._write(body)

    def _head(self, status: int, headers: dict[str, str], length: int | None) -> None:
        how = (
            {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        )
        lines = [f"{k}: {v}" for k, v in {**headers, **how}.items()]
        self._write(
            f"HTTP/1.1 {status} X\r\n{chr(10).join(f'{x}{chr(13)}' for x in lines)}\n\r\n".encode()
        )

    def _write(self, data: bytes) -> None:
        cut = self.fault.cut
        if cut is not None and self.sent + len(data) >= cut:
            self.connection.sendall(data[: cut - self.sent])
            self.connection.shutdown(socket.SHUT_RDWR)
            raise Gone
        self.connection.sendall(data)
        self.sent += len(data)

    def _losses(self) -> None:
        fault = self.fault
        if fault.early:
            self._json(
                fault.status or 401, {"code": "early", "detail": "early"}, {"Connection": "close"}
            )
            self.connection.shutdown(socket.SHUT_WR)
            while self.file.read1(1 << 16):
                pass
            raise Gone
        query = self.seen.query
        self.engine = Engine(query.get("after"))
        self.reports = query.get(
            "reports", urlsplit(self.seen.target).path.rpartition("/")[2]
        ).split(",")
        try:
            if query.get("duplex") == "true":
                self._duplex()
            else:
                self._after_the_body(query["format"])
        except Refusal as e:
            self._json(e.status, e.problem)

    def _duplex(self) -> None:
        started = False
        try:
            for piece in self._body():
                octets = self._frames(self.engine.feed(piece, last=False))
                if not started:
                    self._head(200, {}, None)
                    started = True
                if octets:
                    self._write(b"%x\r\n%s\r\n" % (len(octets), octets))
            octets = self._frames(self.engine.feed(b"", last=True)) + self._end()
        except Refusal as e:
            if not started:
                raise
            octets = self._frame(
                ERROR,
                {"problem": e.problem, "token": self.engine.token(), "offset": self.engine.offset},
                b"",
            )
        self._write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(octets), octets))

    def _after_the_body(self, table_format: str) -> None:
        body = b"".join(self._body())
        time.sleep(self.service.delay)
        if self.fault.status is not None:
            problem = {"code": "scripted", "detail": "scripted", "status": self.fault.status}
            self._json(self.fault.status, problem | self.fault.problem, self.fault.headers)
            return
        first = self.engine.offset == 0
        done = self.engine.feed(body, last=not self.seen.partial)
        answer = self._table(table_format, done, first=first)
        if self.fault.change:
            answer = self.fault.change(answer)
        end = self._about()
        headers = {
            "Thalweg-Completeness": end["completeness"],
            "Thalweg-Events": str(end["events"]),
            "Thalweg-Bytes": str(end["bytes"]),
            "Thalweg-Reopened-Check": "whole",
            "Upload-Complete": "?0" if self.seen.partial else "?1",
        }
        if self.seen.partial:
            headers |= {"Thalweg-Token": end["token"], "Thalweg-Offset": str(end["offset"])}
        self._head(200, headers, None if self.service.chunked else len(answer))
        self._write(
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(answer), answer)
            if self.service.chunked and answer
            else answer or b"0\r\n\r\n"
        )

    def _table(self, table_format: str, done: list[tuple[bytes, str]], *, first: bool) -> bytes:
        if table_format == "frames":
            drain = self.fault.drain
            if drain is None or drain >= len(done):
                return self._frames(done) + self._end()
            token = done[drain][1]
            place = {"reason": "drain", "token": token, "offset": int(token.partition(".")[0])}
            return self._frames(done[: drain + 1]) + self._frame(END, self._about() | place, b"")
        table = tables(b"".join(event for event, _ in done))[self.reports[0]]
        if table_format == "csv":
            return (b"Event,Value\n" if first else b"") + csv(table)
        if table_format == "ndjson":
            lines = [json.dumps({"EventId": a, "Loss": b}) for a, b in table.tolist()]
            lines.insert(
                len(lines) // 2, json.dumps({"checkpoint": {"token": self.engine.token()}})
            )
            return "\n".join([*lines, json.dumps({"end": self._about()})]).encode() + b"\n"
        return table_format.encode() + table.tobytes()

    def _frames(self, done: list[tuple[bytes, str]]) -> bytes:
        out = []
        before = self.seen.query.get("after", "0.0.0.0.0")
        for event, token in done:
            groups = [
                (name, rows) for name in self.reports for rows in self._split(tables(event)[name])
            ]
            for i, (name, rows) in enumerate(groups, 1):
                last = i == len(groups)
                out.append(self._data(name, rows, token if last else before, more=not last))
                if self.service.heartbeats:
                    out.append(self._frame(HEARTBEAT, {}, b""))
            before = token
        return b"".join(out)

    def _split(self, rows: Table) -> list[Table]:
        return [rows[i : i + self.service.split] for i in range(0, len(rows), self.service.split)]

    def _data(self, name: str, rows: Table, token: str, *, more: bool) -> bytes:
        about = {"dtype": DTYPES[name].descr, "shape": [len(rows)]}
        header = {
            "report": name,
            "token": token,
            "offset": int(token.split(".", maxsplit=1)[0]),
            "arrays": [{"name": "rows", "offset": 0, "nbytes": rows.nbytes, **about}],
            **about,
        }
        return self._frame(DATA, header, rows.tobytes(), int(more))

    def _frame(self, kind: int, header: Mapping[str, Any], payload: bytes, flags: int = 0) -> bytes:
        self.number += 1
        return frame(kind, header, payload, self.number - 1, flags)

    def _about(self) -> dict[str, Any]:
        partial = self.seen.partial
        declared = "declared" if "upload-length" in self.seen.headers else "undeclared"
        return {
            "reason": "partial" if partial else "complete",
            "completeness": "partial" if partial else declared,
            "events": self.engine.events,
            "bytes": self.engine.read,
            "reopened_check": "whole",
            "token": self.engine.token() if partial else None,
            "offset": self.engine.offset if partial else None,
        }

    def _end(self) -> bytes:
        return self._frame(END, self._about(), b"")
