"""Datasets in buckets of servers that run here: views, changes, faults, and the whole service."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import obstore
import pytest
from obstore.store import ObjectStore, S3Store

from app.datasets.files.backends import ObjectBackend
from app.datasets.files.file_set import ReadFailedError
from app.datasets.files.roots import Roots
from app.errors import DataChangedError
from app.http.identity import SINGLE_USER
from tests.app.datasets.files.bucket import bucket_roots, upload
from tests.app.datasets.files.test_arrays import WRITERS, drawn, view_of
from tests.app.datasets.test_in_buckets import FRAMES, Desk, check_tiles, described, npy
from tests.fault_proxy import Cut, FaultProxy, Faults
from tests.object_server import SERVERS, ObjectServer, environment_python, running_objects
from tests.server_process import ServerProcess

pytestmark = pytest.mark.skipif(
    environment_python() is None, reason="THALWEG_OBJECTS_PYTHON names no environment"
)


VERSIONING = (
    '<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Status>Enabled</Status></VersioningConfiguration>"
)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    python = environment_python()
    assert python is not None
    with running_objects(request.param, python) as server:
        yield server


@dataclass
class Place:
    """A directory, and a bucket that gets its files."""

    directory: Path
    store: ObjectStore
    prefix: str
    made: list[Desk]

    def desks(self) -> tuple[Desk, Desk]:
        upload(self.directory, self.store)
        self.made += [Desk(Roots([self.directory])), Desk(bucket_roots(self.store))]
        return self.made[-2], self.made[-1]


@pytest.fixture
def place(tmp_path: Path, server: ObjectServer) -> Iterator[Place]:
    prefix = secrets.token_hex(4)
    made = Place(tmp_path, server.bucket(prefix), prefix, [])
    yield made
    for desk in made.made:
        desk.catalogue.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_views_are_those_of_the_same_files(seed: int, place: Place) -> None:
    rng = np.random.default_rng(seed)
    data = drawn(rng, 3, 2)
    for number, part in enumerate(np.array_split(data, 3)):
        (place.directory / f"a_{number}.raw").write_bytes(b"head" + part.tobytes())
    entry: dict[str, Any] = {
        "glob": "a_*.raw",
        "format": "raw",
        "dtype": data.dtype.str,
        "file_header": 4,
        "nav_shape": list(data.shape[:3]),
        "sig_shape": list(data.shape[3:]),
    }
    both = place.desks()
    one, other = (desk.register(**entry) for desk in both)
    assert described(one) == described(other)
    for _ in range(4):
        check_tiles(both, view_of(rng, data.shape[:3], data.shape[3:]))


@pytest.mark.parametrize("form", WRITERS)
def test_arrays_that_decoders_read(form: str, place: Place) -> None:
    data = drawn(np.random.default_rng(3), 2, 2)
    array = WRITERS[form](place.directory / f"a.{form}", data, np.random.default_rng(3))
    both = place.desks()
    for desk in both:
        desk.register(files=[f"a.{form}"], array=array)
    check_tiles(both, {"target_bytes": 300})


def test_a_change_is_found_by_the_next_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectBackend, "ahead", 0)
    np.save(place.directory / "scan.npy", FRAMES)
    desk = place.desks()[1]
    desk.register(files=["scan.npy"])
    tiles = desk.tiles({"target_bytes": 2400})
    seen = [next(tiles), next(tiles)]
    obstore.put(place.store, "scan.npy", npy(place.directory, FRAMES[::-1]))
    with pytest.raises(DataChangedError, match="was modified"):
        seen.extend(tiles)
    assert np.array_equal(np.concatenate(seen), FRAMES[: len(seen)])


def test_the_same_contents_again_are_the_same_data(place: Place) -> None:
    np.save(place.directory / "scan.npy", FRAMES)
    desk = place.desks()[1]
    first = desk.register(files=["scan.npy"])
    for content in (b"other", (place.directory / "scan.npy").read_bytes()):
        obstore.put(place.store, "scan.npy", content, use_multipart=False)
    first.files._next_look = 0.0  # type: ignore[attr-defined]
    first.files.verify()


@pytest.fixture
def versions(tmp_path: Path, server: ObjectServer) -> Iterator[Place]:
    """A bucket that keeps versions."""
    url = f"http://127.0.0.1:{server.port}"
    httpx.put(f"{url}/versions")
    httpx.put(f"{url}/versions?versioning", content=VERSIONING).raise_for_status()
    made = Place(tmp_path, store_at(url, secrets.token_hex(4), "versions"), "", [])
    np.save(tmp_path / "scan.npy", FRAMES)
    yield made
    for desk in made.made:
        desk.catalogue.close()


def test_what_has_begun_is_read_of_its_version(
    versions: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectBackend, "ahead", 0)
    desk = versions.desks()[1]
    first = desk.register(files=["scan.npy"])
    tiles = desk.tiles({"target_bytes": 2400})
    seen = [next(tiles)]
    obstore.put(versions.store, "scan.npy", npy(versions.directory, FRAMES[::-1]))
    seen.extend(tiles)
    assert np.array_equal(np.concatenate(seen), FRAMES)
    desk.catalogue.close()
    assert desk.catalogue.open(SINGLE_USER, "x").fingerprint != first.fingerprint
    assert np.array_equal(np.concatenate(list(desk.tiles({}))), FRAMES[::-1])


def test_the_same_contents_again_are_another_version(versions: Place) -> None:
    first = versions.desks()[1].register(files=["scan.npy"])
    upload(versions.directory, versions.store)
    first.files._next_look = 0.0  # type: ignore[attr-defined]
    with pytest.raises(DataChangedError, match="was modified"):
        first.files.verify()
    again = versions.desks()[1].register(files=["scan.npy"])
    assert again.fingerprint != first.fingerprint


def behind(proxy: FaultProxy, prefix: str) -> S3Store:
    return store_at(proxy.url, prefix)


def store_at(url: str, prefix: str, bucket: str = "tests") -> S3Store:
    return S3Store(
        bucket,
        prefix=prefix,
        endpoint=url,
        access_key_id="thalweg-tests",
        secret_access_key="thalweg-tests",  # noqa: S106 - of a server of the tests
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config={"max_retries": 3},
    )


Plan = Callable[[int], Faults]
CUTS: dict[str, Plan] = {
    "answers are cut": lambda number: Faults(cut=Cut("down", 3000)) if number % 2 else Faults(),
    "connections are reset": lambda number: Faults(cut=Cut("up", 10)) if number % 3 else Faults(),
    "slices": lambda _: Faults(slice_bytes=700),
}


@pytest.mark.parametrize("name", CUTS)
def test_what_is_cut_is_read_again(name: str, place: Place, server: ObjectServer) -> None:
    np.save(place.directory / "scan.npy", FRAMES)
    place.desks()
    with FaultProxy([server.port], CUTS[name]) as proxy:
        desk = Desk(bucket_roots(behind(proxy, place.prefix)))
        desk.register(files=["scan.npy"])
        tiles = list(desk.tiles({"target_bytes": 10_000}))
        desk.catalogue.close()
    assert np.array_equal(np.concatenate(tiles), FRAMES)


def test_a_store_that_does_not_answer_is_not_waited_for_long(
    place: Place, server: ObjectServer
) -> None:
    np.save(place.directory / "scan.npy", FRAMES)
    place.desks()
    with FaultProxy([server.port], lambda _: Faults(blackhole=True)) as proxy:
        desk, started = Desk(bucket_roots(behind(proxy, place.prefix))), time.monotonic()
        with pytest.raises(ReadFailedError, match=r"'scan.npy' cannot be read"):
            desk.register(files=["scan.npy"])
        assert time.monotonic() - started < 20


def test_the_service_serves_what_is_in_a_bucket(
    place: Place, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(place.directory / "scan.npy", FRAMES)
    place.desks()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    roots = f"{place.directory / 'none'},s3://tests/{place.prefix},s3://nowhere"
    running = ServerProcess(place.directory / "run", dataset_roots=roots)
    running.expected_failures += ["this dataset root is not there"]
    try:
        with httpx.Client(base_url=running.url, timeout=60) as client:
            check_service(client, place)
    finally:
        running.kill()
    log = running.log()
    assert "has no such bucket" in log
    assert server.environment["AWS_SECRET_ACCESS_KEY"] not in log


def check_service(client: httpx.Client, place: Place) -> None:
    address = f"s3://tests/{place.prefix}/scan.npy"
    made = client.post("/v1/datasets", json={"id": "a", "files": [address]})
    assert made.status_code == 201, made.text
    for path in (f"s3://tests/{place.prefix}0/scan.npy", "s3://tests/scan.npy", "/etc/passwd"):
        answer = client.post("/v1/datasets", json={"id": "b", "files": [path]})
        assert (answer.status_code, answer.json()["code"]) == (403, "path-refused")
    view = client.post("/v1/datasets/a/views", json={"sig": [[3, 9], [5, 7]]}).json()["id"]
    raw = client.get(f"/v1/datasets/a/views/{view}/raw")
    assert raw.content == FRAMES[:, 3:9, 5:7].tobytes()
    whole = client.get("/v1/datasets/a/files/0")
    assert whole.content == (place.directory / "scan.npy").read_bytes()
    obstore.put(place.store, "scan.npy", npy(place.directory, FRAMES[::-1]))
    deadline = time.monotonic() + 5
    while (answer := client.get(f"/v1/datasets/a/views/{view}/tiles/0")).status_code == 200:
        assert time.monotonic() < deadline
    assert (answer.status_code, answer.json()["code"]) == (412, "data-changed")
