"""The service in a process of its own, a client made of sockets, and the contract to hold it to."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt
import xxhash
from backports.zstd import ZstdCompressor
from backports.zstd import compress as zstd_compress

from app.errors import KINDS

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
PATIENCE = 20.0
"""Seconds an answer may take; the slowest honest one takes far less."""
PROBLEM = "application/problem+json"

_START_SECONDS = 120.0
_LISTENING = re.compile(r"^listening on http://127\.0\.0\.1:(\d+)$", re.MULTILINE)
_PREFIX = struct.Struct("<4sBBHIQQI")

Headers = Sequence[tuple[str, str]]


# -- the server ----------------------------------------------------------------------


class Service:
    """A server process, ready when this returns.

    Args:
        directory: for its data and its log.
        settings: variables, without their prefix and in lower case.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.log_path = directory / "log"
        kept = {name: value for name, value in os.environ.items() if "THALWEG_" not in name}
        given = {f"THALWEG_{name.upper()}": str(value) for name, value in settings.items()}
        command = [sys.executable, "-m", "app.command", "serve", "--port", "0"]
        directory.mkdir(parents=True, exist_ok=True)
        self.started = time.perf_counter()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(directory / "data")],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**kept, **given, "PYTHONPATH": str(ROOT)},
                cwd=directory,
            )
        self.port = 0
        try:
            self._wait_for(self._listens)
            self._wait_for(lambda: self.get("/readyz").status == 200)
        except BaseException:
            self.kill()
            raise
        self.ready_seconds = time.perf_counter() - self.started

    def _wait_for(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not done():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def _listens(self) -> bool:
        found = _LISTENING.search(self.log())
        if found:
            self.port = int(found[1])
        return found is not None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def failures(self) -> list[str]:
        """Lines of the log that tell of a failure of the server's own."""
        marks = ('"level": "error"', "Traceback")
        return [line for line in self.log().splitlines() if any(mark in line for mark in marks)]

    def stop(self) -> int:
        """Ask it to end; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @contextlib.contextmanager
    def connect(self, seconds: float = PATIENCE) -> Iterator[socket.socket]:
        with socket.create_connection((HOST, self.port), timeout=seconds) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield client

    def get(self, path: str, headers: Headers = (), method: str = "GET") -> Answer:
        with self.connect() as client:
            client.sendall(head(method, path, headers))
            return Answer(client, method)

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        text = self.get("/metrics").body.decode()
        lines = [line for line in text.splitlines() if re.match(rf"{name}[{{ ]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def memory(self, field: str = "VmRSS") -> int:
        """Resident memory in bytes; its peak for ``VmHWM``."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.split(f"{field}:")[1].split()[0])

    def reset_peak(self) -> None:
        """Have the peak of memory begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu(self) -> float:
        """CPU seconds of the process so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def is_idle(self) -> bool:
        """Whether nothing of any request is left, but the question itself."""
        return self.metric("thalweg_buffers_used") == 0 and (
            self.metric("thalweg_requests_running") == 1
        )


def wait_until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


# -- requests ------------------------------------------------------------------------


def head(method: str, path: str, headers: Headers = ()) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunked(pieces: Iterable[bytes], *, last: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + last


def with_query(path: str, options: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(options)}" if options else path


def compress(coding: str | None, pieces: Sequence[bytes]) -> list[bytes]:
    """The pieces, each of which can be decoded once it has come."""
    if coding is None:
        return list(pieces)
    if coding == "gzip":
        gzipped = zlib.compressobj(1, wbits=31)
        made = [gzipped.compress(piece) + gzipped.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
        return [*made[:-1], made[-1] + gzipped.flush()]
    zstd = ZstdCompressor()
    made = [zstd.compress(piece, ZstdCompressor.FLUSH_BLOCK) for piece in pieces]
    return [*made[:-1], made[-1] + zstd.flush()]


def compress_whole(coding: str, data: bytes) -> bytes:
    return gzip.compress(data) if coding == "gzip" else zstd_compress(data)


@dataclass(frozen=True)
class Post:
    """A request with a body in pieces; between them the client waits for what is answered."""

    path: str
    pieces: Sequence[bytes]
    headers: Headers = ()
    sized: bool = True
    method: str = "POST"

    def head(self) -> bytes:
        framing = ("Transfer-Encoding", "chunked")
        if self.sized:
            framing = ("Content-Length", str(sum(map(len, self.pieces))))
        return head(self.method, self.path, [framing, *self.headers])

    def wire(self) -> list[bytes]:
        """The pieces as they are sent."""
        if self.sized:
            return list(self.pieces)
        *before, last = [chunked([piece], last=b"") for piece in self.pieces]
        return [*before, last + b"0\r\n\r\n"]


def ask(service: Service, post: Post) -> Answer:
    """Send a request as a whole, then read its answer."""
    with service.connect() as client:
        # An answer may come before the body is taken, and the connection be closed.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(post.head() + b"".join(post.wire()))
        return Answer(client, post.method)


def ask_in_duplex(service: Service, post: Post) -> Answer:
    """Send all but the last piece, wait until the answer begins, then send that."""
    with service.connect() as client:
        *before, last = post.wire()
        client.sendall(post.head() + b"".join(before))
        answer = Answer(client, post.method, read=False)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(last)
        return answer.read_body()


class Answer(http.client.HTTPResponse):
    """An answer.

    Attributes:
        body: what came of it.
        whole: whether that is all of it.
    """

    def __init__(self, client: socket.socket, method: str = "POST", *, read: bool = True) -> None:
        super().__init__(client, method=method)
        self.body = b""
        self.whole = False
        self.begin()
        if read:
            self.read_body()

    def read_body(self) -> Self:
        with self:
            try:
                self.body = self.read()
                self.whole = True
            except http.client.IncompleteRead as error:
                self.body = error.partial
            except ConnectionResetError:
                self.whole = False
        return self

    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)

    @property
    def media_type(self) -> str:
        return self.headers.get_content_type()


# -- answers -------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    kind: str
    more: bool
    header: dict[str, Any]
    payload: bytes

    @property
    def rows(self) -> npt.NDArray[np.void]:
        (array,) = self.header["arrays"]
        assert array["name"] == "rows"
        assert (array["offset"], array["nbytes"]) == (0, len(self.payload))
        dtype = np.dtype([(name, kind) for name, kind in array["dtype"]])
        rows: npt.NDArray[np.void] = np.frombuffer(self.payload, dtype)
        assert list(rows.shape) == array["shape"] == self.header["shape"]
        return rows


_KINDS = {1: "DATA", 2: "EPOCH", 3: "END", 4: "ERROR", 5: "HEARTBEAT"}


def read_frames(data: bytes) -> list[Frame]:
    """The frames of an answer, each checked; what is cut at the end is left out."""
    frames: list[Frame] = []
    at = 0
    while at + _PREFIX.size <= len(data):
        magic, kind, flags, zero, header, payload, check, number = _PREFIX.unpack_from(data, at)
        assert (magic, zero, number) == (b"TWG1", 0, len(frames))
        start, middle = at + _PREFIX.size, at + _PREFIX.size + header
        end = middle + payload
        if end > len(data):
            break
        summed = data[at : at + 20] + data[at + 28 : start] + data[start:end]
        assert xxhash.xxh3_64_intdigest(summed) == check
        frames.append(
            Frame(_KINDS[kind], bool(flags & 1), json.loads(data[start:middle]), data[middle:end])
        )
        at = end
    return frames


def rows_of_frames(frames: Iterable[Frame]) -> dict[str, bytes]:
    """Rows of complete events of each report, as whoever goes on from a token keeps them."""
    kept: dict[str, bytes] = {}
    group: list[Frame] = []
    for frame in frames:
        if frame.kind == "ERROR":
            group.clear()
        if frame.kind == "DATA":
            group.append(frame)
        if not frame.more:
            for each in group:
                report = each.header["report"]
                kept[report] = kept.get(report, b"") + each.rows.tobytes()
            group.clear()
    return kept


# -- the contract --------------------------------------------------------------------

SERVER_CODES = ("bad-request", "headers-too-large", "headers-too-slow", "not-implemented")
"""Problems of the connection rather than of a route: no operation has them."""


def check_problem(found: Any, answer: Answer | None = None) -> None:  # noqa: ANN401 - JSON
    """Hold a problem document to the table of problems, and to the answer it is of."""
    kind = KINDS[found["code"]]
    assert found["status"] == kind.status
    assert found["type"] == f"/problems/{found['code']}"
    assert found["detail"]
    assert found["title"]
    assert all(value is not None for value in found.values())
    for name in ("offset", "event", "block", "resume_offset", "status"):
        assert isinstance(found.get(name, 0), int)
    for name in ("hint", "option", "token", "request_id"):
        assert isinstance(found.get(name, ""), str)
    assert ("token" in found) == ("resume_offset" in found)
    if answer is None:
        return
    assert answer.status == kind.status
    assert answer.getheader("Content-Type") == PROBLEM
    if "request_id" in found:
        assert found["title"] == kind.title
        assert answer.getheader("X-Request-Id") == found["request_id"]
    else:
        assert found["code"] in SERVER_CODES
    if kind.status == 401:
        assert answer.getheader("WWW-Authenticate") == "Bearer"
    if kind.status == 503:
        assert int(answer.getheader("Retry-After") or "") > 0


class Contract:
    """What the OpenAPI document of a running service promises."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._operations: list[tuple[re.Pattern[str], Mapping[str, Any]]] = [
            (re.compile(re.sub(r"{\w+}", "[^/]+", path)), operations)
            for path, operations in document["paths"].items()
        ]

    @classmethod
    def of(cls, service: Service) -> Self:
        return cls(service.get("/openapi.json").json())

    def check(self, method: str, path: str, answer: Answer) -> Answer:
        """Hold an answer to what is documented; returns it."""
        if answer.media_type == PROBLEM:
            check_problem(answer.json(), answer)
        operation = self._operation(method, path.partition("?")[0])
        if operation is None:
            assert answer.status in {401, 404, 405}
            assert answer.media_type == PROBLEM or method == "HEAD"
            return answer
        if answer.media_type == PROBLEM and "request_id" not in answer.json():
            return answer
        documented = operation["responses"]
        assert str(answer.status) in documented, (method, path, answer.status, answer.body[:300])
        assert answer.media_type in documented[str(answer.status)]["content"]
        return answer

    def _operation(self, method: str, path: str) -> Any:  # noqa: ANN401 - JSON
        for pattern, operations in self._operations:
            if pattern.fullmatch(path):
                return operations.get(method.lower())
        return None
