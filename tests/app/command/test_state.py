"""The command ``state copy``: to a database, and to an object store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from app.command.main import main
from app.state import object_service
from app.state.base import Usage
from app.state.presence import Presence
from app.state.storage import CLAIMS, open_storage
from app.state.token_keys import load_keys, resolve_keys
from tests.app.state.blob_suite import pattern
from tests.postgres_server import PostgresServer, running_server

BLOBS = "s3://bucket/prefix"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(object_service, "open_objects", lambda _: store)
    return store


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with records, blobs and a token key."""
    directory = tmp_path / "data"
    monkeypatch.setenv("THALWEG_DATA_DIR", str(directory))
    with contextlib.closing(open_storage(directory, 0)) as storage:
        for number in range(30):
            head = storage.records.create("view", f"a.v{number}", b"1")
            storage.records.compare_and_swap(head, b"%d" % number, size=100)
        storage.blobs.append("stream", "r.1.0", 0, pattern(9_000_000))
        storage.blobs.append("stream", "r.1.0", 9_000_000, b"end")
        storage.blobs.put("input", "xref", b"")
        load_keys(directory)
    return directory


def copy(url: str, *more: str) -> int:
    return main(["state", "copy", "--to", url, "--blobs", BLOBS, *more])


@pytest.mark.usefixtures("objects")
def test_everything_is_copied_and_compared(
    server: PostgresServer,
    data_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = server.new_database()
    assert copy(url) == 0
    assert capsys.readouterr().out == (
        "30 records and 2 blobs (9,000,003 bytes) copied and compared; 0 were there\n"
    )
    # One that was interrupted: the beginning of a blob, and no token keys.
    with contextlib.closing(open_storage(data_dir, 0, url, BLOBS)) as storage:
        storage.blobs.trim("stream", "r.1.0", 5)
    assert copy(url) == 0
    assert "0 records and 1 blobs" in capsys.readouterr().out
    assert copy(url) == 0
    assert capsys.readouterr().out.endswith("; 32 were there\n")
    source = open_storage(data_dir, 0)
    target = open_storage(data_dir, 0, url, BLOBS)
    with contextlib.closing(source), contextlib.closing(target):
        assert target.records.list("view") == source.records.list("view")
        assert [head.used for head in target.records.list("view").records] == [
            head.used for head in source.records.list("view").records
        ]
        assert target.records.largest_usage("view") == Usage(30, 3000)
        assert target.blobs.range("stream", "r.1.0") == source.blobs.range("stream", "r.1.0")
        assert target.blobs.kinds() == ("stream",)
        assert resolve_keys([], target) == resolve_keys([], source)


@pytest.mark.usefixtures("objects")
def test_what_is_refused(
    server: PostgresServer,
    data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(url: str, *more: str) -> str:
        assert copy(url, *more) == 2
        return capsys.readouterr().err

    url = server.new_database()
    assert "--to must be the address of a database" in refused("sqlite:")
    assert "is not a data directory" in refused(url, "--data-dir", str(tmp_path / "none"))
    assert "80 conditional writes" in refused("s3://bucket")
    with contextlib.closing(open_storage(data_dir, 0, url, BLOBS)) as storage:
        storage.records.create("view", "a.v1", b"of another service")
    assert "the target has another view a.v1" in refused(url)
    presence = Presence(data_dir / CLAIMS)
    with contextlib.closing(presence):
        assert "stop it first" in refused(url) or not presence.pids()
