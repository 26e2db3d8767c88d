"""A receiver of traces on loopback, which decodes them as collectors do."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span:
    """A span as it arrived."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:  # noqa: ANN401 - protobuf
        self.name: str = span.name
        self.trace = span.trace_id.hex()
        self.id = span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.values = _values(span.attributes)
        self.failed = span.status.code == span.status.STATUS_CODE_ERROR
        self.resource = resource


def _values(attributes: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


class Sink:
    """A receiver of traces, on loopback.

    Attributes:
        status: of its answers.
        hangs: whether it answers never.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.paths: set[str] = set()
        self.status, self.hangs = 200, False
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if sink.hangs:
                    sink.released.wait(60)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.paths.add(self.path)
                sink.add(ExportTraceServiceRequest.FromString(body))
                self.send_response(sink.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def add(self, request: ExportTraceServiceRequest) -> None:
        for found in request.resource_spans:
            resource = _values(found.resource.attributes)
            for scope in found.scope_spans:
                self.spans += [Span(span, resource) for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
