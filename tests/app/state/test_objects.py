"""Blobs in an object store: the suite for all stores, and what is special to objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from app.state.blobs import BlobStore
from app.state.objects import ObjectBlobStore
from app.state.sqlite import SqliteStateStore
from tests.app.state.blob_suite import BlobStoreSuite, MakeStore


class TestObjects(BlobStoreSuite):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        objects = MemoryStore()

        def make() -> BlobStore:
            return ObjectBlobStore(SqliteStateStore(tmp_path / "state.db"), objects)

        return make
