"""Cases of the memory table: what is prepared, and the one request that is measured."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.app.harness import Answer, head, with_query
from tests.memory.measured import MeasuredService

SECONDS = 4.0
"""After so long a client leaves an answer that goes on."""
JSON = ("Content-Type", "application/json")

Headers = Mapping[str, object]


@dataclass(frozen=True)
class Request:
    """A request, with a body in pieces."""

    method: str
    path: str
    pieces: Iterable[bytes] = ()
    headers: Headers = field(default_factory=dict)
    size: int | None = None
    """Length of the body; None for the sum of pieces in a list."""

    @classmethod
    def of(
        cls, method: str, path: str, body: object = b"", headers: Headers | None = None
    ) -> Request:
        """A request with bytes, or with an object that is sent as JSON."""
        given = dict(headers or {})
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given[JSON[0]] = JSON[1]
        return cls(method, path, [body], given, len(body))


Action = Callable[[], int]
"""Does what is measured; returns the status of its answer, 0 where the client left."""
Prepare = Callable[["Desk"], Request | Action]


class Desk:
    """A client of one server, and the files that it may read."""

    def __init__(self, service: MeasuredService, roots: Path) -> None:
        self.service = service
        self.roots = roots

    def send(self, request: Request) -> Answer:
        """Return the whole answer of a request of the preparation."""
        with self.service.connect() as client:
            self._send(client, request)
            answer = Answer(client, request.method)
        assert answer.status < 300, (request.path, answer.status, answer.body[:500])
        return answer

    def ask(self, method: str, path: str, body: object = b"", **headers: object) -> Any:  # noqa: ANN401
        """Return the JSON of an answer in the preparation."""
        answer = self.send(Request.of(method, path, body, headers))
        return answer.json() if answer.body else None

    def dataset(self, *files: str, **entry: object) -> str:
        """Register files; return the path of the dataset."""
        ident = f"d{len(files)}-{Path(files[0]).name.partition('.')[0]}"
        self.ask("POST", "/v1/datasets", {"id": ident, "files": files, **entry})
        return f"/v1/datasets/{ident}"

    def view(self, dataset: str, **view: object) -> str:
        """Store a view; return its path."""
        return f"{dataset}/views/{self.ask('POST', f'{dataset}/views', view)['id']}"

    def pipeline(self, *stages: Mapping[str, object]) -> str:
        """Register a pipeline; return its path."""
        answer = self.ask("POST", "/v1/pipelines", {"order": 1, "stages": stages})
        return f"/v1/pipelines/{answer['id']}"

    def input(self, name: str, data: bytes, **options: object) -> str:
        """Store an auxiliary file; return its digest."""
        return str(self.ask("PUT", with_query(f"/v1/inputs/{name}", options), data)["digest"])

    def run(self, *streams: bytes, inputs: Mapping[str, str] | None = None, **spec: object) -> str:
        """Create a run of these streams, not yet sealed; return its path."""
        values = {"perspective": "gul", "reports": ["melt"], "inputs": inputs or {}, **spec}
        path = f"/v1/runs/{self.ask('POST', '/v1/runs', values)['id']}"
        for data in streams:
            self.ask("POST", f"{path}/streams", data)
        return path

    def sealed(self, path: str) -> int:
        """Seal a run and wait until it has ended; return 200 where it is done."""
        self.ask("POST", f"{path}/seal")
        deadline = time.monotonic() + SECONDS
        while (state := self.ask("GET", path)["state"]) not in {"done", "failed"}:
            if time.monotonic() > deadline:
                return 0
            time.sleep(0.02)
        return 200 if state == "done" else 422

    def _send(self, client: socket.socket, request: Request) -> None:
        framing = {"Content-Length": request.size} if request.size is not None else {}
        pairs = {**framing, **request.headers}
        named = [(name.replace("_", "-"), str(value)) for name, value in pairs.items()]
        # An answer may come before the body is taken, and the connection be closed.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(head(request.method, request.path, named))
            for piece in request.pieces:
                client.sendall(piece)

    def do(self, request: Request) -> int:
        """Send a request and read its answer without keeping it; return the status."""
        deadline = time.monotonic() + SECONDS
        try:
            with self.service.connect(SECONDS) as client:
                self._send(client, request)
                answer = Answer(client, request.method, read=False)
                # Not ``read``, which heartbeats would keep waiting for a full piece.
                while answer.read1(1 << 18):
                    if time.monotonic() > deadline:
                        return 0
                return answer.status
        except (TimeoutError, ConnectionResetError):
            return 0


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        name: of the row.
        method: that of its route.
        route: its path, as the contract has it.
        prepare: registers what is needed, touches the code once with something small, and returns
            what is measured.
        hostile: whether it may be charged far more than it takes.
        settings: of its server.
    """

    name: str
    method: str
    route: str
    prepare: Prepare
    hostile: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)


class Table:
    """The cases of a module.

    Args:
        product: precedes their names.
    """

    def __init__(self, product: str) -> None:
        self.product = product
        self.cases: list[Case] = []

    def add(
        self,
        route: str,
        name: str,
        prepare: Prepare,
        *,
        hostile: bool = False,
        **settings: object,
    ) -> None:
        """Add a case of a route such as ``POST /v1/runs``."""
        method, path = route.split()
        case = Case(f"{self.product}: {name}", method, path, prepare, hostile, settings)
        assert case.name not in {known.name for known in self.cases}, case.name
        self.cases.append(case)

    def case(
        self, route: str, *, hostile: bool = False, **settings: object
    ) -> Callable[[Prepare], Prepare]:
        """Add a function as a case, by its name."""

        def added(prepare: Prepare) -> Prepare:
            name = prepare.__name__.replace("_", " ").strip()
            self.add(route, name, prepare, hostile=hostile, **settings)
            return prepare

        return added
