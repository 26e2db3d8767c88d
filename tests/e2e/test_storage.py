"""What the service stores: bounded, refused where it is too old, never silently other."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.command.main import main
from tests.app.harness import Answer as Reply
from tests.app.harness import Post, Service, ask, chunked, head, is_problem, wait_until
from tests.app.losses.posts import good, put_input
from tests.app.state.test_stores import VERSION_1

QUANTILES = b"quantile\n0.5\n"
DIGEST = hashlib.blake2b(QUANTILES, digest_size=16).hexdigest()
Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Service] = []

    def run(**settings: object) -> Service:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        np.zeros((2, 3, 4, 5), "<u2").tofile(root / "scan.raw")
        made.append(Service(tmp_path / "service", dataset_roots=root, **settings))
        return made[-1]

    yield run
    for service in made:
        if service.process.poll() is None:
            assert service.stop() == 0
        assert not service.failures()
        service.kill()


def call(service: Service, path: str, body: Any) -> Reply:  # noqa: ANN401 - JSON
    data = json.dumps(body).encode()
    with service.connect() as client:
        client.sendall(head("POST", path, [("Transfer-Encoding", "chunked")]))
        client.sendall(chunked([data]))
        return Reply(client, "POST")


def qelt(service: Service, digest: str = DIGEST) -> Reply:
    return ask(service, Post(f"/v1/losses/qelt?quantiles={digest}", [good().encode()]))


def register(service: Service, ident: str = "scan") -> Reply:
    entry = {
        "id": ident,
        "files": ["scan.raw"],
        "dtype": "<u2",
        "nav_shape": [2, 3],
        "sig_shape": [4, 5],
    }
    return call(service, "/v1/datasets", entry)


def view(service: Service, k: int) -> Reply:
    return call(service, "/v1/datasets/scan/views", {"sig": [[0, 4], [0, k + 1]]})


def test_a_changed_digit_of_an_input_is_a_problem_not_other_numbers(start: Start) -> None:
    service = start()
    assert put_input(service, "quantiles", QUANTILES).json()["digest"] == DIGEST
    right = qelt(service).body
    (path,) = (service.data_dir / "blobs" / "input").rglob(f"{DIGEST}.quantiles")
    content = path.read_bytes()
    assert b"0.5" in content
    service.stop()
    path.write_bytes(content.replace(b"0.5", b"0.9"))
    service.start()
    problem = is_problem(qelt(service), "input-gone", 410)
    assert "is damaged" in problem["detail"]
    assert "PUT it to /v1/inputs/quantiles" in problem["hint"]
    assert put_input(service, "quantiles", QUANTILES).status == 201
    assert qelt(service).body == right


@pytest.mark.parametrize("what", ["state.sqlite", "inputs"])
def test_a_data_directory_that_is_too_old_is_refused_and_left_alone(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = data / "state.sqlite" if what == "state.sqlite" else data / what / f"{DIGEST}.quantiles"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.decompress(VERSION_1.read_bytes()))
    was = path.read_bytes()
    assert main(["serve", "--data-dir", str(data), "--port", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{data} cannot be used: " in line
    assert "was written by a version before 0.1.0 of 2026-11-23" in line
    assert "or start version 0.1.0 of that day (revision 426697b) with it once" in line
    assert path.read_bytes() == was


def test_quotas_are_kept_over_a_restart_and_free_what_exists(start: Start) -> None:
    service = start(quota_views=3, quota_datasets=2)
    assert register(service).status == 201
    for k in range(3):
        assert view(service, k).status == 201
    for restarted in (False, True):
        if restarted:
            service.stop()
            service.start()
        refusal = view(service, 3)
        problem = is_problem(refusal, "quota-exceeded", 429)
        assert problem["limit"] == "views.count"
        assert refusal.headers["retry-after"]
        assert view(service, 1).status == 200
        assert register(service, "again").status in {200, 201}
        is_problem(register(service, "more"), "quota-exceeded", 429)


def test_workers_keep_to_one_quota(start: Start) -> None:
    service = start(workers=2, quota_inputs=20)

    def put(k: int) -> int:
        return put_input(service, "quantiles", b"quantile\n0.%d5\n" % k).status

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(put, range(60)))
    assert set(statuses) == {201, 429}
    assert statuses.count(201) == 20
    kept = list((service.data_dir / "blobs" / "input").rglob("*.quantiles"))
    assert len(kept) == 20


def test_what_nobody_uses_is_swept(start: Start) -> None:
    service = start(input_days=1e-5, view_days=1e-5)
    assert register(service).status == 201
    assert view(service, 1).status == 201
    assert put_input(service, "quantiles", QUANTILES).status == 201
    wait_until(
        lambda: not list((service.data_dir / "blobs" / "input").rglob("*.quantiles")), seconds=60
    )
    assert view(service, 1).status == 201
    # Datasets do not expire by themselves.
    assert register(service).status == 200


def test_rows_that_wait_have_a_quota(start: Start) -> None:
    service = start(quota_spool_bytes=1, spool_memory=0)
    answer = ask(service, Post("/v1/losses/melt", [good().encode()]))
    problem = is_problem(answer, "quota-exceeded", 429)
    assert problem["limit"] == "spools.bytes"
