"""A server whose datasets are in a bucket, and kinds of work over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from obstore.store import ObjectStore

from tests.cancellation.kinds import KINDS
from tests.cancellation.place import Place
from tests.e2e.service import Service
from tests.object_server import ObjectServer, environment_python, running_objects

PARTS: Mapping[str, float] = {
    **dict.fromkeys(("tiles", "shuffled tiles", "raw values", "a file", "std"), 1 / 128),
    **dict.fromkeys(("tiles of hdf5", "tiles of zarr_store", "std of hdf5"), 1 / 4),
    **dict.fromkeys(("shuffle", "the largest batches of rows", "padded lines"), 1 / 4),
    **dict.fromkeys(("registering short lines", "registering short events"), 1 / 4),
}
"""Kinds of work that read objects, and how much of each a server on this machine holds."""
assert PARTS.keys() <= KINDS.keys()


@dataclass(frozen=True, slots=True)
class BucketPlace(Place):
    """A server whose datasets are in a bucket.

    Attributes:
        objects: what serves the bucket.
    """

    objects: ObjectServer

    def keep(self, path: Path) -> None:
        """Put a file, or all of a store, into the bucket."""
        for each in path.rglob("*") if path.is_dir() else (path,):
            if each.is_file():
                obstore.put(self._bucket, each.relative_to(self.root).as_posix(), each)

    @property
    def _bucket(self) -> ObjectStore:
        return self.objects.bucket()

    def reads(self) -> int:
        """How many reads the bucket has answered."""
        return (self.objects.directory / "log").read_bytes().count(b"GET /tests/")

    def held(self) -> float:
        """Bytes that the ledger of the server has."""
        found = self.server.metrics().items()
        return sum(value for name, value in found if name.startswith("thalweg_memory_held_bytes"))


@contextlib.contextmanager
def serving_bucket(directory: Path) -> Iterator[BucketPlace]:
    """A server whose only root is a bucket; see ``table.serving``."""
    python, root = environment_python(), directory / "root"
    assert python is not None, "THALWEG_OBJECTS_PYTHON names no environment"
    root.mkdir(parents=True)
    with running_objects("moto", python) as objects, pytest.MonkeyPatch.context() as patch:
        for name, value in objects.environment.items():
            patch.setenv(name, value)
        endless = {"request_cpu_seconds": 3600, "request_items": 1 << 60}
        server = Service(directory, "--threads=2", dataset_roots="s3://tests", **endless)
        try:
            yield BucketPlace(server, root, objects)
            assert server.stop() == 0
            assert not server.failures()
        finally:
            server.kill()
