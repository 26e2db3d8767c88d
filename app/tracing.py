"""Traces: where the time of a request goes, and of the work that it leaves behind.

A span is begun for each request (:mod:`app.http.guard`) and each job of sealing. What is worth one
of its own becomes a child: the body that is parsed, calls of decoders, segments that are added up,
and whatever made the request wait, if that took five milliseconds: a span takes some 0.06 of CPU
time, most of it to encode and send. Nothing has a span per chunk or row, and a trace has a bounded
number of children here, so that it costs no more than it tells::

    request ──▶ RequestBudget.trace ──▶ every thread that works for it: ``current_trace()``
       │                                    └─ traceparent ──▶ a decoder, which tells its own times
       └─ traceparent in a job, or a task of the cluster ──▶ whichever process computes it

OpenTelemetry's SDK sends them by OTLP, in a thread with a bounded queue, in each process of a lane;
the ``OTEL_…`` variables of queue, exporter and resource are heeded. It is an extra, imported only
where traces are wanted. Elsewhere all of this does nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

_MOST = 64
"""Children of a trace in a process; it tells how many more there would be."""
_SHORTEST = 0.005
"""Seconds of the shortest child that is told when it is over."""
_FLUSH_SECONDS = 3.0
"""Time in which spans are sent when a process ends."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATH = "/v1/traces"
_TRACE, _SPAN, _SAMPLED = slice(3, 35), slice(36, 52), 1
"""Places of the ids in a ``traceparent``, and the bit of its flags."""
_TOLD = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
_FAILED = 500

Value = str | int | float | None
Kind = Literal["served", "job", "part"]


@dataclass(slots=True, eq=False)
class Trace:
    """A span, and what it takes to make children of it; by default it is none.

    Attributes:
        header: the ``traceparent`` of what belongs to it elsewhere; None if there is none.
        name: of the span.
        parent: ``traceparent`` of what it belongs to; None if it begins the trace.
        kind: what it does for that.
        values: its attributes.
        begun: when, in nanoseconds since the epoch.
        error: code of the problem that it failed with.
    """

    header: str | None = None
    _send: Callable[[Trace], None] | None = None
    """Called when it has ended; None if it is not recorded."""
    name: str = ""
    parent: str | None = None
    kind: Kind = "part"
    values: dict[str, Value] = field(default_factory=dict)
    begun: int = field(default_factory=time.time_ns)
    error: str | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    """Count the children of the whole trace in this process."""

    @property
    def is_recorded(self) -> bool:
        """Whether anything is made of what it is told."""
        return self._send is not None

    @property
    def ident(self) -> str | None:
        """The id of the trace, 32 hexadecimal digits; None if there is none."""
        return None if self.header is None else self.header[_TRACE]

    def set(self, **values: Value) -> None:
        """Set attributes of the span; those that are None are left out."""
        if self._send is not None:
            self.values.update(values)

    @contextlib.contextmanager
    def child(self, name: str, **values: Value) -> Iterator[Trace]:
        """Have a span for a block. One that fails says by which problem or error.

        Args:
            name: of the span.
            values: its attributes.
        """
        if (child := self._begin(name, values)) is None:
            yield self
            return
        with child.ending():
            yield child

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """End the span with a block. If that fails, it says by which problem or error."""
        try:
            yield
        except BaseException as e:
            self.end(error=getattr(e, "code", type(e).__name__))
            raise
        self.end()

    def past(self, name: str, seconds: float, **values: Value) -> None:
        """Add a child that has just ended, unless it was too short to matter."""
        if self._send is not None and seconds >= _SHORTEST:
            begun = time.time_ns() - int(seconds * 1e9)
            if (child := self._begin(name, values, begun)) is not None:
                child.end()

    def _begin(self, name: str, values: dict[str, Value], begun: int | None = None) -> Trace | None:
        header = self.header
        if self._send is None or header is None or next(self._numbers) >= _MOST:
            return None
        own = f"{header[:36]}{random.getrandbits(64):016x}{header[52:]}"
        begun = begun or time.time_ns()
        return Trace(
            own, self._send, name, header, values=values, begun=begun, _numbers=self._numbers
        )

    def end(self, name: str | None = None, error: str | None = None) -> None:
        """End the span.

        Args:
            name: its name, if it is another by now.
            error: code of the problem that it failed with.
        """
        if self._send is not None:
            self.name, self.error = name or self.name, error
            self._send(self)

    def end_request(self, method: str, route: str, status: int, **values: Value) -> None:
        """End the span of a request.

        Args:
            method: of the request.
            route: its pattern.
            status: of the answer.
            values: further attributes.
        """
        if self._send is not None:
            values["http.request.method"], values["http.route"] = method, route
            values["http.response.status_code"] = status
            values["left_out"] = max(next(self._numbers) - _MOST, 0) or None
            self.set(**values)
        code = str(values.get("code") or status) if status >= _FAILED else None
        self.end(f"{method} {route}", code)


