"""Blobs in object stores that run here: the suite for all stores, and those that are refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.state.blobs import BlobStore
from app.state.object_service import check_objects
from app.state.objects import ObjectBlobStore
from app.state.sqlite import SqliteStateStore
from tests.app.state.blob_suite import BlobStoreSuite, MakeStore
from tests.object_server import SERVERS, ObjectServer, environment_python, running_objects

pytestmark = pytest.mark.skipif(
    environment_python() is None, reason="THALWEG_OBJECTS_PYTHON names no environment"
)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    python = environment_python()
    assert python is not None
    with running_objects(request.param, python) as server:
        yield server


class TestServers(BlobStoreSuite):
    @pytest.fixture
    def make_store(self, tmp_path: Path, server: ObjectServer) -> MakeStore:
        objects = server.bucket(secrets.token_hex(4))

        def make() -> BlobStore:
            return ObjectBlobStore(SqliteStateStore(tmp_path / "state.db"), objects)

        return make

    def test_it_keeps_its_promises(self, server: ObjectServer) -> None:
        check_objects(server.bucket())
