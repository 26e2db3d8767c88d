"""A data directory that an earlier version wrote: served, then handed to its owner.

``earlier`` was written by the service at 790bb6d, before things had owners: a dataset, a
view and a pipeline of it, and an auxiliary file, with the key that signed the tokens below.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog

from app.command.main import main
from tests.app.harness import Answer, Post, Service, ask, wait_until
from tests.app.losses.posts import good

EARLIER = Path(__file__).parent / "earlier"
KEY = "1:sign:cefa53ac24f6545468585d4e0da39cddaba81dd0871592b251d4c0bc889cfd48"
"""Signs the tokens below, and nothing else."""
INPUT = "806ae1540b202a6db923fa680a85e7e9"
VIEW = "1b0b2dade3e46d1e8f2d8cf8"
PIPELINE = "15554af18ca8c8c19f0bbf0eeaa60e43"
TILE_TOKEN = "AQECWy8g_GXVPSpzvoVWOx0Yi46f3QEAtRCGsQM_xAg5HK9Yrx8f-w"  # noqa: S105 - of a tile
BATCH_TOKEN = "AQEDFVVK8YyoyMGPtPWmduayMY6f3QEAJlvz-Ak3Aj5w-V5DQeo_BA"  # noqa: S105 - of a batch
SECOND_BATCH = "73b916f31a2c1cc6b5653c2102973f9bb02f638c89a4c810d97643241137be96"


def prepare(directory: Path) -> Path:
    """Lay out the data of the earlier version, and its dataset; return the root of datasets."""
    shutil.copytree(EARLIER, directory / "data")
    (directory / "data" / "token.keys").write_text(f"{KEY}\n")
    (directory / "data" / "token.keys").chmod(0o600)
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
    # With the first key the service has more than one user, on all workers.
    wait_until(lambda: {get(service, "/v1/datasets").status for _ in range(20)} == {401}, 5)
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
    wait_until(lambda: {get(service, "/v1/datasets", alice).status for _ in range(20)} == {401}, 5)
    assert "revoked" in keys("list")
    assert get(service, f"/v1/inputs/quantiles/{INPUT}", root, "DELETE").status == 204
    assert not list((service.data_dir / "blobs" / "input").rglob("*.quantiles"))


def test_an_input_that_the_first_start_could_not_move_is_handed_over_after_the_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepare(tmp_path)
    data = tmp_path / "data"
    (data / "inputs" / f"{'0' * 32}.quantiles").write_bytes(b"damaged")
    # Its directory cannot be created: the input cannot be stored, but all else can.
    obstacle = data / "blobs" / "input" / INPUT[:2]
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    service = Service(tmp_path, dataset_roots=root)
    try:
        assert everything(service)[:3] == [200] * 3
        assert (data / "inputs" / f"{INPUT}.quantiles").is_file()
        assert service.stop() == 0
        obstacle.unlink()
        service.start()
        assert everything(service) == [200] * 4
        assert not (data / "inputs").exists()
        (aside,) = (data / "inputs.damaged").iterdir()
        assert aside.read_bytes() == b"damaged"
        assert service.log().count("are kept aside") == 2
        assert main(["keys", "--data-dir", str(data), "adopt", "admin", "alice"]) == 0
        assert capsys.readouterr().out == "4 things of admin now belong to alice\n"
        assert service.stop() == 0
    finally:
        service.kill()
        structlog.reset_defaults()
