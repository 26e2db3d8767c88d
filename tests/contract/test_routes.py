"""What holds of every route of the OpenAPI document: HEAD answers as GET, and options are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.app.harness import Answer, Post, Service, ask, head, wait_until
from tests.streams import Block, Stream

BLOCKS = [Block(event, 1, ((-1, 2.5), (1, 1.0), (2, 4.0))) for event in (1, 2)]
STREAM = Stream("summary", 2, 4, tuple(BLOCKS)).encode()
STREAMED = {
    "/v1/datasets/{ident}/image.png",
    "/v1/datasets/{ident}/views/{name}/tiles",
    "/v1/pipelines/{ident}/batches",
    "/v1/runs/{run}/rows/{report}",
    "/v1/runs/{run}/progress",
}
"""HEAD of these computes nothing, so its answer has no Content-Length."""
OF_EACH = {"date", "x-request-id", "transfer-encoding"}
MEASURED = {"/metrics", "/readyz"}
"""Their length differs from one answer to the next."""


class Place:
    """A server that has one of everything, and the document of its routes."""

    def __init__(self, directory: Path) -> None:
        root = directory / "root"
        root.mkdir()
        np.save(root / "scan.npy", np.arange(4 * 6, dtype="<u2").reshape(4, 3, 2))
        self.service = Service(directory, dataset_roots=root)
        self.document = self.service.get("/openapi.json").json()
        self.post("/v1/datasets", {"id": "scan", "files": ["scan.npy"]})
        view = self.post("/v1/datasets/scan/views", {})["id"]
        stages = [{"op": "source", "dataset": "scan"}, {"op": "batch", "size": 2}]
        pipeline = self.post("/v1/pipelines", {"order": 1, "stages": stages})["id"]
        run = self.post("/v1/runs", {"perspective": "gul", "reports": ["melt"]})["id"]
        sent = Post(f"/v1/runs/{run}/streams", [STREAM], [("Upload-Complete", "?1")])
        stream = str(ask(self.service, sent).getheader("Location")).rpartition("/")[2]
        self.post(f"/v1/runs/{run}/seal", {})
        wait_until(lambda: self.service.get(f"/v1/runs/{run}").json()["state"] == "done")
        table = Post(
            "/v1/portfolios/loss-sets/book?form=ylt&no_of_periods=9",
            [b"Period,Loss\n1,5\n"],
            method="PUT",
        )
        assert ask(self.service, table).status == 201
        self.values = {"code": "option", "number": "0", "index": "0", "key": "zarr.json"}
        self.values |= {"run": run, "stream": stream, "view": view, "report": "melt"}
        self.pipeline, self.view = pipeline, view

    def post(self, path: str, values: object) -> Any:  # noqa: ANN401 - JSON
        answer = ask(self.service, Post(path, [json.dumps(values).encode()]))
        assert answer.status < 300, answer.body
        return answer.json()

    def address(self, path: str) -> str:
        """A path of the document, with ids of what there is."""
        ident = {"/v1/pipelines": self.pipeline, "/v1/portfolios": "book"}.get(
            "/".join(path.split("/")[:3]), "scan"
        )
        name = self.view if "/views/" in path else "occurrence"
        name = "map" if path.startswith("/v1/stages") else name
        return path.format_map({**self.values, "ident": ident, "name": name, "digest": "0" * 32})

    def ask(self, method: str, path: str) -> Answer:
        with self.service.connect() as client:
            client.sendall(head(method, path, [("Content-Length", "0")]))
            return Answer(client, method)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("routes"))
    try:
        yield made
        assert made.service.stop() == 0
        assert not made.service.failures()
    finally:
        made.service.kill()


def headers_of(answer: Answer) -> dict[str, str]:
    return {
        name.lower(): value for name, value in answer.getheaders() if name.lower() not in OF_EACH
    }


def compare(place: Place, path: str, address: str) -> None:
    """Ask for GET and HEAD, and compare."""
    whole, bare = place.ask("GET", address), place.ask("HEAD", address)
    assert whole.status in {200, 204}, (path, whole.body)
    assert (bare.status, bare.body) == (whole.status, b""), path
    wanted, found = headers_of(whole), headers_of(bare)
    if path in STREAMED:
        assert "content-length" not in found, path
        wanted.pop("content-length", None)
    if path in MEASURED:
        assert wanted.pop("content-length"), path
        assert found.pop("content-length"), path
    assert found == wanted, path


def test_head_answers_as_get(place: Place) -> None:
    reads = [path for path, methods in place.document["paths"].items() if "get" in methods]
    assert len(reads) >= 25
    for path in reads:
        compare(place, path, place.address(path))
    view = f"/v1/datasets/scan/views/{place.view}"
    for form in ("npy", "json"):
        compare(place, "", f"{view}/tiles/0?format={form}")
    for key in ("data/c/0/0/0", "data/zarr.json"):
        compare(place, "", f"/zarr/{place.view}/{key}")


def test_head_of_a_table_of_tiles_encodes_none(place: Place) -> None:
    address = f"/v1/datasets/scan/views/{place.view}/plan?format=arrow"
    whole, bare = headers_of(place.ask("GET", address)), headers_of(place.ask("HEAD", address))
    assert whole.pop("content-length")
    assert bare == whole


def test_head_is_refused_as_get(place: Place) -> None:
    for address in (
        "/v1/datasets/none/image.png",
        "/v1/datasets/scan/image.png?map=red",
        "/v1/datasets/scan/image.png?reduction=1",
        "/v1/datasets/scan/views/none/tiles",
        "/v1/pipelines/none/batches",
        f"/zarr/{place.view}/data/c/9/9/9",
        f"/v1/runs/{place.values['run']}/rows/none",
    ):
        assert place.ask("HEAD", address).status == place.ask("GET", address).status >= 400
    refused = place.ask("HEAD", "/v1/datasets/scan/reduce")
    assert (refused.status, refused.getheader("Allow")) == (405, "POST")
    allowed = place.ask("PUT", "/v1/datasets/scan/image.png")
    assert (allowed.status, allowed.getheader("Allow")) == (405, "GET, HEAD")


def test_a_body_that_is_required_is_not_empty(place: Place) -> None:
    for path, operations in place.document["paths"].items():
        body = operations.get("post", {}).get("requestBody", {})
        if "application/json" in body.get("content", {}):
            found = place.ask("POST", place.address(path)).json()
            empty = found.get("detail") == "the body is empty" and "Send " in found["hint"]
            assert empty is body["required"], (path, found)


def test_a_put_where_a_post_is_meant_is_told_so(place: Place) -> None:
    found = place.ask("PUT", "/v1/datasets/scan/tiles").json()
    assert found["hint"] == "Use POST; to curl -T FILE, add -X POST"
    assert place.ask("DELETE", "/v1/datasets/scan/tiles").json()["hint"] == "Use POST"


def test_every_route_but_operations_refuses_options_that_it_does_not_have(place: Place) -> None:
    for path, operations in place.document["paths"].items():
        for method, operation in operations.items():
            if "operations" in operation["tags"]:
                for query in ("t=1", "x", "collect[]=a&collect[]=b"):
                    plain = place.ask(method.upper(), place.address(path))
                    more = place.ask(method.upper(), f"{place.address(path)}?{query}")
                    assert more.status == plain.status == 200, path
                continue
            known = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
            answer = place.ask(method.upper(), f"{place.address(path)}?no_such=1")
            assert answer.status == 422, (method, path, answer.status)
            problem = answer.json()
            assert (problem["code"], problem["option"]) == ("option", "no_such"), path
            assert "no_such" in problem["detail"]
            assert all(name in problem["hint"] for name in known), path


def test_every_route_refuses_options_given_twice(place: Place) -> None:
    for path, operations in place.document["paths"].items():
        for method, operation in operations.items():
            for each in operation.get("parameters", ()):
                if each["in"] != "query":
                    continue
                name = each["name"]
                address = f"{place.address(path)}?{name}=1&{name}=1"
                problem = place.ask(method.upper(), address).json()
                assert (problem["code"], problem["option"]) == ("option", name), path
                assert "twice" in problem["detail"], path
