"""Requests of runs and uploads to a server."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

from tests.app.harness import Answer, Post, Service, ask, head
from tests.streams import Block, Stream

PAIRS = ((-1, 2.5), (1, 1.0), (3, 4.0))
TUS = {"Tus-Resumable": "1.0.0"}
BYTES = {**TUS, "Content-Type": "application/offset+octet-stream"}
DRAFT = {"Upload-Draft-Interop-Version": "8"}
PART = {**DRAFT, "Content-Type": "application/partial-upload"}
EVENT = 88
"""Bytes of an event of ``stream``."""


def stream(events: int = 50, kind: str = "summary", first: int = 1) -> bytes:
    """A stream of events of two blocks."""
    numbers = range(first, first + events)
    blocks = tuple(Block(e, i, PAIRS) for e in numbers for i in (1, 2))
    return Stream(kind, 4, 4, blocks).encode()


class Uploader:
    """A client of one run.

    Args:
        service: the server.
        spec: members of the run that differ from the usual ones.
    """

    def __init__(self, service: Service, run: str | None = None, **spec: object) -> None:
        self.service = service
        values = {"perspective": "gul", "reports": ["melt"], **spec}
        if run is None:
            answer = self.ask("POST", "/v1/runs", json.dumps(values).encode())
            assert answer.status == 201, answer.body
            run = answer.json()["id"]
        self.path = f"/v1/runs/{run}"

    def ask(self, method: str, path: str, body: bytes = b"", /, **headers: object) -> Answer:
        pairs = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        return ask(self.service, Post(path, [body], pairs, method=method))

    def describe(self) -> Any:  # noqa: ANN401 - JSON
        return self.ask("GET", self.path).json()

    def streams(self) -> Any:  # noqa: ANN401 - JSON
        return self.ask("GET", f"{self.path}/streams").json()["streams"]

    def create(self, length: int | None = None, query: str = "", /, **headers: object) -> str:
        """Create an upload by tus; return its address."""
        declared = {"Upload-Defer-Length": 1} if length is None else {"Upload-Length": length}
        answer = self.ask("POST", f"{self.path}/streams{query}", **TUS, **declared, **headers)
        assert answer.status == 201, answer.body
        return str(answer.getheader("Location"))

    def patch(self, address: str, offset: int, data: bytes, /, **headers: object) -> Answer:
        return self.ask("PATCH", address, data, **{**BYTES, "Upload-Offset": offset, **headers})

    def offset(self, address: str) -> int:
        answer = self.ask("HEAD", address, **TUS)
        assert answer.status == 200
        return int(answer.getheader("Upload-Offset") or "")

    def upload(self, data: bytes, /, **headers: object) -> str:
        address = self.create(len(data), **headers)
        assert self.patch(address, 0, data).status == 204
        return address

    @contextlib.contextmanager
    def sending(
        self, address: str, offset: int, data: bytes, length: int, /, **headers: object
    ) -> Iterator[socket.socket]:
        """A PATCH that says it has ``length`` bytes, and has sent ``data`` so far."""
        fields = {**BYTES, "Upload-Offset": offset, "Content-Length": length, **headers}
        pairs = [(name, str(value)) for name, value in fields.items()]
        with self.service.connect() as client:
            client.sendall(head("PATCH", address, pairs) + data)
            yield client
