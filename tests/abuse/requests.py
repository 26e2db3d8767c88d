"""Requests over sockets, from an address of choice and with a key."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.server_process import HOST


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)


@dataclass(frozen=True)
class Caller:
    """Somebody who calls the service.

    Args:
        port: of the service.
        key: API key; None without.
        address: loopback address to call from.
    """

    port: int
    key: str | None = None
    address: str = HOST

    def connection(self, timeout: float = 60.0) -> http.client.HTTPConnection:
        """A connection for several requests."""
        return http.client.HTTPConnection(
            HOST, self.port, timeout=timeout, source_address=(self.address, 0)
        )

    def headers(self, body: object = None) -> dict[str, str]:
        """Headers of a request."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return headers if body is None else {**headers, "Content-Type": "application/json"}

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Answer:
        """Send a request with a JSON body, bytes or none; return the whole answer."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(contextlib.closing(self.connection()))
            connection.request(method, path, data, self.headers(body))
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, headers, answer.read())

    @contextlib.contextmanager
    def open(self, method: str, path: str, *headers: str) -> Iterator[socket.socket]:
        """Send the head of a request, and nothing else."""
        with socket.create_connection((HOST, self.port), 60.0, (self.address, 0)) as client:
            lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", *headers]
            lines += [f"{name}: {value}" for name, value in self.headers().items()]
            client.sendall("\r\n".join([*lines, "", ""]).encode())
            yield client
