"""Data directories that earlier versions wrote: served, and handed to their owner.

``earlier`` was written by the service at 790bb6d, before things had owners, and brought up to date
at 426697b: a dataset, a view and a pipeline of it, and an auxiliary file, with the key that signed
the tokens below.
``earlier_runs`` was written at fadd1ee, when a run listed its streams as they were created: runs
in every state, and what a lost race had left of a stream.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog

from app.command.main import main
from app.http.keys import BELIEVED_SECONDS
from tests.app.harness import Answer, Post, Service, ask, wait_until
from tests.app.losses.posts import good
from tests.app.runs.requests import TUS, Uploader, stream

EARLIER = Path(__file__).parent / "earlier"
KEY = "1:sign:cefa53ac24f6545468585d4e0da39cddaba81dd0871592b251d4c0bc889cfd48"
"""Signs the tokens below, and nothing else."""
INPUT = "806ae1540b202a6db923fa680a85e7e9"
VIEW = "1b0b2dade3e46d1e8f2d8cf8"
PIPELINE = "15554af18ca8c8c19f0bbf0eeaa60e43"
TILE_TOKEN = "AQECWy8g_GXVPSpzvoVWOx0Yi46f3QEAtRCGsQM_xAg5HK9Yrx8f-w"  # noqa: S105 - of a tile
BATCH_TOKEN = "AQEDFVVK8YyoyMGPtPWmduayMY6f3QEAJlvz-Ak3Aj5w-V5DQeo_BA"  # noqa: S105 - of a batch
RUNS = Path(__file__).with_name("earlier_runs.tar.xz")
RUN_IDS = {
    "created": "20ae5fa20c2d59df1acabeffe8305e55",
    "uploading": "b2ea0ab16530ba63a0736b8561a6b255",
    "checksum": "fed3d98aefcc379f8a34645924b192a0",
    "sealed": "6a35ef865dd6d8c2600dc135543b3ed7",
    "computing": "c71bb06f968ed843973243f97e21396c",
    "done": "e4b06b685af97d6af2eda1166656eebf",
    "failed": "8c1236414e7f848ef3eac6424cf124fe",
}
PARTS = (stream(3), stream(3, first=4))
"""The streams of all runs there, of which one has 100 bytes of the first."""
DONE = ("000001-8e1ed757", "000002-f09592d2")
ROWS_TOKEN = "AQEEW0LvXuFTERnlupGFMVg1SOu13QEBvAECAQKffHdIiessE6K8DWYAc3Zx"  # noqa: S105 - of rows
"""After the second event of the run that was done."""
GHOST = "000001-0e346f88"
SECOND_BATCH = "73b916f31a2c1cc6b5653c2102973f9bb02f638c89a4c810d97643241137be96"


def prepare(directory: Path) -> Path:
    """Lay out the data of the earlier version, and its dataset; return the root of datasets."""
    shutil.copytree(EARLIER, directory / "data")
    (directory / "data" / "token.keys").write_text(f"{KEY}\n")
    (directory / "data" / "token.keys").chmod(0o600)
    with contextlib.closing(sqlite3.connect(directory / "data" / "state.sqlite")) as state:
        # The times of the last use are of then: some of it has expired by now.
        state.execute("UPDATE head SET used = ?", (time.time(),))
        state.commit()
    scan = directory / "roots" / "scan.npy"
    scan.parent.mkdir()
    np.save(scan, np.arange(48, dtype="<u2").reshape(2, 3, 4, 2))
    os.utime(scan, ns=(1_700_000_000_000_000_000,) * 2)
    return scan.parent


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("earlier")
    started = Service(directory, dataset_roots=prepare(directory), workers=2)
    try:
        yield started
        assert started.stop() == 0
        assert not started.failures()
    finally:
        started.kill()


Command = Callable[..., str]


@pytest.fixture
def keys(service: Service, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs ``thalweg-server keys`` beside the service; what it printed."""

    def run(*arguments: str) -> str:
        assert main(["keys", "--data-dir", str(service.data_dir), *arguments]) == 0
        return capsys.readouterr().out.strip()

    yield run
    structlog.reset_defaults()


def get(service: Service, path: str, key: str | None = None, method: str = "GET") -> Answer:
    headers = [] if key is None else [("Authorization", f"Bearer {key}")]
    body = good().encode() if method == "POST" else b""
    return ask(service, Post(path, [body], headers, method=method))


