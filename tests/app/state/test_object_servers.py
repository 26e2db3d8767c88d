"""Blobs in object stores that run here: the suite for all stores, and those that are refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.state.base import StorageError
from app.state.blobs import BlobStore
from app.state.object_service import check_objects, open_objects
from app.state.objects import ObjectBlobStore
from app.state.sqlite import SqliteStateStore
from app.state.storage import try_objects
from tests.app.state.blob_suite import BlobStoreSuite, MakeStore
from tests.object_server import (
    AZURITE,
    CARELESS,
    SERVERS,
    ObjectServer,
    installed_servers,
    running_objects,
)


@pytest.fixture(scope="module", params=[*SERVERS, AZURITE])
def server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    program = installed_servers().get(request.param)
    if program is None:
        pytest.skip("THALWEG_OBJECTS_PYTHON or THALWEG_AZURITE names no program")
    with running_objects(request.param, program) as server:
        yield server


class TestServers(BlobStoreSuite):
    @pytest.fixture
    def make_store(self, tmp_path: Path, server: ObjectServer) -> MakeStore:
        objects = server.bucket(secrets.token_hex(4))

        def make() -> BlobStore:
            return ObjectBlobStore(SqliteStateStore(tmp_path / "state.db"), objects)

        return make

    def test_it_keeps_its_promises(
        self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for address in (server.address, f"{server.address}/below/a"):
            check_objects(open_objects(address))


@pytest.mark.parametrize("name", CARELESS)
def test_one_that_ignores_conditions_is_refused_by_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = installed_servers().get(name)
    if program is None:
        pytest.skip("THALWEG_OBJECTS_PYTHON names no program")
    with running_objects(name, program) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(
            StorageError, match=r"THALWEG_BLOBS s3://tests: the object store ignores"
        ):
            try_objects(server.address)
