"""Answers of the routes of views, tiles, reductions and zarr, on a real server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from app.tiles.routes import MAX_COUNT, MAX_PARTS
from tests.app.harness import Answer, Service, head

FRAMES = np.arange(4 * 3 * 8 * 6, dtype="<u2").reshape(4, 3, 8, 6)
AXES = [{"name": name} for name in ("y", "a b/c", "zarr.json", "data")]


class Place:
    """A server, and what it serves."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        np.save(self.root / "scan.npy", FRAMES)
        self.service = Service(directory, dataset_roots=self.root)
        entry = b'{"id": "scan", "files": ["scan.npy"]}'
        assert self.ask("POST", "/v1/datasets", entry).status == 201
        self.view = self.ask("POST", "/v1/datasets/scan/views", b"{}").json()["id"]

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = [("Content-Length", str(len(body))), *(headers or {}).items()]
        with self.service.connect() as client:
            client.sendall(head(method, path, sent) + body)
            return Answer(client, method)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("tiles"))
    try:
        yield made
    finally:
        made.service.stop()


def test_if_match_pins_a_version(place: Place) -> None:
    view = f"/v1/datasets/scan/views/{place.view}"
    paths = [
        "/v1/datasets/scan/files/0",
        "/v1/datasets/scan/image.png",
        f"{view}/raw",
        f"{view}/tiles/0",
        f"/zarr/{place.view}/data/c/0/0/0/0",
        f"/zarr/{place.view}/zarr.json",
    ]
    tags = {}
    for path in paths:
        whole = place.ask("GET", path)
        tags[path] = str(whole.getheader("ETag"))
        for condition in ("*", f'"x,y", {tags[path]}'):
            answer = place.ask("GET", path, headers={"If-Match": condition})
            assert (answer.status, answer.body) == (200, whole.body), path
        for condition in (f"W/{tags[path]}", '"x"'):
            answer = place.ask("GET", path, headers={"If-Match": condition, "Range": "bytes=0-0"})
            assert (answer.status, answer.json()["code"]) == (412, "data-changed"), path
        answer = place.ask("GET", path, headers={"If-None-Match": tags[path]})
        assert (answer.status, answer.body) == (304, b""), path
    assert len(set(tags.values())) == len(paths)
    file = place.root / "scan.npy"
    status = file.stat()
    os.utime(file, ns=(status.st_mtime_ns, status.st_mtime_ns + 10**9))
    try:
        for path in paths:
            answer = place.ask("GET", path, headers={"If-Match": tags[path]})
            assert (answer.status, answer.json()["code"]) == (412, "data-changed"), path
    finally:
        os.utime(file, ns=(status.st_mtime_ns, status.st_mtime_ns))


def test_a_plan_lists_so_many_tiles_and_parts(place: Place) -> None:
    plan = f"/v1/datasets/scan/views/{place.view}/plan"
    for option, limit in (("count", MAX_COUNT), ("parts", MAX_PARTS)):
        assert place.ask("GET", f"{plan}?{option}={limit}").status == 200
        refused = place.ask("GET", f"{plan}?{option}={limit + 1}")
        assert (refused.status, refused.json()["code"]) == (422, "option")
        assert str(limit) in refused.json()["detail"]


def test_conditions_do_not_count_where_nothing_is(place: Place) -> None:
    for name in ("If-Match", "If-None-Match"):
        answer = place.ask("GET", f"/zarr/{place.view}/data/c/9/9/9/9", headers={name: "*"})
        assert answer.status == 404


def test_a_zarr_store_lists_what_has_an_address(place: Place) -> None:
    entry = {"id": "named", "files": ["scan.npy"], "axes": AXES}
    assert place.ask("POST", "/v1/datasets", json.dumps(entry).encode()).status == 201
    view = place.ask("POST", "/v1/datasets/named/views", b"{}").json()["id"]
    group = place.ask("GET", f"/zarr/{view}/zarr.json").json()
    listed = group["consolidated_metadata"]["metadata"]
    assert sorted(listed) == ["data", "y"]
    assert listed["data"]["shape"] == list(FRAMES.shape)
    assert listed["data"]["dimension_names"] == [axis["name"] for axis in AXES]
    for name, array in listed.items():
        assert place.ask("GET", f"/zarr/{view}/{name}/zarr.json").json() == array
    assert place.ask("GET", f"/zarr/{view}/y/c/0").status == 200
    assert place.ask("GET", f"/zarr/{view}/data/c/0").status == 404


def test_a_chunk_has_one_address(place: Place) -> None:
    assert place.ask("GET", f"/zarr/{place.view}/data/c/0/0/0/0").status == 200
    for key in ("00/0/0/0", "0/0/0/00", "0/0/0", "0/0/0/0/0", "+0/0/0/0"):
        assert place.ask("GET", f"/zarr/{place.view}/data/c/{key}").status == 404