def everything(service: Service, key: str | None = None) -> list[int]:
    """Use all that the directory holds."""
    batch = get(
        service, f"/v1/pipelines/{PIPELINE}/batch?offset=1&format=npy&after={BATCH_TOKEN}", key
    )
    if batch.status == 200:
        assert hashlib.sha256(batch.body).hexdigest() == SECOND_BATCH
    return [
        batch.status,
        get(service, "/v1/datasets/scan", key).status,
        get(service, f"/v1/datasets/scan/views/{VIEW}/tiles?after={TILE_TOKEN}", key).status,
        get(service, f"/v1/losses/qelt?quantiles={INPUT}", key, "POST").status,
    ]


def test_what_an_earlier_version_stored_is_handed_over(service: Service, keys: Command) -> None:
    assert everything(service) == [200] * 4
    assert get(service, "/v1/datasets").json()["datasets"] == ["scan"]
    assert get(service, "/v1/pipelines").json()["pipelines"] == [PIPELINE]
    scopes = ("--scope", "losses", "--scope", "pipelines")
    alice = keys("add", "alice", *scopes)
    # With the first key the service has more than one user, in all lanes.
    time.sleep(BELIEVED_SECONDS)
    assert everything(service) == [401] * 4
    assert everything(service, alice) == [404, 404, 404, 410]
    assert keys("adopt", "admin", "alice") == "4 things of admin now belong to alice"
    assert everything(service, alice) == [200] * 4
    bob = keys("add", "bob", *scopes)
    assert everything(service, bob) == [404, 404, 404, 410]
    root = keys("add", "root", "--scope", "admin")
    assert get(service, "/v1/datasets?owner=alice", root).json()["datasets"] == ["scan"]
    assert get(service, "/v1/datasets?owner=bob", root).json()["datasets"] == []
    assert get(service, "/v1/datasets?owner=alice", bob).status == 403
    keys("revoke", "alice")
    wait_until(lambda: everything(service, alice) == [401] * 4, 5)
    assert "revoked" in keys("list")
    assert get(service, f"/v1/inputs/quantiles/{INPUT}", root, "DELETE").status == 204
    assert not list((service.data_dir / "blobs" / "input").rglob("*.quantiles"))


def report_of(run: Uploader) -> bytes:
    """The report of a run once it is computed."""
    wait_until(lambda: run.describe()["state"] == "done")
    return run.ask("GET", f"{run.path}/reports/melt").body


def test_runs_in_every_state_go_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with tarfile.open(RUNS) as archive:
        archive.extractall(data, filter="data")
    service = Service(tmp_path, token_keys=KEY)
    try:
        runs = {name: Uploader(service, ident) for name, ident in RUN_IDS.items()}
        listed = service.get("/v1/runs").json()["runs"]
        assert {run["id"]: run["streams"] for run in listed} == {
            RUN_IDS[name]: {"created": 0, "checksum": 1}.get(name, 2) for name in runs
        }
        expected = check_done(runs["done"])
        assert report_of(runs["sealed"]) == report_of(runs["computing"]) == expected
        for name in ("created", "uploading", "checksum", "failed"):
            finish(runs[name])
            assert report_of(runs[name]) == expected
        for run in listed:
            assert get(service, f"/v1/runs/{run['id']}", method="DELETE").status == 204
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()
    with contextlib.closing(sqlite3.connect(data / "state.sqlite")) as state:
        # What the quota of the owner counts, too.
        for table in ("head", "usage"):
            query = f"SELECT * FROM {table} WHERE kind = 'stream'"  # noqa: S608 - two names
            assert state.execute(query).fetchall() == []


def check_done(run: Uploader) -> bytes:
    """Read what was computed before; return it."""
    assert tuple(found["id"] for found in run.streams()) == DONE
    rows = f"{run.path}/rows/melt?format=ndjson"
    every, after = (
        [line for line in run.ask("GET", path).body.splitlines() if b"EventId" in line]
        for path in (rows, f"{rows}&after={ROWS_TOKEN}")
    )
    # Four rows an event, and two events before.
    assert after == every[8:]
    assert len(after) == 16
    return report_of(run)


def finish(run: Uploader) -> None:
    """Upload what a run lacks, and seal it."""
    known = {found["partition"]: found for found in run.streams()}
    assert run.ask("HEAD", f"{run.path}/streams/{GHOST}", **TUS).status == 404
    for number, data in enumerate(PARTS, 1):
        stream = known.get(number)
        if stream is not None and stream["state"] == "complete":
            continue
        address = run.create(None, f"?partition={number}") if stream is None else stream["address"]
        offset = run.offset(address)
        length = len(data)
        assert run.patch(address, offset, data[offset:], Upload_Length=length).status == 204
    if known and known[1]["state"] == "complete":
        # The run had failed, and is repaired.
        assert run.ask("DELETE", known[2]["address"], **TUS).status == 204
        run.upload(PARTS[1], Upload_Metadata="partition Mg==")
    assert run.ask("POST", f"{run.path}/seal").status == 202
