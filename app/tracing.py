"""Traces: where the time of a request goes, and of the work that it leaves behind.

A span is begun for each request (:mod:`app.http.guard`) and each job of sealing. What is worth one
of its own becomes a child: the body that is parsed, calls of decoders, segments that are added up,
and whatever made the request wait, if that took five milliseconds: a span takes 0.05 to 0.1 of CPU
time, half of it to encode and send. Nothing has a span per chunk or row, and a trace has a bounded
number of children here, so that it costs no more than it tells::

    request ──▶ RequestBudget.trace ──▶ every thread that works for it: ``current_trace()``
       │                                    └─ traceparent ──▶ a decoder, which tells its own times
       └─ traceparent in a job, or a task of the cluster ──▶ whichever process computes it

OpenTelemetry's SDK makes them and sends them by OTLP, in a thread with a bounded queue, in each
process of a lane; its ``OTEL_…`` variables are heeded. It is an extra, imported only where traces
are wanted. Elsewhere all of this does nothing.
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
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

_MOST = 64
"""Children of a trace in a process; it tells how many more there would be."""
_SHORTEST = 0.005
"""Seconds of the shortest child that is told when it is over."""
_FLUSH_SECONDS = 3.0
"""Time in which spans are sent when a process ends."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATH = "/v1/traces"
_TOLD = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
_FAILED = 500

Value = str | int | float | None


class Trace:
    """A span, and what it takes to make children of it; by default it is none.

    Args:
        tracer: makes children; None where they are not recorded.
        span: the span.
        numbers: count the children of the whole trace in this process.
        header: its ``traceparent``, where it has no span since it is not recorded.
    """

    __slots__ = ("_header", "_numbers", "_span", "_tracer")

    def __init__(
        self,
        tracer: Tracer | None = None,
        span: Span | None = None,
        numbers: Iterator[int] | None = None,
        header: str | None = None,
    ) -> None:
        self._tracer = tracer if span is not None and span.is_recording() else None
        self._span = span
        self._numbers = numbers or itertools.count()
        self._header = header

    @property
    def is_recorded(self) -> bool:
        """Whether anything is made of what it is told."""
        return self._tracer is not None

    @property
    def ident(self) -> str | None:
        """The id of the trace, 32 hexadecimal digits; None if there is none."""
        return None if (header := self.header) is None else header[3:35]

    @property
    def header(self) -> str | None:
        """The ``traceparent`` of what belongs to this span elsewhere; None if there is none."""
        if self._span is None:
            return self._header
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, **values: Value) -> None:
        """Set attributes of the span; those that are None are left out."""
        if self._tracer is not None and self._span is not None:
            self._span.set_attributes(_named(values))

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
        if self._tracer is not None and seconds >= _SHORTEST:
            begun = time.time_ns() - int(seconds * 1e9)
            if (child := self._begin(name, values, begun)) is not None:
                child.end()

    def _begin(self, name: str, values: dict[str, Value], begun: int | None = None) -> Trace | None:
        tracer, span = self._tracer, self._span
        if tracer is None or span is None or next(self._numbers) >= _MOST:
            return None
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - an extra

        made = tracer.start_span(
            name, set_span_in_context(span), attributes=_named(values), start_time=begun
        )
        return Trace(tracer, made, self._numbers)

    def end(self, name: str | None = None, error: str | None = None) -> None:
        """End the span.

        Args:
            name: its name, if it is another by now.
            error: code of the problem that it failed with.
        """
        if self._span is None:
            return
        if self._tracer is not None:
            if name is not None:
                self._span.update_name(name)
            if error is not None:
                from opentelemetry.trace import StatusCode  # noqa: PLC0415 - an extra

                self._span.set_status(StatusCode.ERROR, error)
        self._span.end()

    def end_request(self, method: str, route: str, status: int, **values: Value) -> None:
        """End the span of a request.

        Args:
            method: of the request.
            route: its pattern.
            status: of the answer.
            values: further attributes.
        """
        if self._tracer is not None:
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


class Tracing:
    """Begins traces, and sends them.

    Args:
        provider: of the library; None if nothing is traced.
        share: part of the traces that begin here that are recorded.
    """

    def __init__(self, provider: TracerProvider | None = None, share: float = 1.0) -> None:
        self._provider, self._share = provider, share
        self._tracer = None
        if provider is not None:
            # Once: an import takes a microsecond each time.
            from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra
            from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - an extra

            self._tracer = provider.get_tracer("thalweg")
            self._extract = tracecontext.TraceContextTextMapPropagator().extract
            self._kinds = SpanKind.INTERNAL, SpanKind.SERVER

    def begin(self, name: str, header: str | None = None, *, served: bool = False) -> Trace:
        """Begin a span, which its caller ends.

        Args:
            name: of the span.
            header: ``traceparent`` of what it belongs to; it begins a trace if that is none.
            served: whether it answers a request.
        """
        if self._tracer is None:
            return NO_TRACE
        # What is not recorded is passed on all the same, but costs nothing of the library's.
        if (told := _TOLD.fullmatch(header or "")) is None:
            if random.random() >= self._share:  # noqa: S311 - no secret
                ids = random.getrandbits(128), random.getrandbits(64)
                return Trace(header=f"00-{ids[0]:032x}-{ids[1]:016x}-00")
        elif not int(told[1], 16) & 1:
            return Trace(header=header)
        parent = self._extract({"traceparent": header} if header else {})
        return Trace(self._tracer, self._tracer.start_span(name, parent, self._kinds[served]))

    @contextlib.contextmanager
    def job(self, name: str, header: str | None, **values: Value) -> Iterator[Trace]:
        """Have a span for a block of work that something else has asked for."""
        trace = self.begin(name, header)
        trace.set(**values)
        with trace.ending():
            yield trace

    def close(self) -> None:
        """Send what is left; a receiver that does not answer holds nothing up."""
        if self._provider is not None:
            ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
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
        return Tracing(_provider(url, _named(described)), share)
    except ImportError as e:
        raise ValueError(
            f"traces need what is not installed: {e}; pip install 'thalweg-server[otel]', or set"
            " OTEL_SDK_DISABLED=true"
        ) from e


def _provider(url: str | None, described: dict[str, str | int | float]) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
        OTLPSpanExporter,
    )
    from opentelemetry.sdk import resources  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.trace import TracerProvider, export, sampling  # noqa: PLC0415

    own = {"service.name": "thalweg", "host.name": socket.gethostname(), **described}
    # What the operator's variables say takes the place of these.
    merged = resources.Resource(own).merge(resources.OTELResourceDetector().detect())

    class Known(resources.Resource):
        # The encoder groups spans by it: its own hash is of its JSON, written anew for each span.
        __hash__ = object.__hash__

    resource = Known(merged.attributes, merged.schema_url)
    provider = TracerProvider(sampling.DEFAULT_ON, resource, shutdown_on_exit=False)
    address = url and url.rstrip("/").removesuffix(_PATH) + _PATH
    provider.add_span_processor(export.BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return provider
