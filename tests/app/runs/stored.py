"""Stored streams in memory, and the files that are computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.runs.results.files import Published
from app.runs.store import StoredStream
from app.state.ownership import Namespaces
from tests.app.state.memory import MemoryStateStore
from tests.app.state.memory_blobs import MemoryBlobStore

RUN = "0123456789abcdef"
OWNER = "alice"


@dataclass(frozen=True)
class StreamInMemory:
    """A stream of which some bytes are durable."""

    data: bytes
    name: str = "partition 1"
    ident: str = "1"
    complete: bool = True

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> bytes:
        return self.data[start:stop]


def streams_of(*contents: bytes, complete: bool = True) -> list[StoredStream]:
    """Complete streams, one a partition."""
    streams: list[Any] = [
        StreamInMemory(data, f"partition {number}", str(number), complete)
        for number, data in enumerate(contents, 1)
    ]
    return streams


class Files:
    """Where files of a run are published."""

    def __init__(self) -> None:
        self.records = MemoryStateStore()
        self.blobs = MemoryBlobStore()

    def of(self, kind: str, run: str = RUN) -> Published:
        return Published(Namespaces(self.records, kind), self.blobs, kind, OWNER, run)

    def blob_ids(self, kind: str) -> list[str]:
        return [blob.id for blob in self.blobs.list(kind, limit=1000).blobs]


def content(files: Published, name: str) -> bytes:
    """All bytes of a published file."""
    file = files.find(name)
    assert file is not None
    return b"".join(files.pieces(file))


Step = Callable[[int, int], None]


def nothing(_done: int, _total: int) -> None:
    """Let a computation proceed."""
