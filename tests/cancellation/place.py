"""Where work is done, and what a kind of it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cancellation.leaving import Work
from tests.e2e.service import Service

JSON = ("Content-Type: application/json",)


@dataclass(frozen=True, slots=True)
class Place:
    """A server and the directory of its datasets.

    Attributes:
        server: takes any CPU time, and names no limit that a kind of work would meet.
        root: of datasets.
    """

    server: Service
    root: Path

    def ask(self, method: str, target: str, body: bytes = b"", *headers: str) -> Any:  # noqa: ANN401
        """A short request; the JSON of its answer, if it has one."""
        with self.server.connect(timeout=600) as connection:
            answer = connection.request(method, target, body, *headers)
        assert answer.status < 300, (target, answer.status, answer.body[:500])
        return answer.json() if answer.body else None

    def store(self, kind: str, data: bytes) -> str:
        """Store an auxiliary file; its digest."""
        return str(self.ask("PUT", f"/v1/inputs/{kind}", data)["digest"])

    def send(self, target: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """POST an object, which creates something."""
        return self.ask("POST", target, json.dumps(values).encode(), *JSON)

    def keep(self, path: Path) -> None:
        """Have the server find a file of the directory, or a store there."""

    def dataset(self, name: str, write: Callable[[Path], None], **entry: object) -> str:
        """Register a file, which is written first if it is not there; the path of the dataset."""
        path = self.root / name
        ident = name.partition(".")[0]
        if not path.exists():
            write(path)
            self.keep(path)
            self.send("/v1/datasets", {"files": [name], **entry, "id": ident})
        return f"/v1/datasets/{ident}"

    def view(self, dataset: str, **view: object) -> str:
        """Store a view; its path."""
        return f"{dataset}/views/{self.send(f'{dataset}/views', view)['id']}"


Prepare = Callable[[Place, float], Work | Callable[[], Work]]
"""Prepares work, of a part of the largest size; where it can be done only once, what makes it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work.

    Attributes:
        route: method and path, as the contract has them.
        prepare: makes the request.
    """

    route: str
    prepare: Prepare


class Table(dict[str, Kind]):
    """Kinds of work by their names."""

    def add(self, route: str, name: str, prepare: Prepare) -> None:
        """Add a kind of work."""
        assert name not in self, name
        self[name] = Kind(route, prepare)
