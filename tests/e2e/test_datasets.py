"""Datasets, views and tiles of a real server over loopback, as clients meet them."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import importlib.util
import io
import itertools
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from backports.zstd import decompress as zstd_decompress

from app.errors import KINDS
from tests.app.harness import PROBLEM, Answer, Service, head, wait_until
from tests.core.tiles import reference
from tests.frames import Frame, FrameReader
from tests.scale import SOAK
from tests.tokens import undated

Array = npt.NDArray[Any]

TOKEN_KEYS = f"3:sign:{'33' * 32}"
CUTS = 1000 if SOAK else 60
KILLS = 10 if SOAK else 1
RANGES = 2000 if SOAK else 60
FRAMES = {"Accept-Encoding": "identity"}

SCAN, SIG = (12, 10), (16, 24)
BIG_FRAMES, BIG_SIG = 512, (256, 256)
"""64 MiB: far more than what is under way between two ends of a connection."""


class Cut(Exception):  # noqa: N818 - no error, but what a test does
    """The connection ended before the stream did."""


class Stream:
    """Frames of an answer as they arrive.

    Args:
        answer: the answer, its body unread.
        limit: bytes after which the connection is cut.
    """

    def __init__(self, answer: http.client.HTTPResponse, limit: float = float("inf")) -> None:
        self._answer = answer
        self._left = limit

    def __iter__(self) -> Iterator[Frame]:
        """Up to END or ERROR.

        Raises:
            Cut: there was neither.
        """
        reader = FrameReader()
        while not reader.over:
            try:
                data = self._answer.read1(int(min(1 << 16, self._left)))
            except (http.client.IncompleteRead, OSError) as e:
                raise Cut from e
            if not data:
                raise Cut
            self._left -= len(data)
            yield from reader.feed(data)


def values_of(frame: Frame) -> Array:
    """The one array of a frame."""
    (array,) = frame.header["arrays"]
    assert (array["name"], array["offset"], array["nbytes"]) == ("data", 0, len(frame.payload))
    assert (array["dtype"], array["shape"]) == (frame.header["dtype"], frame.header["shape"])
    return np.frombuffer(frame.payload, array["dtype"]).reshape(array["shape"])


class Place:
    """A server, the directory it serves, and requests to it."""

    def __init__(self, service: Service, root: Path) -> None:
        self.service = service
        self.root = root

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A request and its whole answer; a problem is held to the table of problems."""
        data = b"" if body is None else json.dumps(body).encode()
        sent = [("Content-Length", str(len(data))), *(headers or {}).items()]
        with self.service.connect() as client:
            client.sendall(head(method, path, sent) + data)
            answer = Answer(client, method)
        if answer.media_type == PROBLEM and method != "HEAD":
            found = answer.json()
            assert answer.status == found["status"] == KINDS[found["code"]].status
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("GET", path, None, named)

    def code(self, method: str, path: str, body: object = None) -> str:
        """The code of the problem that a request is answered with."""
        answer = self.ask(method, path, body)
        assert answer.media_type == PROBLEM, (answer.status, answer.body[:300])
        code: str = answer.json()["code"]
        return code

    def register(self, ident: str, files: list[str], **more: object) -> dict[str, Any]:
        answer = self.ask("POST", "/v1/datasets", {"id": ident, "files": files, **more})
        assert answer.status in {200, 201}, answer.body
        about: dict[str, Any] = answer.json()
        return about

    def view(self, dataset: str, **spec: object) -> str:
        """The path of a view that is kept."""
        answer = self.ask("POST", f"/v1/datasets/{dataset}/views", spec)
        assert answer.status in {200, 201}, answer.body
        return f"/v1/datasets/{dataset}/views/{answer.json()['id']}"

    @contextlib.contextmanager
    def stream(
        self, path: str, body: object = None, limit: float = float("inf"), receive: int = 0
    ) -> Iterator[Stream]:
        """A stream of frames; the connection ends with the block, wherever it is."""
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        with socket.socket() as client:
            if receive:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            client.settimeout(20)
            client.connect(("127.0.0.1", self.service.port))
            client.sendall(head(method, path, [("Content-Length", str(len(data)))]) + data)
            answer = Answer(client, method, read=False)
            assert answer.status == 200, answer.read()
            with answer:
                yield Stream(answer, limit)

    def write(self, name: str, content: bytes) -> Path:
        path = self.root / name
        path.write_bytes(content)
        return path


