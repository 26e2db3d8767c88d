"""Each route runs in the lane that it declares, however its path is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.routing import Match, Route

from app.command.serving import lanes_of_routes
from app.main import ROUTERS
from app.server.lanes.table import FRONT, LANES, LONG, QUICK

DECLARED = {
    # Metadata, health, tokens, small JSON, progress.
    FRONT: """
        GET /   GET /healthz    GET /readyz     GET /metrics    GET /docs
        GET /docs/{name:path}
        GET /problems/{code}    POST /v1/tokens/inspect POST /v1/tokens/refresh
        GET /v1/datasets        GET /v1/datasets/{ident}        DELETE /v1/datasets/{ident}
        GET /v1/datasets/{ident}/views/{name}   DELETE /v1/datasets/{ident}/views/{name}
        GET /v1/stages          GET /v1/stages/{name}
        GET /v1/pipelines       GET /v1/pipelines/{ident}       DELETE /v1/pipelines/{ident}
        GET /v1/runs            POST /v1/runs
        GET /v1/runs/{run}      DELETE /v1/runs/{run}   GET /v1/runs/{run}/progress
        GET /v1/runs/{run}/streams      OPTIONS /v1/runs/{run}/streams
        GET /v1/runs/{run}/streams/{stream}     DELETE /v1/runs/{run}/streams/{stream}
        OPTIONS /v1/runs/{run}/streams/{stream} DELETE /v1/inputs/{name}/{digest}
        GET /v1/portfolios/loss-sets    GET /v1/portfolios/loss-sets/{ident}
        DELETE /v1/portfolios/loss-sets/{ident}
        GET /console            GET /console/
        GET /console/sign-in    POST /console/sign-in   POST /console/sign-out
        GET /console/assets/{digest}/{name}     GET /console/runs       GET /console/runs/{ident}
        GET /console/datasets   GET /console/datasets/{ident}
        GET /console/pipelines  GET /console/pipelines/{ident}  GET /console/operations
        GET /console/samples/{name}     POST /console/samples/scan
        GET /console/runs/new   GET /console/portfolio  PATCH /v1/runs/{run}
    """,
    # One tile, one batch, a picture, a chunk, and what is computed for a view or a pipeline.
    QUICK: """
        GET /v1/datasets/{ident}/views/{name}/tiles/{index}     GET /v1/pipelines/{ident}/batch
        GET /v1/datasets/{ident}/image.png      GET /zarr/{view}/{key:path}     GET /zarr/{view}
        POST /v1/datasets/{ident}/plan  GET /v1/datasets/{ident}/views/{name}/plan
        POST /v1/datasets/{ident}/views POST /v1/pipelines
    """,
    # Posted streams, uploads, streams of tiles, batches and rows, files, reductions, seals,
    # inputs, and the scan of a dataset.
    LONG: """
        POST /v1/losses         PUT /v1/losses
        POST /v1/losses/{report}        PUT /v1/losses/{report}
        POST /v1/runs/{run}/streams     PATCH /v1/runs/{run}/streams/{stream}
        POST /v1/runs/{run}/streams/{stream}    PUT /v1/runs/{run}/inputs/{name}
        PUT /v1/inputs/{name}   POST /v1/runs/{run}/seal        POST /v1/runs/{run}/reports
        GET /v1/runs/{run}/reports/{report}     GET /v1/runs/{run}/rows/{report}
        POST /v1/portfolios/loss-sets   PUT /v1/portfolios/loss-sets/{ident}
        GET /v1/portfolios/loss-sets/{ident}/losses     POST /v1/portfolios/query
        POST /v1/datasets       GET /v1/datasets/{ident}/files/{number}
        POST /v1/datasets/{ident}/tiles GET /v1/datasets/{ident}/views/{name}/tiles
        GET /v1/datasets/{ident}/views/{name}/raw       GET /v1/pipelines/{ident}/batches
        GET /console/runs/{ident}/about         GET /console/files
        POST /v1/datasets/{ident}/reduce
    """,
}

TABLE = lanes_of_routes()
ROUTES = [route for router in ROUTERS for route in router.routes]
VALUES = {
    "ident": "a~b c",
    "index": "7",
    "key": "data/c/0/0",
    "number": "0",
    "report": "melt",
    "name": "x-1",
    "run": "r1",
    "stream": "s1",
    "view": "v.1",
    "code": "option",
    "digest": "0" * 32,
}


def declared(route: Route) -> str:
    return str(getattr(route.endpoint, "lane", ""))


def cases() -> Iterator[tuple[str, str, str]]:
    """Method, path with values, and lane by declaration of every route."""
    for route in ROUTES:
        path = route.path_format.format_map(VALUES)
        for method in route.methods or ():
            yield method, path, declared(route)


def test_every_route_declares_a_lane() -> None:
    undeclared = [route.path for route in ROUTES if declared(route) not in LANES]
    assert undeclared == []


def test_routes_are_in_the_lane_for_their_kind_of_work() -> None:
    wanted = {lane: text.split() for lane, text in DECLARED.items()}
    pairs = {
        (m, p): lane for lane, w in wanted.items() for m, p in zip(w[::2], w[1::2], strict=True)
    }
    found = {
        (method, route.path): declared(route)
        for route in ROUTES
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert found == pairs


@pytest.mark.parametrize(("method", "path", "lane"), sorted({*cases()}))
def test_the_table_tells_the_lane_of_every_route(method: str, path: str, lane: str) -> None:
    scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    served = next(route for route in ROUTES if route.matches(dict(scope))[0] is Match.FULL)
    assert declared(served) == lane
    assert TABLE.lane(method, path) == lane
    plain = path.replace(" ", "%20")
    letters = "".join(f"%{ord(c):02x}" if c.isalpha() else c for c in plain.replace("%20", " "))
    for target in (
        plain,
        f"{plain}?a=/v1/losses#b",
        f"http://host:8000{plain}",
        plain.replace("~", "%7E"),
        letters.replace(" ", "%20"),
    ):
        assert TABLE.lane_of_bytes(f"{method} {target} HTTP/1.1\r\n".encode()) == lane, target


def test_head_runs_where_get_does_and_options_of_others_in_the_front() -> None:
    lanes = {(method, path): lane for method, path, lane in cases()}
    for (method, path), lane in lanes.items():
        if method == "GET":
            assert lanes["HEAD", path] == TABLE.lane("HEAD", path) == lane
        assert TABLE.lane("OPTIONS", path) == FRONT


def test_an_encoded_slash_is_a_slash() -> None:
    """As it is for the routes, which see decoded paths."""
    line = b"GET /zarr%2Fv%2fdata/c/0 HTTP/1.1\r\n"
    assert TABLE.lane_of_bytes(line) == TABLE.lane("GET", "/zarr/v/data/c/0") == QUICK
    assert TABLE.lane_of_bytes(b"GET /v1/pipelines/a%2Fbatches HTTP/1.1\r\n") == LONG
    assert TABLE.lane_of_bytes(b"GET /v1/pipelines/a%2Fb%2Fbatches HTTP/1.1\r\n") == FRONT
