"""Servers for the tests to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.service import KEY, Service


class Starter(Protocol):
    def __call__(self, *flags: str) -> Service: ...


def _stop(server: Service) -> None:
    """End a server; it must end well, and have had no failure of its own."""
    if server.process.poll() is None:
        assert server.stop() == 0, server.log()
    else:
        server.end()
    assert not server.failures()


def _lasting(directory: Path) -> Iterator[Service]:
    server = Service(directory, token_keys=KEY)
    try:
        yield server
        _stop(server)
    finally:
        server.kill()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with default settings, for tests that leave it well."""
    yield from _lasting(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="session")
def _second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    yield from _lasting(tmp_path_factory.mktemp("spare"))


@pytest.fixture
def spare(_second: Service) -> Service:
    """Another one, which may be killed."""
    if _second.process.poll() is not None:
        _second.start()
    return _second


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Starts servers of the test's own."""
    servers: list[Service] = []

    def start(*flags: str) -> Service:
        directory = tmp_path / f"server-{len(servers)}"
        servers.append(Service(directory, *flags, token_keys=KEY))
        return servers[-1]

    with ExitStack() as stack:
        yield start
        for server in servers:
            stack.callback(server.kill)
        for server in servers:
            _stop(server)