NO_TRACE = Trace()
"""Records nothing."""


def _named(values: dict[str, Value]) -> dict[str, str | int | float]:
    """Return attributes by name: those without a name of OpenTelemetry's are this service's."""
    return {
        name if "." in name else f"thalweg.{name}": value
        for name, value in values.items()
        if value is not None
    }


@dataclass(slots=True, eq=False)
class Tracing:
    """Begins traces, and sends them."""

    _send: Callable[[Trace], None] | None = None
    """Gets the spans that have ended; None if nothing is traced."""
    _share: float = 1.0
    """Part of the traces that begin here that are recorded."""
    _close: Callable[[], None] | None = None
    """Sends what is left."""

    def begin(self, name: str, header: str | None = None, *, served: bool = False) -> Trace:
        """Begin a span, which its caller ends.

        Args:
            name: of the span.
            header: ``traceparent`` of what it belongs to; it begins a trace if that is none.
            served: whether it answers a request.
        """
        if self._send is None:
            return NO_TRACE
        kind: Kind = "served" if served else "job"
        if header is None or (match := _TOLD.fullmatch(header)) is None:
            ids = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}"
            if random.random() >= self._share:  # noqa: S311 - no secret
                # Not recorded, which is passed on all the same.
                return Trace(f"{ids}-00")
            return Trace(f"{ids}-03", self._send, name, None, kind)
        if not int(match[1], 16) & _SAMPLED:
            return Trace(header)
        own = f"{header[:36]}{random.getrandbits(64):016x}{header[52:]}"
        return Trace(own, self._send, name, header, kind)

    @contextlib.contextmanager
    def job(self, name: str, header: str | None, **values: Value) -> Iterator[Trace]:
        """Have a span for a block of work that something else has asked for."""
        trace = self.begin(name, header)
        trace.set(**values)
        with trace.ending():
            yield trace

    def close(self) -> None:
        """Send what is left; a receiver that does not answer holds nothing up."""
        if self._close is not None:
            ending = threading.Thread(target=self._close, name="traces", daemon=True)
            ending.start()
            ending.join(_FLUSH_SECONDS)


NO_TRACING = Tracing()
"""Traces nothing."""


def open_tracing(url: str | None, share: float, **described: Value) -> Tracing:
    """Return what traces requests, if that is wanted; to be called once a process has forked.

    Args:
        url: of an OTLP/HTTP receiver, without its path; default: as ``OTEL_EXPORTER_OTLP_ENDPOINT``
            says.
        share: part of the traces that begin here that are recorded. Others are as their
            ``traceparent`` says.
        described: attributes of this process.

    Raises:
        ValueError: the library is missing.
    """
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_disabled or not (url or any(os.environ.get(name) for name in _ENDPOINTS)):
        return NO_TRACING
    try:
        return _sending(url, share, _named(described))
    except ImportError as e:
        raise ValueError(
            f"traces need what is not installed: {e}; pip install 'thalweg-server[otel]', or set"
            " OTEL_SDK_DISABLED=true"
        ) from e


def _sending(url: str | None, share: float, described: dict[str, str | int | float]) -> Tracing:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
        OTLPSpanExporter,
    )
    from opentelemetry.sdk import resources  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.trace import ReadableSpan, export  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags  # noqa: PLC0415

    class Known(resources.Resource):
        # The encoder groups spans by it: its own hash is of its JSON, written anew for each span.
        __hash__ = object.__hash__

    own = {"service.name": "thalweg", "host.name": socket.gethostname(), **described}
    # What the operator's variables say takes the place of these.
    merged = resources.Resource(own).merge(resources.OTELResourceDetector().detect())
    resource, scope = Known(merged.attributes, merged.schema_url), InstrumentationScope("thalweg")
    kinds = {"served": SpanKind.SERVER, "job": SpanKind.INTERNAL, "part": SpanKind.INTERNAL}
    flags, succeeded = TraceFlags(_SAMPLED), Status()
    address = url and url.rstrip("/").removesuffix(_PATH) + _PATH
    processor = export.BatchSpanProcessor(OTLPSpanExporter(endpoint=address))

    def context(header: str, *, is_remote: bool) -> SpanContext:
        return SpanContext(int(header[_TRACE], 16), int(header[_SPAN], 16), is_remote, flags)

    def send(trace: Trace) -> None:
        # Made when it is over: a tracer of the library's makes it as it begins, with locks, checks
        # and copies of what it is told, which takes three times as long.
        parent, error = trace.parent, trace.error
        processor.on_end(
            ReadableSpan(
                trace.name,
                context(trace.header or "", is_remote=False),
                None if parent is None else context(parent, is_remote=trace.kind != "part"),
                resource,
                _named(trace.values),
                kind=kinds[trace.kind],
                status=succeeded if error is None else Status(StatusCode.ERROR, error),
                start_time=trace.begun,
                end_time=time.time_ns(),
                instrumentation_scope=scope,
            )
        )

    return Tracing(send, share, processor.shutdown)
