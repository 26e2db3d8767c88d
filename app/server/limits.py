"""Limits of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    """Bounds of a connection; sizes in bytes, times in seconds.

    Attributes:
        header_bytes: Request line and headers together; beyond it, 431.
        header_count: Number of headers; beyond it, 431.
        header_seconds: From the first byte of a request to the end of its headers; beyond
            it, 408.
        body_idle_seconds: Without a byte of the body while the application waits for one.
        body_seconds: From the end of the headers to the end of the body; None for no limit.
        write_idle_seconds: Without the client taking a byte while some wait to be sent.
        keep_alive_seconds: Without a byte of a further request.
        linger_seconds: For discarding input after an answer sent before the end of the
            body, so that the client can read the answer.
        connections: Of the service with lanes, else of a process; beyond it, 503.
        address_connections: Of them, from one address; beyond it, 429.
        proxies: Addresses that may have any number of them, comma-separated; None for none.
    """

    header_bytes: int = 65536
    header_count: int = 200
    header_seconds: float = 10.0
    body_idle_seconds: float = 30.0
    body_seconds: float | None = None
    write_idle_seconds: float = 60.0
    keep_alive_seconds: float = 15.0
    linger_seconds: float = 2.0
    connections: int = 4096
    address_connections: int = 4096
    proxies: str | None = None
