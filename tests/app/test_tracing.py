"""Traces: spans as a receiver of OTLP sees them, and what they cost where nobody wants them."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app import tracing
from app.tracing import NO_TRACE, Tracing, open_tracing
from tests.app.harness import Post, Service, ask, wait_until
from tests.app.runs.requests import Uploader, stream

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


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


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


@contextmanager
def traced(directory: Path, url: str, **settings: object) -> Iterator[Service]:
    service = Service(directory, traces=url, **settings)
    try:
        yield service
        assert service.stop() == 0
    finally:
        service.kill()


def test_a_trace_goes_through_a_lane_a_decoder_and_a_seal(sink: Sink, tmp_path: Path) -> None:
    root = tmp_path / "recordings"
    root.mkdir()
    with h5py.File(root / "scan.h5", "w") as file:
        frames = np.arange(4096, dtype=np.float32).reshape(4, 32, 32)
        file.create_dataset("frames", data=frames, chunks=(1, 32, 32), compression="gzip")
    with traced(tmp_path, sink.url, lanes="front=1,quick=1,long=1", dataset_roots=root) as service:
        told = [("traceparent", f"00-{TRACE}-{PARENT}-01"), ("X-Request-Id", "mine")]
        data = stream()
        assert ask(service, Post("/v1/losses/melt?token=no", [data], told)).status == 422
        assert ask(service, Post("/v1/losses/melt", [data], told)).status == 200
        entry = b'{"id": "d", "files": ["scan.h5"], "format": "hdf5", "array": "frames"}'
        assert ask(service, Post("/v1/datasets", [entry], told)).status == 201
        view = ask(service, Post("/v1/datasets/d/views", [b"{}"], told)).json()["id"]
        assert service.get(f"/v1/datasets/d/views/{view}/tiles/0", told).status == 200
        up = Uploader(service, reports=["melt"])
        up.upload(data)
        assert ask(service, Post(f"{up.path}/seal", [b""], told)).status in {200, 202}
        wait_until(lambda: up.describe()["state"] in {"done", "failed"})
    assert sink.paths == {"/v1/traces"}
    roots = [span for span in sink.spans if span.parent == PARENT]
    assert {span.trace for span in roots} == {TRACE}
    posts = [span for span in roots if span.name == "POST /v1/losses/{report}"]
    refused, posted = posts
    assert refused.values["http.response.status_code"] == 422
    assert refused.values["thalweg.code"] == "option"
    assert not refused.failed
    assert posted.values["thalweg.received"] == len(data)
    assert posted.values["thalweg.lane"] == posted.resource["thalweg.lane"] == "long"
    assert not any("token" in str(value) for value in refused.values.values())
    (parsed,) = [span for span in sink.named("parse") if span.parent == posted.id]
    assert parsed.values["thalweg.bytes"] == len(data)
    (tile,) = [s for s in roots if s.name.endswith("/tiles/{index}")]
    assert tile.values["thalweg.lane"] == "quick"
    calls = [span for span in sink.named("decode") if span.parent == tile.id]
    assert calls
    assert {call.trace for call in calls} == {TRACE}
    assert {call.values["thalweg.form"] for call in calls} == {"hdf5"}
    for call in sink.named("decoder"):
        assert call.parent in {span.id for span in sink.named("decode")}
        assert call.values["process.pid"] not in service.worker_pids()
    (sealing,) = [span for span in roots if span.name.endswith("/seal")]
    (job,) = sink.named("seal")
    assert (job.trace, job.parent) == (TRACE, sealing.id)
    assert job.values["thalweg.ended"] == "done"
    assert {span.parent for span in (*sink.named("rows"), *sink.named("sums"))} == {job.id}


def test_an_unsampled_trace_stays_so(sink: Sink, tmp_path: Path) -> None:
    with traced(tmp_path, sink.url + "/", traces_sample=1) as service:
        unsampled = [("traceparent", f"00-{TRACE}-{PARENT}-00")]
        assert ask(service, Post("/v1/losses/melt", [stream()], unsampled)).status == 200
        wait_until(lambda: f'"trace_id": "{TRACE}"' in service.log())
        assert ask(service, Post("/v1/losses/melt", [stream()])).status == 200
        service.get("/healthz")
    (kept,) = [span for span in sink.spans if not span.parent]
    assert kept.trace != TRACE
    assert f'"trace_id": "{kept.trace}"' in service.log()
    assert {span.trace for span in sink.spans} == {kept.trace}


def test_no_trace_begins_here_where_none_is_sampled(sink: Sink, tmp_path: Path) -> None:
    with traced(tmp_path, sink.url, traces_sample=0) as service:
        assert ask(service, Post("/v1/losses/melt", [stream()])).status == 200
        sampled = [("traceparent", f"00-{TRACE}-{PARENT}-01")]
        assert ask(service, Post("/v1/losses/melt", [stream()], sampled)).status == 200
    assert {span.trace for span in sink.spans} == {TRACE}


@pytest.mark.parametrize("how", ["gone", "failing", "hanging"])
def test_a_receiver_that_takes_nothing_holds_nothing_up(
    sink: Sink, tmp_path: Path, how: str
) -> None:
    url = "http://127.0.0.1:9" if how == "gone" else sink.url
    sink.status, sink.hangs = 503, how == "hanging"
    with traced(tmp_path, url, lanes="front=1,quick=1,long=1") as service:
        assert ask(service, Post("/v1/losses/melt", [stream()])).status == 200
        begun = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - begun < 10
    assert not service.failures()


def test_without_traces_nothing_of_the_library_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; from app.main import create_app; from app.settings import Settings;"
        "create_app(Settings(data_dir=sys.argv[1]));"
        "libraries = ('opentelemetry.sdk', 'opentelemetry.exporter', 'requests');"
        "assert not [m for m in sys.modules if m.startswith(libraries)]"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ValueError, match=r"opentelemetry\.sdk.*pip install 'thalweg-server\[otel"):
        open_tracing("http://127.0.0.1:9", 1.0)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_tracing("http://127.0.0.1:9", 1.0).begin("a") is NO_TRACE


def test_the_librarys_own_variables_are_heeded(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "losses")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    opened = open_tracing(None, 1.0, lane="quick")
    opened.begin("a").end()
    opened.close()
    (span,) = sink.spans
    assert span.resource["service.name"] == "losses"
    assert span.resource["thalweg.lane"] == "quick"


def test_a_trace_has_a_bounded_number_of_children(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_MOST", 3)
    opened = open_tracing(sink.url, 1.0)
    trace = opened.begin("request", served=True)
    for _ in range(5):
        with trace.child("part") as part, part.child("inner", size=None, bytes=1):
            pass
    trace.end_request("GET", "/", 200)
    opened.close()
    (root,) = sink.named("GET /")
    assert root.values["thalweg.left_out"] == 10 - 3
    assert len(sink.spans) == 1 + 3
    assert "thalweg.size" not in sink.named("inner")[0].values


def test_a_child_that_fails_names_the_problem(sink: Sink) -> None:
    opened = open_tracing(sink.url, 1.0)
    trace = opened.begin("request")
    with pytest.raises(KeyError), trace.child("part"):
        raise KeyError("secret")
    trace.past("long", 1.5)
    trace.past("short", 0.0001)
    trace.end()
    opened.close()
    (part,) = sink.named("part")
    assert part.failed
    (past,) = sink.named("long")
    assert 1.4 < past.seconds < 1.6
    assert not sink.named("short")


def test_what_is_not_traced_does_nothing() -> None:
    trace = Tracing().begin("a", f"00-{TRACE}-{PARENT}-01")
    assert trace is NO_TRACE
    with trace.child("b", a=1) as child:
        child.set(a=2)
        child.past("c", 5.0)
    trace.end_request("GET", "/", 500)
    trace.end("name", "error")
    assert (trace.ident, trace.header, trace.is_recorded) == (None, None, False)