def start(directory: Path, root: Path, **settings: object) -> Service:
    return Service(directory, dataset_roots=root, token_keys=TOKEN_KEYS, **settings)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server for all tests, in which nothing may be left at the end."""
    directory = tmp_path_factory.mktemp("datasets")
    root = directory / "root"
    root.mkdir()
    service = start(directory, root)
    try:
        service.get("/metrics")
        before = service.descriptors()
        made = Place(service, root)
        yield made
        wait_until(service.is_idle)
        # Some datasets stay open for the next request of each lane, a descriptor each and one
        # per map.
        wait_until(lambda: service.descriptors() <= before + 3 * 40)
        assert made.get("/readyz").status == 200
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()


@pytest.fixture(scope="module")
def counts(place: Place) -> Array:
    """Dataset ``counts``: shape SCAN + SIG, <u2, in two files."""
    values = np.random.default_rng(1).integers(0, 3000, (*SCAN, *SIG)).astype("<u2")
    flat = values.reshape(-1, *SIG)
    place.write("counts_0.raw", flat[:50].tobytes())
    place.write("counts_1.raw", flat[50:].tobytes())
    axes = [
        {"name": "y", "unit": "nm", "scale": 0.5, "offset": 10.0},
        {"name": "x", "unit": "nm", "scale": 0.25},
        {"name": "ky"},
        {"name": "kx"},
    ]
    place.register(
        "counts",
        ["counts_0.raw", "counts_1.raw"],
        format="raw",
        dtype="<u2",
        nav_shape=SCAN,
        sig_shape=SIG,
        axes=axes,
    )
    return values


def big_content() -> bytes:
    return np.random.default_rng(2).bytes(BIG_FRAMES * 2 * BIG_SIG[0] * BIG_SIG[1])


BIG = {"format": "raw", "dtype": "<u2", "nav_shape": [BIG_FRAMES], "sig_shape": BIG_SIG}
BIG_VIEW = {"tile_shape": [4, *BIG_SIG]}


@pytest.fixture(scope="module")
def big(place: Place) -> bytes:
    """Dataset ``big``: its bytes."""
    content = big_content()
    place.write("big.raw", content)
    place.register("big", ["big.raw"], **BIG)
    return content


# -- the catalogue ---------------------------------------------------------------------


def test_a_dataset_is_registered_and_described(place: Place, counts: Array) -> None:
    assert counts.shape == (*SCAN, *SIG)
    about = place.get("/v1/datasets/counts").json()
    assert (about["nav_shape"], about["sig_shape"], about["dtype"]) == ([*SCAN], [*SIG], "<u2")
    assert about["frames"] == 120
    assert [file["name"] for file in about["files"]] == ["counts_0.raw", "counts_1.raw"]
    assert about["axes"][0] == {"name": "y", "size": 12, "unit": "nm", "scale": 0.5, "offset": 10.0}
    assert set(about["sync"].values()) == {0}
    assert len(about["fingerprint"]) == 16
    assert "counts" in place.get("/v1/datasets").json()["datasets"]
    assert place.get("/v1/datasets?limit=1").json()["after"] is not None


def test_the_same_request_again_finds_the_same_dataset(place: Place) -> None:
    place.write("again.raw", bytes(64))
    entry: dict[str, Any] = {"id": "again", "files": ["again.raw"], "format": "raw", "dtype": "|u1"}
    entry |= {"nav_shape": [4], "sig_shape": [4, 4]}
    first = place.ask("POST", "/v1/datasets", entry)
    second = place.ask("POST", "/v1/datasets", entry)
    assert (first.status, second.status) == (201, 200)
    assert first.json() == second.json()
    assert first.getheader("Location", "").endswith("/v1/datasets/again")
    other = {**entry, "nav_shape": [2, 2]}
    assert place.code("POST", "/v1/datasets", other) == "head-exists"
    unnamed = {name: value for name, value in entry.items() if name != "id"}
    idents = {place.ask("POST", "/v1/datasets", unnamed).json()["id"] for _ in range(2)}
    assert len(idents) == 1


def test_npy_files_say_what_they_are(place: Place) -> None:
    values = np.arange(-100, 260).astype(">i4").reshape(3, 4, 5, 6)
    buffer = io.BytesIO()
    np.save(buffer, values)
    place.write("self.npy", buffer.getvalue())
    about = place.register("self", ["self.npy"])
    assert (about["format"], about["nav_shape"], about["sig_shape"]) == ("npy", [3, 4], [5, 6])
    assert about["stored_dtype"] == ">i4"
    view = place.view("self", dtype="<f4")
    raw = place.get(f"{view}/raw").body
    np.testing.assert_array_equal(np.frombuffer(raw, "<f4").reshape(values.shape), values)


@pytest.mark.parametrize(
    "files",
    [
        ["../outside.raw"],
        ["/etc/passwd"],
        ["sub/../../outside.raw"],
        ["link.raw"],
        ["linked/outside.raw"],
        ["\x00.raw"],
        ["fifo"],
        ["/proc/self/environ"],
    ],
)
def test_paths_out_of_the_roots_are_refused(place: Place, files: list[str]) -> None:
    outside = place.root.parent / "outside.raw"
    outside.write_bytes(bytes(64))
    for name, target in (("link.raw", outside), ("linked", place.root.parent)):
        if not (place.root / name).is_symlink():
            (place.root / name).symlink_to(target)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(place.root / "fifo")
    body = {"files": files, "format": "raw", "dtype": "|u1", "sig_shape": [4, 4]}
    answer = place.ask("POST", "/v1/datasets", body)
    assert (answer.status, answer.json()["code"]) == (403, "path-refused")


RAW = {"format": "raw", "dtype": "<u2", "sig_shape": [4, 4]}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"files": ["nowhere.raw"], **RAW}, "file-missing"),
        ({"glob": "nowhere_*.raw", **RAW}, "file-missing"),
        ({"files": ["empty.raw"], **RAW}, "format"),
        ({"files": ["short.raw"], **RAW}, "format"),
        ({"files": ["bad.npy"]}, "format"),
        ({"files": ["cut.npy"]}, "format"),
        ({"files": ["good.raw"]}, "format-ambiguous"),
        ({"files": ["good.raw"], **RAW, "sig_shape": [0, 4]}, "option"),
        ({"files": ["good.raw"], **RAW, "sig_shape": [2**40, 2**40]}, "option"),
        ({"files": ["good.raw"], **RAW, "sig_shape": "4x4"}, "option"),
        ({"files": ["good.raw"], **RAW, "dtype": "object"}, "option"),
        ({"files": ["good.raw"], **RAW, "dtype": "no such type"}, "option"),
        ({"files": ["good.raw"], **RAW, "colour": "red"}, "option"),
        ({"files": [], **RAW}, "option"),
        ({"files": ["good.raw", "good.raw"], **RAW}, "option"),
        ({"files": ["good.raw"], **RAW, "id": "../x"}, "option"),
        ({"files": ["good.raw"], **RAW, "format": "jpeg"}, None),
        ({"files": ["good.raw"], **RAW, "frame_header": -1}, "option"),
        ({"files": ["good.raw"], **RAW, "immutable": True, "growing": True}, "option"),
        ({"files": ["good.raw"], **RAW, "backend": "direct"}, "option"),
        ({"files": ["good.raw"], **RAW, "decoder": "os:system", "frame_bytes": 32}, "option"),
        ({"files": ["good.raw"], **RAW, "corrections": {"dark": "good.raw"}}, None),
        ({"files": ["good.raw"], **RAW, "corrections": {"excluded": [[9, 9]]}}, "shape"),
        ({"files": ["good.raw"], **RAW, "corrections": {"excluded": [[1]]}}, "shape"),
        (
            {
                "files": ["good.raw"],
                **RAW,
                "corrections": {"excluded": [[y, x] for y in range(4) for x in range(4)]},
            },
            "repair",
        ),
    ],
)
def test_datasets_that_cannot_be_are_refused(
    place: Place, entry: dict[str, Any], code: str | None
) -> None:
    good = io.BytesIO()
    np.save(good, np.zeros((3, 4, 4), "<u2"))
    contents = {
        "empty.raw": b"",
        "short.raw": bytes(31),
        "good.raw": bytes(320),
        "bad.npy": b"\x93NUMPY\x01\x00\xff",
        "cut.npy": good.getvalue()[:-5],
    }
    for name, content in contents.items():
        if not (place.root / name).exists():
            place.write(name, content)
    answer = place.ask("POST", "/v1/datasets", entry)
    assert answer.media_type == PROBLEM, answer.body
    assert 400 <= answer.status < 500
    if code is not None:
        assert answer.json()["code"] == code


@pytest.mark.parametrize("body", ["", "[]", "{", "null", '"x"', '{"a":' * 100_000])
def test_bodies_that_are_no_objects_are_refused(place: Place, body: str) -> None:
    for path in ("/v1/datasets", "/v1/datasets/none/tiles", "/v1/datasets/none/reduce"):
        with place.service.connect() as client:
            client.sendall(head("POST", path, [("Content-Length", str(len(body)))]))
            client.sendall(body.encode())
            answer = Answer(client)
        assert answer.media_type == PROBLEM
        assert 400 <= answer.status < 500


def test_bytes_behind_the_last_frame_are_noted(place: Place) -> None:
    for extra in (1, 16, 31):
        place.write(f"extra{extra}.raw", bytes(range(96)) + b"\xff" * extra)
        about = place.register(f"extra{extra}", [f"extra{extra}.raw"], **RAW)
        assert about["frames"] == 3
        assert any(str(extra) in note for note in about["notes"])
        raw = place.get(f"{place.view(f'extra{extra}')}/raw").body
        assert raw == bytes(range(96))


def test_what_is_not_there_is_404(place: Place, counts: Array) -> None:
    assert counts.size
    view = place.view("counts")
    for path in (
        "/v1/datasets/none",
        "/v1/datasets/none/views/00",
        "/v1/datasets/counts/views/00",
        "/v1/datasets/counts/files/2",
        f"{view}/tiles/100000",
        view.replace("/counts/", "/again/"),
        "/zarr/00/zarr.json",
        f"/zarr/{view.rsplit('/', 1)[1]}/data/c/99/0/0/0",
        f"/zarr/{view.rsplit('/', 1)[1]}/nothing",
    ):
        answer = place.get(path)
        assert answer.status == 404, path


# -- views -----------------------------------------------------------------------------


def mask_of(bits: Array) -> str:
    return base64.b64encode(np.packbits(bits).tobytes()).decode()


ODD = np.random.default_rng(5).random(SCAN) < 0.3

VIEWS: dict[str, dict[str, Any]] = {
    "all": {},
    "small tiles": {"tile_shape": [5, 3, 7, 24]},
    "frames and rows": {"tile_shape": [7, 5, 24]},
    "columns": {"tile_shape": [3, 4, 6, 7], "sig": [[2, 15], [3, 20]]},
    "nav": {"select": {"nav": [[1, 11, 3], [0, 10, 2]]}, "dtype": "<f4"},
    "list": {"select": {"frames": [99, 3, 3, 0, 119]}, "dtype": ">f8"},
    "mask": {"select": {"mask": mask_of(ODD)}, "target_bytes": 2000},
    "binned": {"bin": {"nav": 2, "sig": 4}, "target_bytes": 5000},
    "later": {"sync_offset": 7, "target_bytes": 9000},
    "earlier": {"sync_offset": -7, "missing": "zero", "tile_shape": [11, 16, 24]},
    "earlier, nan": {"sync_offset": -7, "missing": "nan", "dtype": "<f4"},
    "narrow": {"dtype": "|u1", "casting": "clip"},
    "wrapped": {"dtype": "|u1", "casting": "wrap"},
}


def wanted_of(values: Array, spec: Mapping[str, Any]) -> Array:
    """A view by plain numpy, in its type."""
    shape = spec.get("tile_shape", ())
    flat = len(shape) == 1 + len(SIG)
    made = reference.view(values.reshape(-1, *SIG), SCAN, dict(spec), flat=flat)
    dtype = np.dtype(spec.get("dtype", "<u4" if "bin" in spec else "<u2"))
    if spec.get("casting") == "clip":
        made = np.clip(made, 0, 255)
    return made.astype(dtype.newbyteorder("<"))


@pytest.mark.parametrize("name", VIEWS)
def test_every_route_gives_the_same_view(place: Place, counts: Array, name: str) -> None:
    spec = VIEWS[name]
    wanted = wanted_of(counts, spec)
    about = place.ask("POST", "/v1/datasets/counts/plan", spec).json()
    assert about["shape"] == list(wanted.shape)
    assert about["nbytes"] == wanted.nbytes
    view = place.view("counts", **spec)
    plan = place.get(f"{view}/plan?parts=3").json()
    assert plan["list"] == about["list"]
    assert sum(part["tiles"] for part in plan["partitions"]) == plan["tiles"]
    whole = np.zeros_like(wanted)
    joined = []
    with place.stream("/v1/datasets/counts/tiles", spec) as stream:
        frames = list(stream)
    assert [frame.kind for frame in frames] == ["DATA"] * plan["tiles"] + ["END"]
    for listed, frame in zip(plan["list"], frames, strict=False):
        made = values_of(frame)
        assert (frame.header["tile"], frame.header["origin"]) == (listed["tile"], listed["origin"])
        assert list(made.shape) == listed["shape"]
        assert frame.header["offset"] == listed["offset"] + listed["nbytes"]
        where = zip(listed["origin"], listed["shape"], strict=True)
        whole[tuple(slice(o, o + n) for o, n in where)] = made
        joined.append(frame.payload)
    np.testing.assert_array_equal(whole, wanted)
    end = frames[-1].header
    assert (end["reason"], end["token"], end["nbytes"]) == ("complete", None, wanted.nbytes)
    assert place.get(f"{view}/raw").body == b"".join(joined)
    with place.stream(f"{view}/tiles") as stream:
        assert [frame.payload for frame in stream][:-1] == joined
    for k in {0, len(joined) // 2, len(joined) - 1}:
        one = place.get(f"{view}/tiles/{k}")
        assert one.body == joined[k]
        assert json.loads(one.getheader("Thalweg-Shape", "")) == plan["list"][k]["shape"]
        assert json.loads(one.getheader("Thalweg-Origin", "")) == plan["list"][k]["origin"]
        assert undated(one.getheader("Thalweg-Token", "")) == undated(frames[k].header["token"])
        loaded = np.load(io.BytesIO(place.get(f"{view}/tiles/{k}?format=npy").body))
        assert loaded.dtype.str == one.getheader("Thalweg-Dtype")
        assert loaded.tobytes() == one.body
        listed_values = place.get(f"{view}/tiles/{k}?format=json").json()
        np.testing.assert_allclose(np.array(listed_values, float), loaded)


def test_shuffled_views_hold_everything_once(place: Place, counts: Array) -> None:
    spec = {"select": {"shuffle": {"seed": 7}}}
    raw = place.get(f"{place.view('counts', **spec)}/raw").body
    frames = np.frombuffer(raw, "<u2").reshape(-1, *SIG)
    expected = sorted(frame.tobytes() for frame in counts.reshape(-1, *SIG))
    assert sorted(frame.tobytes() for frame in frames) == expected
    assert frames.tobytes() != counts.tobytes()
    assert place.get(f"{place.view('counts', **spec)}/raw").body == raw


def test_corrections_are_right_at_the_borders_of_tiles(place: Place, counts: Array) -> None:
    rng = np.random.default_rng(3)
    dark = rng.normal(5, 2, SIG).astype("f4")
    gain = rng.uniform(0.5, 2, SIG).astype("f4")
    for name, array in (("dark", dark), ("gain", gain)):
        buffer = io.BytesIO()
        np.save(buffer, array)
        place.write(f"{name}.npy", buffer.getvalue())
    bad = [[3, 3], [4, 4], [0, 0], [15, 23]]
    place.register(
        "corrected",
        ["counts_0.raw", "counts_1.raw"],
        format="raw",
        dtype="<u2",
        nav_shape=SCAN,
        sig_shape=SIG,
        corrections={"dark": "dark.npy", "gain": "gain.npy", "excluded": bad},
    )
    wanted = reference.corrected(counts.reshape(-1, *SIG), dark, gain, np.array(bad))
    for tile in ([9, 16, 24], [9, 4, 24], [9, 4, 4]):
        view = place.view("corrected", dtype="<f4", tile_shape=tile)
        whole = np.zeros((120, *SIG), "<f4")
        with place.stream(f"{view}/tiles") as stream:
            for frame in itertools.takewhile(lambda each: each.kind == "DATA", stream):
                where = zip(frame.header["origin"], frame.header["shape"], strict=True)
                whole[tuple(slice(o, o + n) for o, n in where)] = values_of(frame)
        np.testing.assert_allclose(whole, wanted, rtol=2e-5, atol=1e-3)
    plain = place.view("corrected", corrections=False)
    assert place.get(f"{plain}/raw").body == counts.tobytes()


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"select": {"frames": [120]}}, "selection"),
        ({"select": {"frames": []}}, "selection"),
        ({"select": {"frames": [-1]}}, "option"),
        ({"select": {"frames": [1.5]}}, "option"),
        ({"select": {"mask": mask_of(np.zeros(SCAN, bool))}}, "selection"),
        ({"select": {"mask": mask_of(np.ones(100, bool))}}, "shape"),
        ({"select": {"mask": "%%%"}}, "option"),
        ({"select": {"nav": [[0, 12]]}}, "shape"),
        ({"select": {"nav": [[0, 13], [0, 10]]}}, "selection"),
        ({"select": {"nav": [[5, 5], [0, 10]]}}, "selection"),
        ({"select": {"nav": [[0, 5, 0], [0, 10]]}}, "option"),
        ({"select": [1, 2, 3]}, "option"),
        ({"select": {"frames": [1], "mask": "AA=="}}, "option"),
        ({"select": {"shuffle": {"seed": -1}}}, "option"),
        ({"sig": [[0, 17], [0, 24]]}, "selection"),
        ({"sig": [[0, 16]]}, "shape"),
        ({"sig": [[3, 3], [0, 24]]}, "selection"),
        ({"tile_shape": [0, 16, 24]}, "option"),
        ({"tile_shape": [1] * 9}, "shape"),
        ({"tile_shape": [16, 24]}, "shape"),
        ({"tile_shape": [1], "target_bytes": 1}, "option"),
        ({"target_bytes": 0}, "option"),
        ({"bin": {"nav": 5}}, "shape"),
        ({"bin": {"sig": 0}}, "option"),
        ({"dtype": "|O"}, "option"),
        ({"dtype": "U9"}, "option"),
        ({"dtype": "|u1"}, "casting"),
        ({"missing": "nan", "dtype": "<u2", "sync_offset": -1}, "casting"),
        ({"casting": "unsafe"}, "option"),
        ({"sync_offset": 120}, "selection"),
        ({"sync_offset": 2**63}, "option"),
        ({"colour": "red"}, "option"),
    ],
)
def test_views_that_cannot_be_are_refused(
    place: Place, counts: Array, spec: dict[str, Any], code: str
) -> None:
    assert counts.max() > 255
    assert place.code("POST", "/v1/datasets/counts/tiles", spec) == code


def test_huge_views_are_plans_like_others(place: Place) -> None:
    path = place.root / "huge.raw"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    place.register("huge", ["huge.raw"], format="raw", dtype="<u2", sig_shape=[1024, 1024])
    view = place.view("huge")
    about = place.get(view).json()
    assert about["nbytes"] == 1 << 42
    last = about["tiles"] - 1
    assert not any(place.get(f"{view}/tiles/{last}").body)
    assert len(place.get(f"{view}/plan?first={last}").json()["list"]) == 1
    end = place.get(f"{view}/raw", Range=f"bytes={(1 << 42) - 10}-")
    assert (end.status, end.body) == (206, bytes(10))
    with place.stream(f"{view}/tiles", limit=1 << 20) as stream, pytest.raises(Cut):
        list(stream)
    tiny = place.view("huge", tile_shape=[1, 1, 1])
    assert place.get(f"{tiny}/tiles/{(1 << 41) - 1}").body == bytes(2)
    absurd = {"tile_shape": [2**22, 1024, 1024]}
    assert place.code("POST", "/v1/datasets/huge/plan", absurd) == "shape"
    # One tile of it would be hours of reading.
    hours = {"bin": {"nav": 2**21}, "tile_shape": [1, 1024, 1024]}
    assert place.code("POST", "/v1/datasets/huge/plan", hours) == "shape"


def test_reductions_are_what_numpy_says(place: Place, counts: Array) -> None:
    exact = counts.astype("f8")
    y, x = np.indices(SIG)
    disk = (y - 8) ** 2 + (x - 12) ** 2 <= 25
    shapes = [{"disk": {"centre": [8, 12], "radius": 5}}]
    cases: list[tuple[dict[str, Any], str, Array]] = [
        ({"op": "sum"}, "sum", exact.sum(axis=(0, 1))),
        ({"op": "std", "over": "pixels"}, "std", exact.std(axis=(2, 3))),
        ({"op": "virtual", "detectors": shapes}, "detector_0", exact[..., disk].sum(axis=-1)),
    ]
    for reduction, name, wanted in cases:
        with place.stream("/v1/datasets/counts/reduce", {"reduction": reduction}) as stream:
            frames = [frame for frame in stream if frame.kind != "HEARTBEAT"]
        assert frames[-1].kind == "END"
        made = {frame.header["name"]: values_of(frame) for frame in frames[:-1]}
        np.testing.assert_allclose(made[name], wanted, rtol=1e-9)
    picture = place.get("/v1/datasets/counts/image.png")
    assert picture.body.startswith(b"\x89PNG\r\n\x1a\n")
    bad = {"reduction": {"op": "median"}}
    assert place.code("POST", "/v1/datasets/counts/reduce", bad) == "option"
    npy = "/v1/datasets/counts/reduce?format=npy&result=com_1"
    body = {"reduction": {"op": "com"}}
    answer = place.ask("POST", npy, body)
    assert answer.getheader("Content-Type") == "application/x-npy"
    sums = exact.sum(axis=(2, 3))
    centres = (exact * x).sum(axis=(2, 3)) / np.where(sums, sums, np.nan)
    np.testing.assert_allclose(np.load(io.BytesIO(answer.body)), centres)
    for query in ("result=com_1", "format=npy&result=com_2", "format=csv"):
        assert place.code("POST", f"/v1/datasets/counts/reduce?{query}", body) == "option"
    for query in ("low=99&high=1", "map=jet", "scale=root"):
        assert place.code("GET", f"/v1/datasets/counts/image.png?{query}") == "option"


# -- HTTP ------------------------------------------------------------------------------


def test_ranges_and_validators(place: Place, counts: Array) -> None:
    view = place.view("counts", dtype="<f4", tile_shape=[7, 16, 24])
    stored = (place.root / "counts_1.raw").read_bytes()
    wholes = {
        f"{view}/raw": counts.astype("<f4").tobytes(),
        "/v1/datasets/counts/files/1": stored,
    }
    for path, whole in wholes.items():
        size = len(whole)
        first = place.get(path)
        assert (first.status, first.body) == (200, whole)
        assert first.getheader("Accept-Ranges") == "bytes"
        etag = first.getheader("ETag", "")
        assert etag.startswith('"')
        assert etag.endswith('"')
        for text, start, stop in (
            ("0-0", 0, 1),
            ("1000-50000", 1000, 50001),
            (f"{size - 7}-", size - 7, size),
            ("-5", size - 5, size),
            (f"5-{size * 9}", 5, size),
            (f"-{size * 9}", 0, size),
        ):
            part = place.get(path, Range=f"bytes={text}", If_Range=etag)
            assert (part.status, part.body) == (206, whole[start:stop])
            assert part.getheader("Content-Range") == f"bytes {start}-{stop - 1}/{size}"
        for text in ("bytes=9-2", "bytes=0-1,5-6", "lines=0-1", "bytes=-", "bytes=x"):
            assert place.get(path, Range=text).body == whole
        assert place.get(path, Range=f"bytes={size}-").status == 416
        assert place.get(path, Range="bytes=-0").status == 416
        assert place.get(path, Range="bytes=0-1", If_Range='"other"').body == whole
        assert place.get(path, Range="bytes=0-1", If_Range=f"W/{etag}").body == whole
        again = place.get(path, If_None_Match=f'"other", {etag}')
        assert (again.status, again.body) == (304, b"")
        assert again.getheader("ETag") == etag
        # A precondition comes before a range.
        assert place.get(path, If_None_Match=etag, Range=f"bytes={size}-").status == 304
    tile = place.get(f"{view}/tiles/1")
    assert place.get(f"{view}/tiles/1", If_None_Match=tile.getheader("ETag", "")).status == 304
    assert place.get(f"{view}/tiles/2").getheader("ETag") != tile.getheader("ETag")
    assert place.get(f"{view}/tiles/1?format=npy").getheader("ETag") != tile.getheader("ETag")


def test_random_ranges_of_files_and_raw_views(place: Place, big: bytes) -> None:
    path = place.view("big")
    rng = np.random.default_rng(14)
    for k in range(RANGES):
        size = int(rng.integers(1, 1 << int(rng.integers(10, 23))))
        start = int(rng.integers(0, len(big) - size))
        what = f"{path}/raw" if k % 2 else "/v1/datasets/big/files/0"
        answer = place.get(what, Range=f"bytes={start}-{start + size - 1}")
        assert answer.status == 206
        assert answer.headers["content-length"] == str(size)
        assert answer.body == big[start : start + size]


def test_streams_are_compressed_as_asked(place: Place, counts: Array) -> None:
    view = place.view("counts", tile_shape=[7, 16, 24])
    decoders: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "zstd": zstd_decompress,
    }
    plain = place.get(f"{view}/tiles").body
    for coding, decode in decoders.items():
        answer = place.get(f"{view}/tiles", Accept_Encoding=coding)
        assert answer.getheader("Content-Encoding") == coding
        assert "Accept-Encoding" in answer.getheader("Vary", "")
        assert len(answer.body) < len(plain)
        assert decode(answer.body) == plain
    raw = place.get(f"{view}/raw", Accept_Encoding="gzip, zstd")
    assert raw.getheader("Content-Encoding") is None
    assert raw.body == counts.tobytes()


def test_curl_goes_on_where_it_was_cut(place: Place, big: bytes, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    url = f"http://127.0.0.1:{place.service.port}{place.view('big', **BIG_VIEW)}/raw"
    target = tmp_path / "joined"
    with target.open("wb") as file:
        command = ["curl", "-s", "--max-filesize", str(1 << 40), url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout
            file.write(client.stdout.read(5_000_001))
            client.kill()
    done = subprocess.run(
        ["curl", "-s", "-f", "-C", "-", "-o", str(target), url], check=False, timeout=60
    )
    assert done.returncode == 0
    assert target.read_bytes() == big


# -- breaks ----------------------------------------------------------------------------


def collect(
    place: Place, path: str, spec: object, cuts: Iterator[float]
) -> tuple[list[bytes], int]:
    """Tiles of a stream that is cut again and again, and how often it was."""
    kept: list[bytes] = []
    token: str | None = None
    breaks = 0
    while True:
        again = path if token is None else f"{path}?after={token}"
        try:
            with place.stream(again, spec, next(cuts)) as stream:
                for frame in stream:
                    if frame.kind == "END":
                        assert frame.header["reason"] == "complete"
                        return kept, breaks
                    assert frame.kind == "DATA"
                    assert frame.header["tile"] == len(kept)
                    kept.append(frame.payload)
                    token = frame.header["token"]
        except Cut:
            breaks += 1


def test_streams_cut_anywhere_are_joined(place: Place, counts: Array) -> None:
    spec = {"dtype": "<f4", "tile_shape": [2, 8, 24], "select": {"shuffle": {"seed": 1}}}
    view = place.view("counts", **spec)
    whole = place.get(f"{view}/raw").body
    assert sorted(np.frombuffer(whole, "<f4").tolist()) == sorted(counts.reshape(-1).tolist())
    rng = np.random.default_rng(11)
    breaks = rounds = 0
    while breaks < CUTS:
        size = 10 ** rng.uniform(1.5, 5)
        # Now and then there is no cut, so that it ends however short the pieces are.
        cuts = (size * part if part < 0.9 else 1e9 for part in iter(rng.random, None))
        path, body = ((f"{view}/tiles", None), ("/v1/datasets/counts/tiles", spec))[rounds % 2]
        kept, some = collect(place, path, body, cuts)
        assert b"".join(kept) == whole
        breaks += some
        rounds += 1


def test_a_killed_server_loses_no_tile(place: Place, big: bytes, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy2(place.root / "big.raw", root)
    killed = Place(start(tmp_path, root), root)
    kept: list[bytes] = []
    token: str | None = None
    try:
        killed.register("big", ["big.raw"], **BIG)
        view = killed.view("big", **BIG_VIEW)
        for kill in range(KILLS):
            wanted = len(big) // (1 << 19) * (kill + 1) // (KILLS + 1)
            path = f"{view}/tiles" if token is None else f"{view}/tiles?after={token}"
            with killed.stream(path, receive=1 << 16) as stream:
                frames = iter(stream)
                while len(kept) < wanted:
                    frame = next(frames)
                    kept.append(frame.payload)
                    token = frame.header["token"]
                killed.service.kill()
                # What was under way still comes, and is as good as what came before.
                with contextlib.suppress(Cut):
                    for frame in frames:
                        kept.append(frame.payload)
                        token = frame.header["token"]
            # The next one begins anew, on the same data.
            killed.service = start(tmp_path, root)
        with killed.stream(f"{view}/tiles?after={token}&max_tiles=5") as stream:
            *tiles, end = stream
        assert end.header["reason"] == "count"
        kept += [frame.payload for frame in tiles]
        token = end.header["token"]
        # Another server: it has only the key, and the file that was copied.
        with place.stream(f"/v1/datasets/big/tiles?after={token}", BIG_VIEW) as stream:
            *tiles, end = stream
        assert end.header["reason"] == "complete"
        kept += [frame.payload for frame in tiles]
        assert b"".join(kept) == big
    finally:
        killed.service.kill()


def touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(100))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(path.stat().st_size))
    other.replace(path)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [touch, append, truncate, empty, replace, overwrite, remove])
def test_data_that_changes_under_a_stream_is_never_mixed(
    place: Place, big: bytes, change: Callable[[Path], None]
) -> None:
    name = f"changing-{change.__name__}"
    path = place.write(f"{name}.raw", big)
    place.register(name, [path.name], **BIG)
    view = place.view(name, **BIG_VIEW)
    made = b""
    problem: dict[str, Any] = {}
    token = ""
    with place.stream(f"{view}/tiles", receive=1 << 16) as stream:
        for frame in stream:
            if frame.kind == "DATA":
                made += frame.payload
                token = frame.header["token"]
                if len(made) == len(frame.payload):
                    change(path)
            else:
                problem = frame.header["problem"]
    assert problem["code"] == "data-changed"
    assert made == big[: len(made)]
    assert len(made) < len(big)
    # Whoever goes on is told too, and the plain form breaks off or is refused.
    answer = place.get(f"{view}/tiles?after={token}")
    gone = {"file-missing"} if change is remove else {"data-changed", "format"}
    assert answer.json()["code"] in gone
    if change in {touch, append, replace, overwrite}:
        fresh = place.get(view)
        assert fresh.status == 200
        assert fresh.json()["token"] != token


def test_plain_bytes_break_off_where_the_data_changes(place: Place, big: bytes) -> None:
    path = place.write("breaking.raw", big)
    place.register("breaking", [path.name], **BIG)
    view = place.view("breaking", **BIG_VIEW)
    for source in (f"{view}/raw", "/v1/datasets/breaking/files/0"):
        path.write_bytes(big)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.settimeout(20)
            client.connect(("127.0.0.1", place.service.port))
            client.sendall(head("GET", source))
            answer = Answer(client, "GET", read=False)
            assert answer.getheader("Content-Length") == str(len(big))
            begun = answer.read(1 << 20)
            overwrite(path)
            rest = answer.read_body()
        assert not rest.whole
        made = begun + rest.body
        assert made == big[: len(made)]


def test_a_growing_file_is_read_as_far_as_it_was(place: Place) -> None:
    frame = np.arange(16, dtype="<u2").reshape(4, 4)
    path = place.write("growing.raw", frame.tobytes() * 3 + b"\x01")
    about = place.register("growing", ["growing.raw"], **RAW, growing=True)
    assert about["frames"] == 3
    with path.open("ab") as file:
        file.write(frame.tobytes()[1:] + frame.tobytes())
    assert place.get("/v1/datasets/growing").json()["frames"] == 5
    os.truncate(path, 40)
    answer = place.get("/v1/datasets/growing")
    assert answer.status in {200, 412}


def test_tokens_of_others_are_refused(place: Place, counts: Array) -> None:
    assert counts.size
    view = place.view("counts", tile_shape=[7, 16, 24])
    token = place.get(view).json()["token"]
    other = place.view("counts", tile_shape=[6, 16, 24])
    assert place.code("GET", f"{other}/tiles?after={token}") == "token-foreign"
    assert place.code("GET", f"{view}/tiles?after=x") == "token-malformed"
    forged = token[:-6] + ("AAAAAA" if token[-6:] != "AAAAAA" else "BBBBBB")
    assert place.code("GET", f"{view}/tiles?after={forged}") in {"token-forged", "token-malformed"}
    with place.stream(f"{view}/tiles") as stream:
        last = [frame for frame in stream if frame.kind == "DATA"][-1].header["token"]
    with place.stream(f"{view}/tiles?after={last}") as stream:
        (end,) = stream
    assert end.header["reason"] == "complete"


# -- other people's clients ------------------------------------------------------------


def needed(*names: str) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", VIEWS)
def test_zarr_reads_views(place: Place, counts: Array, name: str) -> None:
    needed("zarr", "fsspec", "aiohttp")
    zarr: Any = pytest.importorskip("zarr")
    wanted = wanted_of(counts, VIEWS[name])
    view = place.view("counts", **VIEWS[name]).rsplit("/", 1)[1]
    url = f"http://127.0.0.1:{place.service.port}/zarr/{view}"
    group = zarr.open_group(url, mode="r")
    array = group["data"]
    assert array.shape == wanted.shape
    assert array.dtype == wanted.dtype
    np.testing.assert_array_equal(array[:], wanted)
    np.testing.assert_array_equal(array[..., 3:9, ::5], wanted[..., 3:9, ::5])


@pytest.mark.filterwarnings("default")
def test_xarray_reads_views_with_their_axes(place: Place, counts: Array) -> None:
    needed("zarr", "fsspec", "aiohttp", "xarray")
    xarray: Any = pytest.importorskip("xarray")
    spec = {"select": {"nav": [[2, 12, 2], [0, 10, 1]]}, "bin": {"sig": 4}}
    view = place.view("counts", **spec).rsplit("/", 1)[1]
    url = f"http://127.0.0.1:{place.service.port}/zarr/{view}"
    found = xarray.open_zarr(url, chunks=None)["data"]
    assert found.dims == ("y", "x", "ky", "kx")
    np.testing.assert_array_equal(found.values, wanted_of(counts, spec))
    np.testing.assert_allclose(found.y.values, 10 + 0.5 * np.arange(2, 12, 2))
    np.testing.assert_allclose(found.ky.values, 4 * np.arange(4) + 1.5)
    assert found.y.attrs["units"] == "nm"
    part = found.sel(y=slice(11.5, 14), x=0.5, method=None)
    np.testing.assert_array_equal(part.values, wanted_of(counts, spec)[1:4, 2])
