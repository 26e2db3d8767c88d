"""Traces: spans as a receiver of OTLP sees them, and what they cost where nobody wants them."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from app import tracing
from app.tracing import NO_TRACE, Tracing, open_tracing
from tests.app.harness import Post, Service, ask, wait_until
from tests.app.runs.requests import Uploader, stream
from tests.trace_sink import Sink

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

# Exporters go on telling that receivers are gone, in threads that outlive the tests.
logging.getLogger("opentelemetry").propagate = False
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have exporters give up soon: their threads draw random numbers while other tests run."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


@contextmanager
def traced(directory: Path, url: str, **settings: object) -> Iterator[Service]:
    service = Service(directory, traces=url, traces_sample=1, **settings)
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
        data = stream(5000)
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
        own = ask(service, Post("/v1/losses/melt", [stream()])).getheader("X-Request-Id")
        service.get("/healthz", told)
    assert sink.paths == {"/v1/traces"}
    roots = [span for span in sink.spans if span.parent == PARENT]
    assert {span.trace for span in roots} == {TRACE}
    assert not sink.named("GET /healthz")
    (line,) = [line for line in service.log().splitlines() if f'"request_id": "{own}"' in line]
    assert json.loads(line)["trace_id"] in {span.trace for span in sink.spans if not span.parent}
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
    # Where this machine is busy, a worker may be taken for dead, and another do its job again.
    jobs = sink.named("seal")
    assert {(job.trace, job.parent) for job in jobs} == {(TRACE, sealing.id)}
    assert "done" in {job.values["thalweg.ended"] for job in jobs}
    parents = {span.parent for span in (*sink.named("rows"), *sink.named("sums"))}
    assert {None} < {None, *parents} <= {None, *(job.id for job in jobs)}


def test_whoever_calls_decides_whether_a_trace_is_recorded(sink: Sink) -> None:
    for share in (0.0, 1.0):
        opened = open_tracing(sink.url + "/", share)
        for flags in ("00", "01"):
            told = opened.begin(f"{share} {flags}", f"00-{TRACE}-{PARENT}-{flags}")
            assert told.ident == TRACE
            assert str(told.header).startswith(f"00-{TRACE}-")
            assert int(str(told.header)[-2:], 16) & 1 == int(flags)
            assert told.is_recorded is (flags == "01")
            told.set(a=1)
            told.past("part", 1.0)
            told.end_request("GET", f"/{share:g}", 200)
        own = opened.begin(f"{share} own")
        assert own.ident != TRACE
        with own.child("part") as part:
            # What it causes elsewhere is recorded as it is.
            assert int(str(part.header)[-2:], 16) & 1 == share
        own.end_request("GET", "/", 200)
        opened.close()
    requests = [span for span in sink.spans if span.name.startswith("GET")]
    assert sorted(span.name for span in requests) == ["GET /", "GET /0", "GET /1"]
    assert sorted(span.parent for span in requests) == ["", PARENT, PARENT]
    parts = [span.parent for span in sink.named("part")]
    assert sorted(parts) == sorted(span.id for span in requests)


@pytest.mark.parametrize(
    "told",
    [
        *["", "00", f"00-{'0' * 32}-{PARENT}-00", f"00-{TRACE}-{'0' * 16}-00"],
        *[
            f"ff-{TRACE}-{PARENT}-00",
            f"00-{TRACE}-{PARENT}-00-more",
            f"00-{TRACE.upper()}-{PARENT}-00",
        ],
    ],
)
def test_a_traceparent_that_is_none_begins_a_trace(sink: Sink, told: str) -> None:
    recorded, other = open_tracing(sink.url, 1.0), open_tracing(sink.url, 0.0)
    for opened in (recorded, other):
        begun = opened.begin("a", told)
        assert begun.is_recorded is (opened is recorded)
        assert begun.ident not in {TRACE, "0" * 32}
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]", str(begun.header))
        begun.end()
        opened.close()
    assert [span.parent for span in sink.spans] == [""]


def test_a_part_of_the_traces_is_recorded(sink: Sink) -> None:
    opened = open_tracing(sink.url, 0.3)
    begun = [opened.begin("a") for _ in range(2000)]
    assert 400 < sum(trace.is_recorded for trace in begun) < 800
    assert len({trace.ident for trace in begun}) == len(begun)
    opened.close()


@pytest.mark.parametrize("how", ["gone", "failing", "hanging"])
def test_a_receiver_that_takes_nothing_holds_nothing_up(
    sink: Sink, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_FLUSH_SECONDS", 0.5)
    sink.status, sink.hangs = 503, how == "hanging"
    opened = open_tracing("http://127.0.0.1:9" if how == "gone" else sink.url, 1.0)
    for _ in range(5000):
        # More than wait in the queue.
        opened.begin("a").end()
    begun = time.monotonic()
    opened.close()
    assert time.monotonic() - begun < 5


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
