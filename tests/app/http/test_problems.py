"""Problem documents of requests that no route answers."""

from __future__ import annotations

import pytest

from app.http.problems import _nearest
from app.main import ROUTERS

PATHS = [route.path for routes in ROUTERS for route in routes.routes]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/pipelines/p1/batch/3", "/v1/pipelines/{ident}/batch"),
        ("/v1/dataset", "/v1/datasets"),
        ("/datasets", "/v1/datasets"),
        ("/v1/datasets/scan/tile", "/v1/datasets/{ident}/tiles"),
        ("/v1/datasets/scan/image", "/v1/datasets/{ident}/image.png"),
        ("/v1/loss/melt", "/v1/losses/{report}"),
        ("/losses/ept", "/v1/losses/{report}"),
        ("/v1/losses/", "/v1/losses"),
        ("/v1/inputs", "/v1/inputs/{name}"),
        ("/v1/run/r/stream/1", "/v1/runs/{run}/streams/{stream}"),
        ("/health", "/healthz"),
        ("/v1", None),
        ("/", None),
        ("//", None),
        ("/v1/frames/3", None),
        ("/v1/datasets/scan/frames/3", None),
        ("/" + "x/" * 9999, None),
    ],
)
def test_the_route_is_named_that_a_path_is_most_like(path: str, meant: str | None) -> None:
    assert _nearest(PATHS, path) == meant
