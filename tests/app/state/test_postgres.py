"""The heads in Postgres: the suite for all stores, and what is special to a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.state.base import StateStore
from app.state.postgres import PostgresStateStore
from tests.app.state.suite import MakeStore, StateStoreSuite
from tests.postgres_server import PostgresServer, running_server

BLOBS = "s3://bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database()


class TestPostgres(StateStoreSuite):
    @pytest.fixture
    def make_store(self, url: str) -> Iterator[MakeStore]:
        opened: list[StateStore] = []

        def make() -> StateStore:
            opened.append(PostgresStateStore(url, BLOBS))
            return opened[-1]

        yield make
        for store in opened:
            store.close()
