"""An object store that is asked too often: some requests are 503 SlowDown, others are passed on."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class SlowObjects(ThreadingHTTPServer):
    """Stands in front of a server that speaks S3.

    Args:
        behind: its port.

    Attributes:
        refused: how many requests are yet to be refused.
    """

    # Who keeps a connection does not keep this from ending.
    daemon_threads = True
    block_on_close = False

    def __init__(self, behind: int) -> None:
        super().__init__((HOST, 0), _Handler)
        self.behind = behind
        self.refused = 0
        self._lock = threading.Lock()

    def refuses(self) -> bool:
        """Whether to refuse the next request."""
        with self._lock:
            refuses = self.refused > 0
            self.refused -= refuses
        return refuses


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowObjects

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.refuses():
            self._answer(503, {}, _SLOW_DOWN)
            return
        asked = http.client.HTTPConnection(HOST, self.server.behind, timeout=60)
        with contextlib.closing(asked):
            asked.request(self.command, self.path, body, dict(self.headers))
            answer = asked.getresponse()
            self._answer(answer.status, dict(answer.getheaders()), answer.read())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        hop = {"connection", "transfer-encoding", "content-length", "server", "date"}
        for name, value in headers.items():
            if name.lower() not in hop:
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass_on  # noqa: N815 - as its base asks them

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def slow_objects(behind: int) -> Iterator[SlowObjects]:
    """Provide one in front of a port; at first it passes everything on."""
    with SlowObjects(behind) as slow:
        thread = threading.Thread(target=slow.serve_forever, args=(0.05,))
        thread.start()
        yield slow
        slow.shutdown()
        thread.join()
