"""Answers of the routes of views, tiles, reductions and zarr, on a real server."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.tiles.routes import MAX_BODY, MAX_COUNT, MAX_PARTS
from tests.app.harness import Answer, Service, head
from tests.core.tiles import writers

FRAMES = np.arange(4 * 3 * 8 * 6, dtype="<u2").reshape(4, 3, 8, 6)
_REORDERED = "ordered by the numbers in the frames, which is not the order given"
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


def test_files_are_listed_in_the_order_of_their_frames(place: Place) -> None:
    mib = writers.mib(FRAMES[:2].reshape(6, 8, 6), "U16", splits=[2, 4], names=["b.mib", "a.mib"])
    for name, octets in (
        mib | {"a.raw": FRAMES[1].tobytes(), "b.raw": FRAMES[0].tobytes()}
    ).items():
        (place.root / name).write_bytes(octets)
    plain = {"dtype": "<u2", "sig_shape": [8, 6]}
    for form, more in {"mib": {}, "raw": plain}.items():
        for given in (["a", "b"], ["b", "a"]):
            entry = {"id": f"{form}-{given[0]}", "files": [f"{k}.{form}" for k in given], **more}
            info = place.ask("POST", "/v1/datasets", json.dumps(entry).encode()).json()
            expected = ["b", "a"] if form == "mib" else given
            assert [file["name"] for file in info["files"]] == [f"{k}.{form}" for k in expected]
            for number, file in enumerate(info["files"]):
                answer = place.ask("GET", f"/v1/datasets/{info['id']}/files/{number}")
                assert answer.body == (place.root / file["name"]).read_bytes()
            assert (info["notes"][:1] == [_REORDERED]) is (form == "mib" and given != expected)
            tile = {"select": {"frames": [0]}}
            view = place.ask(
                "POST", f"/v1/datasets/{info['id']}/views", json.dumps(tile).encode()
            ).json()["id"]
            values = place.ask("GET", f"/v1/datasets/{info['id']}/views/{view}/tiles/0").body
            first = FRAMES[1, 0] if form == "raw" and given[0] == "a" else FRAMES[0, 0]
            assert values == first.tobytes()


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


def test_chunks_whose_data_is_gone_are_no_fill_values(place: Place) -> None:
    """zarr reads zeros where the answer is 404."""
    file = place.root / "gone.npy"
    np.save(file, FRAMES)
    assert place.ask("POST", "/v1/datasets", b'{"id": "gone", "files": ["gone.npy"]}').status == 201
    about = place.ask("POST", "/v1/datasets/gone/views", b"{}").json()
    chunk = "data/c/0/0/0/0"
    plain, pinned = f"/zarr/{about['id']}", f"/zarr/{about['id']}.{about['fingerprint']}"
    assert place.ask("GET", f"{plain}/{chunk}").body == place.ask("GET", f"{pinned}/{chunk}").body
    # An empty fingerprint, as of a variable that is not set, pins nothing.
    assert place.ask("GET", f"{plain}./{chunk}").status == 412
    np.save(file, FRAMES + 1)
    assert place.ask("GET", f"{plain}/{chunk}").status == 200
    for key in (chunk, "zarr.json", "data/zarr.json"):
        answer = place.ask("GET", f"{pinned}/{key}")
        assert (answer.status, answer.json()["code"]) == (412, "data-changed"), key
    file.unlink()
    assert place.ask("GET", f"{plain}/{chunk}").status == 412
    assert place.ask("DELETE", "/v1/datasets/gone").status == 204
    for store in (plain, pinned):
        assert place.ask("GET", f"{store}/{chunk}").status == 412
        assert place.ask("GET", f"{store}/zarr.json").status == 404
    assert place.ask("GET", f"/zarr/none/{chunk}").status == 412


@pytest.mark.parametrize(
    ("view", "numbers"),
    [
        ({"select": {"frames": [4, 4, 0, 11]}}, [4, 4, 0, 11]),
        ({"select": {"frames": [4, 6, 0, 11]}, "bin": {"nav": 2}}, [5, 5.5]),
        ({"select": {"mask": base64.b64encode(b"\x50\x10").decode()}}, [1, 3, 11]),
        ({"sync_offset": 10}, [0, 1]),
        ({"tile_shape": [5, 8, 6]}, list(range(12))),
    ],
)
def test_coordinates_of_listed_frames_are_their_numbers(
    place: Place, view: dict[str, object], numbers: list[float]
) -> None:
    about = place.ask("POST", "/v1/datasets/scan/views", json.dumps(view).encode()).json()
    octets = place.ask("GET", f"/zarr/{about['id']}/frame/c/0").body
    assert np.frombuffer(octets, "<f8").tolist() == numbers


def test_listed_frames_of_a_line_keep_its_scale(place: Place) -> None:
    np.save(place.root / "line.npy", FRAMES[0])
    axes = [{"name": name, "scale": 2, "offset": 1} for name in ("t", "ky", "kx")]
    entry = {"id": "line", "files": ["line.npy"], "axes": axes}
    assert place.ask("POST", "/v1/datasets", json.dumps(entry).encode()).status == 201
    view = b'{"select": {"frames": [2, 0]}}'
    ident = place.ask("POST", "/v1/datasets/line/views", view).json()["id"]
    octets = place.ask("GET", f"/zarr/{ident}/t/c/0").body
    assert np.frombuffer(octets, "<f8").tolist() == [5, 1]


def test_a_chunk_has_one_address(place: Place) -> None:
    assert place.ask("GET", f"/zarr/{place.view}/data/c/0/0/0/0").status == 200
    for key in ("00/0/0/0", "0/0/0/00", "0/0/0", "0/0/0/0/0", "+0/0/0/0"):
        assert place.ask("GET", f"/zarr/{place.view}/data/c/{key}").status == 404


RAW = {"format": "raw", "dtype": "<u2", "sig_shape": [8, 6], "nav_shape": [4, 3], "partial": True}
DECLARED: list[dict[str, object]] = [
    {"dtype": ">u2"},
    {"sig_shape": [6, 8]},
    {"nav_shape": [3, 4]},
    {"sync_offset": 1},
    {"file_header": 2},
    {"frame_header": 2},
    {"frame_footer": 2},
    {"axes": [{"name": name, "scale": 2} for name in ("y", "x", "ky", "kx")]},
    {"corrections": {"excluded": [[0, 0]]}},
]
PADDED = {"missing": "zero", "dtype": "<f8"}
STAGES = [{"op": "source", "dataset": "raw", "view": PADDED}, {"op": "batch", "size": 1}]


def tag(answer: Answer) -> str:
    return str(answer.getheader("ETag"))


def observe(place: Place, entry: object, earlier: list[str]) -> tuple[dict[str, Answer], list[str]]:
    """Register a dataset and what is on top of it, and delete both.

    Returns:
        Every answer that has a tag, and addresses with tokens. Those of earlier are refused.
    """

    def post(path: str, body: object) -> dict[str, str]:
        answer = place.ask("POST", path, json.dumps(body).encode())
        assert answer.status == 201, answer.body
        found: dict[str, str] = answer.json()
        return found

    post("/v1/datasets", entry)
    known = place.ask("POST", "/v1/datasets/raw/views", json.dumps(PADDED).encode()).json()
    pipeline = post("/v1/pipelines", {"order": 1, "stages": STAGES})
    view, batch = f"/v1/datasets/raw/views/{known['id']}", f"/v1/pipelines/{pipeline['id']}"
    keys = ["zarr.json", "data/zarr.json", "data/c/0/0/0/0", "nav_0/zarr.json", "nav_0/c/0"]
    paths = [f"/zarr/{known['id']}/{key}" for key in keys]
    paths += [f"{view}/raw", f"{view}/tiles/0", f"{batch}/batch?format=frames"]
    paths += ["/v1/datasets/raw/image.png", "/v1/datasets/raw/files/0"]
    answers = {path: place.ask("GET", path) for path in paths}
    for path in earlier:
        assert place.ask("GET", path).status == 412
    for path in (f"{batch}", "/v1/datasets/raw"):
        assert place.ask("DELETE", path).status == 204
    after = [f"{view}/tiles?after={known['token']}", f"{batch}/batch?after={pipeline['token']}"]
    return {path: answer for path, answer in answers.items() if answer.status == 200}, after


def test_what_is_declared_anew_is_another_version(place: Place) -> None:
    np.append(FRAMES, FRAMES[:1]).tofile(place.root / "scan.raw")
    entry = {"id": "raw", "files": ["scan.raw"], **RAW}
    before, tokens = observe(place, entry, [])
    assert len(before) == 10
    for change in DECLARED:
        after, _ = observe(place, entry | change, tokens)
        known = before.keys() & after.keys()
        tags = {path for path in known if tag(after[path]) != tag(before[path])}
        bodies = {path for path in known if after[path].body != before[path].body}
        assert bodies, change
        assert bodies <= tags == before.keys() & after.keys() - {"/v1/datasets/raw/files/0"}, change
    again, _ = observe(place, entry, [])
    # Tokens in a batch tell the minute in which its pipeline was registered.
    same = {path for path in before if tag(again[path]) == tag(before[path])}
    assert before.keys() == again.keys()
    assert same >= {path for path in before if "/batch" not in path}


@pytest.mark.parametrize(
    ("query", "body", "said"),
    [
        ("?format=npy", {"reduction": "com"}, "the reduction has several results"),
        ("", {"reduction": "sum", "view": {"dtype": "u1"}}, "results of reductions are float64"),
        ("", {"reduction": "sum", "view": {"casting": "clip"}}, "results of reductions are"),
        ("", {"reduction": "sum", "view": {"casting": "safe"}}, "results of reductions are"),
        ("", {"reduction": "sum", "view": []}, "the members view, an object, and reduction"),
        ("", {"reduction": {"op": "ring"}}, "there is no reduction 'ring'"),
        ("", {"reduction": 3}, "the members view, an object, and reduction"),
    ],
)
def test_what_would_be_ignored_is_refused(
    place: Place, query: str, body: dict[str, object], said: str
) -> None:
    answer = place.ask("POST", f"/v1/datasets/scan/reduce{query}", json.dumps(body).encode())
    assert answer.status == 422
    assert said in answer.json()["detail"]


def test_pictures_take_reductions_in_short(place: Place) -> None:
    path = "/v1/datasets/scan/image.png"
    tags = {tag(place.ask("GET", f"{path}{q}")) for q in ("", "?reduction=sum")}
    assert len(tags) == 1
    assert place.ask("GET", f"{path}?reduction=disk:4,3,2").status == 200
    # One of several is drawn if it is named, and none by itself.
    several = f"{path}?reduction=com"
    assert place.ask("HEAD", several).status == 422
    assert place.ask("GET", several).json()["hint"] == "Give result=com_0, or result=com_1"
    assert [place.ask("GET", f"{several}&result=com_{i}").status for i in range(2)] == [200, 200]
    assert place.ask("GET", f"{several}&result=com_2").json()["hint"] == "Use com_0, com_1"
    assert place.ask("GET", f"{path}?reduction=sum&result=sum").status == 200
    answer = place.ask("GET", f"{path}?low=0.01&high=0.99")
    assert "write 99, not 0.99" in answer.json()["hint"]


@pytest.mark.parametrize("path", ["plan", "reduce"])
def test_the_json_of_a_view_or_reduction_has_a_largest_size(place: Place, path: str) -> None:
    body = b" " * (MAX_BODY + 1)
    with place.service.connect() as client:
        # The answer may come before all is taken.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(
                head("POST", f"/v1/datasets/scan/{path}", [("Content-Length", str(len(body)))])
            )
            client.sendall(body)
        refused = Answer(client, "POST")
    assert (refused.status, refused.json()["code"]) == (413, "too-large")
    assert refused.json()["allowed"] == MAX_BODY


def test_positions_without_a_frame_are_nan_in_maps_of_what_is_binned_or_chosen(
    place: Place,
) -> None:
    frames = np.random.default_rng(3).integers(0, 900, (15, 8, 6)).astype("<u2")
    np.save(place.root / "short.npy", frames)
    entry = {"id": "short", "files": ["short.npy"], "nav_shape": [4, 4], "partial": True}
    assert place.ask("POST", "/v1/datasets", json.dumps(entry).encode()).status == 201
    scan = np.full(16, np.nan)
    scan[:15] = frames.sum((1, 2))

    def reduced(reduction: object, **view: object) -> Any:  # noqa: ANN401 - an array
        body = json.dumps({"view": view, "reduction": reduction}).encode()
        answer = place.ask("POST", "/v1/datasets/short/reduce?format=npy", body)
        assert answer.status == 200, answer.body
        return np.load(io.BytesIO(answer.body))

    binned = scan.reshape(2, 2, 2, 2).sum((1, 3))
    everything = {"op": "virtual", "detectors": [{"rectangle": [[0, 8], [0, 6]]}]}
    for reduction in ({"op": "sum", "over": "pixels"}, everything, "rectangle:0,8,0,6"):
        found = reduced(reduction, bin={"nav": 2})
        assert np.array_equal(found, binned, equal_nan=True)
        assert np.array_equal(
            reduced(reduction, select={"frames": [15, 3]}), [np.nan, scan[3]], equal_nan=True
        )
        assert np.isnan(reduced(reduction, select={"frames": [15]})).all()
        for view in ({"missing": "skip"}, {"dtype": "<f4"}):
            assert np.array_equal(reduced(reduction, **view), scan.reshape(4, 4), equal_nan=True)
            found = reduced(reduction, bin={"nav": 2}, **view)
            assert np.array_equal(found, binned, equal_nan=True)
    # Over the frames, those that there are.
    assert np.array_equal(reduced("sum"), frames.astype("f8").sum(0))
