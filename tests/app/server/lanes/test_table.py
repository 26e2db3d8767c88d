"""Lanes by the first bytes of a connection."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.http.dependencies import Routes
from app.server.head import HeadParser
from app.server.lanes.table import (
    FRONT,
    LONG,
    PEEK_BYTES,
    QUICK,
    Rule,
    Table,
    parse_lanes,
    table_of,
)
from app.server.limits import ServerLimits

TABLE = Table(
    [
        Rule("^/sets$", {"GET": FRONT, "POST": LONG}),
        Rule("^/sets/(?P<name>[^/]+)$", {"GET": QUICK, "PUT": LONG, "HEAD": FRONT}),
        Rule("^/sets/(?P<name>[^/]+)/(?P<key>.*)$", {"GET": QUICK, "OPTIONS": QUICK}),
    ]
)

LINES: dict[bytes, str] = {
    b"GET /sets HTTP/1.1": FRONT,
    b"POST /sets HTTP/1.1": LONG,
    b"POST /sets?a=/sets/b HTTP/1.1": LONG,
    b"POST /sets#x HTTP/1.1": LONG,
    b"GET /sets/a HTTP/1.1": QUICK,
    b"GET /sets/a": QUICK,
    b"HEAD /sets/a/b/c HTTP/1.1": QUICK,
    b"HEAD /sets/a HTTP/1.1": FRONT,
    b"OPTIONS /sets/a HTTP/1.1": FRONT,
    b"OPTIONS /sets/a/b HTTP/1.1": QUICK,
    b"OPTIONS * HTTP/1.1": FRONT,
    b"DELETE /sets/a HTTP/1.1": FRONT,
    b"PUT /sets/%7Ea HTTP/1.1": LONG,
    b"PUT /se%74s/a HTTP/1.1": LONG,
    b"GET /sets/a%2Fb HTTP/1.1": QUICK,
    b"PUT /sets/a%2Fb HTTP/1.1": FRONT,
    b"PUT /sets%2Fa HTTP/1.1": LONG,
    b"PUT /sets/a%3Fb HTTP/1.1": LONG,
    b"PUT /sets/% HTTP/1.1": LONG,
    b"PUT /sets/a HTTP/1.0": LONG,
    b"POST http://host/sets HTTP/1.1": LONG,
    b"POST HTTPS://user@host:80/sets?x HTTP/1.1": LONG,
    b"GET http://host HTTP/1.1": FRONT,
    b"GET http://host?/sets/a HTTP/1.1": FRONT,
    b"CONNECT host:80 HTTP/1.1": FRONT,
    b"\r\n\r\nPOST /sets HTTP/1.1": LONG,
    b"post /sets HTTP/1.1": FRONT,
    b"POST //sets HTTP/1.1": FRONT,
    b"POST /sets/ HTTP/1.1": FRONT,
    b"POST /none HTTP/1.1": FRONT,
    b"GET ": FRONT,
    b"hello": FRONT,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": FRONT,
    "PUT /sets/ä HTTP/1.1".encode(): LONG,
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line)[2:-1])
def test_the_lane_of_a_line(line: bytes) -> None:
    assert TABLE.lane_of_bytes(line + b"\r\n" + bytes(PEEK_BYTES)) == LINES[line]


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line)[2:-1])
def test_the_lane_is_known_once_the_path_is_there_and_stays(line: bytes) -> None:
    whole = line + b"\r\n" + bytes(PEEK_BYTES)
    seen = [TABLE.lane_of_bytes(whole[:size]) for size in range(len(line) + 3)]
    assert seen[0] is None
    assert set(seen) <= {None, LINES[line]}
    known = [lane for lane in seen if lane is not None]
    assert seen[len(seen) - len(known) :] == known


@pytest.mark.parametrize("line", [*LINES, b"PUT /sets/a;b=1 HTTP/1.1", b"PUT /sets/+ HTTP/1.1"])
def test_whatever_is_http_has_the_lane_that_its_head_has(line: bytes) -> None:
    """Otherwise a connection would go through a lane for nothing."""
    octets = line + b"\r\nHost: x\r\n\r\n"
    try:
        head, _ = HeadParser(ServerLimits()).feed(octets)
    except Exception:  # noqa: BLE001 - it is not HTTP
        return
    if head is not None:
        assert TABLE.lane_of_bytes(octets) == TABLE.lane(*head.route)


def test_what_has_no_end_belongs_to_the_front() -> None:
    for begin, more in ((b"POST /sets/", b"x"), (b"\r", b"\n"), (b"POST http:", b"/")):
        line = begin + more * PEEK_BYTES
        assert TABLE.lane_of_bytes(line[: PEEK_BYTES - 1]) is None
        assert TABLE.lane_of_bytes(line[:PEEK_BYTES]) == FRONT
    assert TABLE.lane_of_bytes(b"A" * 32) is None
    assert TABLE.lane_of_bytes(b"A" * 33) == FRONT


def test_a_table_without_rules_sends_all_to_the_front() -> None:
    table = Table(())
    assert table.lane_of_bytes(b"POST /sets HTTP/1.1\r\n") == FRONT
    assert table.lane_of_bytes(b"POST /set") is None


def test_a_table_survives_the_way_to_another_process() -> None:
    table = Table.from_bytes(TABLE.to_bytes())
    assert [table.lane_of_bytes(line + b"\r\n") for line in LINES if b" /" in line] == [
        TABLE.lane_of_bytes(line + b"\r\n") for line in LINES if b" /" in line
    ]


def test_a_table_of_routes_has_the_lanes_that_their_endpoints_declare() -> None:
    routes = Routes(object)

    @routes.put("/a/{name}", LONG)
    @routes.post("/a/{name}/{rest:path}", LONG)
    async def write(_service: object) -> Response:
        return Response()

    @routes.get("/a/{name}", QUICK)
    async def read(_service: object) -> Response:
        return Response()

    async def other(_request: Request) -> Response:
        return Response()

    table = table_of([*routes.routes, Route("/b", other, methods=["GET"])])
    assert table.lane("PUT", "/a/x") == LONG
    assert table.lane("HEAD", "/a/x") == table.lane("GET", "/a/x") == QUICK
    assert table.lane("POST", "/a/x/y/z") == LONG
    assert table.lane("GET", "/b") == FRONT


def test_settings_name_the_lane_of_each_process() -> None:
    assert parse_lanes("one") == parse_lanes("one", workers=1) == [""]
    assert parse_lanes("long=2, front=1,quick=1") == [FRONT, QUICK, LONG, LONG]


def test_one_process_is_not_several() -> None:
    with pytest.raises(ValueError, match="one is a single process, not 2"):
        parse_lanes("one", workers=2)


REFUSED = (
    " ; front=1; front=1,quick=1,long=0; front=1,quick=1,long=1,long=1; front=1,quick=1,long=257;"
    "front=1,quick=1,long=x; front=1,quick=1,slow=1; two"
)


@pytest.mark.parametrize("text", REFUSED.split(";"))
def test_settings_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="THALWEG_LANES"):
        parse_lanes(text)
