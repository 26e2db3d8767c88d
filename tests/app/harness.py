"""The service in a process of its own, a client made of sockets, and the contract to hold it to."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlencode

from backports.zstd import ZstdCompressor
from backports.zstd import compress as zstd_compress

from app.errors import KINDS
from app.settings import Settings
from tests.server_process import HOST, ServerProcess

PATIENCE = 20.0
"""Seconds an answer may take; the slowest honest one takes far less."""
PROBLEM = "application/problem+json"
MIB = 1 << 20
STATUS = {
    **dict.fromkeys(
        ["stream-empty", "stream-header", "stream-truncated", "stream-incomplete"], 400
    ),
    **dict.fromkeys(
        ["stream-excess", "stream-concatenated", "event-id", "event-reopened", "block-id"], 400
    ),
    **dict.fromkeys(["block-repeated", "exposure", "terminator", "sample-range"], 400),
    **dict.fromkeys(["sample-repeated", "input", "bad-request", "content-encoding"], 400),
    **dict.fromkeys(
        ["framing", "token-malformed"],
        400,
    ),
    **dict.fromkeys(["limit", "too-large", "decompression-bomb"], 413),
    **dict.fromkeys(["stream-unsupported", "unsupported-encoding"], 415),
    **dict.fromkeys(
        ["sample-order", "event-order", "loss-not-finite", "loss-negative", "report", "option"],
        422,
    ),
}
"""Statuses of the problems of one post, written down apart from the service's own table."""

Headers = Sequence[tuple[str, str]]


# -- the server ----------------------------------------------------------------------


class Service(ServerProcess):
    """A server, and requests to it."""

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


def peak_of(service: Service, post: Post) -> tuple[Answer, int]:
    """The answer, and the memory it took at most beyond that of another one like it."""
    ask(service, replace(post, pieces=[post.pieces[0][:1000]]))
    service.reset_peak()
    before = service.memory()
    return ask(service, post), service.memory("VmHWM") - before


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


# -- the contract --------------------------------------------------------------------


def check_problem(found: Any, answer: Answer | None = None) -> None:  # noqa: ANN401 - JSON
    """Hold a problem document to the table of problems, and to the answer it is of."""
    kind = KINDS[found["code"]]
    assert found["status"] == kind.status
    assert found["type"] == f"/problems/{found['code']}"
    assert found["detail"]
    assert found["title"]
    if kind.status == 413:
        assert isinstance(found["limit"], str)
        assert found["allowed"] >= 0
        # Null says that nobody can change it.
        setting = found["setting"] or "THALWEG_PORT"
        assert setting.removeprefix("THALWEG_").lower() in Settings.model_fields
    assert all(value is not None for name, value in found.items() if name != "setting")
    for name in ("offset", "event", "block", "resume_offset", "status"):
        assert isinstance(found.get(name, 0), int)
    for name in ("hint", "option", "token", "request_id"):
        assert isinstance(found.get(name, ""), str)
    assert ("token" in found) == ("resume_offset" in found)
    if answer is None:
        return
    assert answer.status == kind.status
    assert answer.getheader("Content-Type") == PROBLEM
    assert found["title"] == kind.title
    assert answer.getheader("X-Request-Id") == found["request_id"]
    if kind.status == 401:
        assert answer.getheader("WWW-Authenticate") == "Bearer"
    if kind.status == 503:
        assert int(answer.getheader("Retry-After") or "") > 0


def is_problem(answer: Answer, code: str, status: int = 0, **members: Any) -> Any:  # noqa: ANN401
    """Check that an answer is this problem; returns the document."""
    assert answer.media_type == PROBLEM, answer.body[:500]
    found = answer.json()
    check_problem(found, answer)
    assert found["code"] == code, found
    assert answer.status == (status or STATUS[code])
    assert found | members == found
    return found


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


class Unbounded:
    """Budgets that bound nothing."""

    def of_request(
        self, _owner: str, _gone: object, _trace: object
    ) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()
