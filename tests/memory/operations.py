"""Tokens and operations."""

from __future__ import annotations

from tests.memory.desk import Desk, Prepare, Request, Table
from tests.memory.losses import stream_of

TABLE = Table("operations")


def getting(path: str) -> Prepare:
    """A page, for the second time."""

    def prepare(desk: Desk) -> Request:
        desk.send(Request("GET", path))
        return Request("GET", path)

    return prepare


TABLE.add("GET /healthz", "health", getting("/healthz"))
TABLE.add("GET /readyz", "readiness", getting("/readyz"))
TABLE.add("GET /metrics", "metrics", getting("/metrics"))
TABLE.add("GET /problems/{code}", "a problem", getting("/problems/busy"))


def token(desk: Desk) -> str:
    """A token of a part."""
    request = Request.of("POST", "/v1/losses/melt", stream_of(3), {"Upload-Complete": "?0"})
    return str(desk.send(request).getheader("Thalweg-Token"))


for _action in ("inspect", "refresh"):

    def _prepare(desk: Desk, path: str = f"/v1/tokens/{_action}") -> Request:
        known = {"token": token(desk)}
        desk.ask("POST", path, known)
        return Request.of("POST", path, known)

    TABLE.add(f"POST /v1/tokens/{_action}", _action, _prepare)


@TABLE.case("POST /v1/tokens/inspect", hostile=True)
def a_long_token(desk: Desk) -> Request:
    desk.ask("POST", "/v1/tokens/inspect", {"token": token(desk)})
    return Request.of("POST", "/v1/tokens/inspect", {"token": "A" * 32_000})


@TABLE.case("GET /healthz", hostile=True)
def as_many_headers_as_may_be(desk: Desk) -> Request:
    desk.send(Request("GET", "/healthz"))
    return Request("GET", "/healthz", headers={f"X-{n}": "y" * 300 for n in range(190)})


@TABLE.case("GET /healthz", hostile=True)
def more_headers_than_may_be(desk: Desk) -> Request:
    desk.send(Request("GET", "/healthz"))
    return Request("GET", "/healthz", headers={f"X-{n}": "y" * 300 for n in range(5000)})


@TABLE.case("POST /v1/losses/{report}", hostile=True)
def chunks_of_one_byte(desk: Desk) -> Request:
    desk.send(Request.of("POST", "/v1/losses/melt", stream_of(3)))
    wire = b"".join(b"1\r\n%b\r\n" % bytes([byte]) for byte in stream_of(4000))
    pieces = [wire[at : at + 65_536] for at in range(0, len(wire), 65_536)] + [b"0\r\n\r\n"]
    return Request("POST", "/v1/losses/melt", pieces, {"Transfer-Encoding": "chunked"})
