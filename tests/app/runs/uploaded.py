"""The service in this process, with runs whose streams are stored as uploads store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from app.http.identity import SINGLE_USER
from app.main import create_app
from app.runs.records import Extent, RunRecord, StreamRecord
from app.runs.uploads.appending import ContentHasher
from app.settings import Settings
from tests.runs import RunCase
from tests.serverless import serverless


class Uploads:
    """The service, without a server."""

    def __init__(self, directory: Path, **settings: Any) -> None:  # noqa: ANN401 - of Settings
        self.app = create_app(Settings(data_dir=directory, scan=False, **settings))
        self.state = self.app.parts
        self.runs = self.state.runs.runs
        self.streams = self.state.runs.streams
        self.sealer = self.state.sealer

    def client(self) -> httpx.AsyncClient:
        """Return a client of the routes."""
        transport = httpx.ASGITransport(app=serverless(self.app), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://test")

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        async with self.client() as client:
            return await client.request(method, path, **options)

    async def get(self, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        async with self.client() as client:
            return await client.get(path, **options)

    async def patch(self, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        async with self.client() as client:
            return await client.patch(path, **options)

    async def post(self, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        async with self.client() as client:
            return await client.post(path, **options)

    def occurrence(self, case: RunCase) -> str:
        """Store the occurrences of a case; return their digest."""
        data = occurrence_csv(case)
        receipt = self.state.losses.inputs.put(SINGLE_USER, "occurrence", data, case.periods)
        return str(receipt.digest)

    def run(
        self,
        reports: Sequence[str],
        inputs: Mapping[str, str] | None = None,
        perspective: str = "gul",
        **options: Any,  # noqa: ANN401 - JSON
    ) -> RunRecord:
        """Create a run."""
        spec = {"perspective": perspective, "reports": list(reports), "options": options}
        run, _ = self.runs.create(SINGLE_USER, spec, dict(inputs or {}))
        return self.now(run)

    def now(self, run: RunRecord) -> RunRecord:
        """Return the present version of a run."""
        found: RunRecord = self.runs.get(SINGLE_USER, run.id)
        return found

    def add(self, run: RunRecord, partition: int | None = None) -> StreamRecord:
        """Create a stream."""
        template = StreamRecord("", "", run.owner, 0, 0.0)
        stream: StreamRecord = self.streams.add(self.now(run), template, partition)
        return stream

    def extend(
        self, stream: StreamRecord, data: bytes, *, complete: bool = True, events: int = 1
    ) -> StreamRecord:
        """Append bytes to a stream."""
        fence = stream.fence + 1
        self.streams.blobs.append("stream", stream.blob(fence), 0, data)
        hasher = ContentHasher()
        hasher.update(memoryview(self.streams.stored(stream).read(0, stream.offset) + data))
        new = replace(
            stream,
            fence=fence,
            offset=stream.offset + len(data),
            extents=(*stream.extents, Extent(fence, stream.offset, len(data))),
            complete=complete,
            digest=hasher.digest(),
            events=events,
        )
        swapped: StreamRecord = self.streams.swap(stream, new)
        return swapped

    def upload(self, run: RunRecord, *contents: bytes) -> list[StreamRecord]:
        """Upload a complete stream for each partition, each in two pieces."""
        streams = []
        for data in contents:
            half = len(data) // 2
            begun = self.extend(self.add(run), data[:half], complete=False)
            streams.append(self.extend(begun, data[half:], events=int(len(data) > 12)))
        return streams

    def seal(self, run: RunRecord) -> RunRecord:
        """Seal a run, and compute its reports at once."""
        self.sealer.seal(self.now(run))
        self.sealer.look()
        return self.now(run)


def occurrence_csv(case: RunCase) -> bytes:
    """The occurrences of a case as a file, all on the same day."""
    lines = [f"{event},{period},2000,1,1\n" for event, period in case.occurrences]
    return "".join(["event_id,period_no,occ_year,occ_month,occ_day\n", *lines]).encode()


def partitions(case: RunCase, seed: int, count: int) -> list[bytes]:
    """The streams of the partitions of a case."""
    return [part.encode() for part in case.partitions(np.random.default_rng(seed), count)]
