"""Every test here talks to a small service, with either client, and waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

from app.client import Client, Dataset
from app.client.transport import asynchronous, blocking
from tests.scale import SOAK

from .fakes.clock import FakeClock
from .fakes.faces import AsyncFace
from .fakes.service import FakeService

Connect: TypeAlias = Callable[..., Client]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(blocking, "pause", fake.pause)
    monkeypatch.setattr(asynchronous, "pause", fake.pause_async)
    return fake


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as fake:
        yield fake


@pytest.fixture(params=[Client, AsyncFace], ids=["blocking", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one kind; they are closed at the end."""
    with ExitStack() as stack:

        def make(service: FakeService | str, *args: Any, **options: Any) -> Client:  # noqa: ANN401
            url = service if isinstance(service, str) else service.url
            made: Client = stack.enter_context(request.param(url, *args, **options))
            return made

        yield make


@pytest.fixture
def client(connect: Connect, service: FakeService) -> Client:
    return connect(service, retries=3)


@pytest.fixture
def scan(client: Client) -> Dataset:
    return client.datasets["scan"]


@pytest.fixture
def stride(request: pytest.FixtureRequest, connect: Connect) -> int:  # noqa: ARG001 - its kind
    """Bytes from one cut to the next: the asynchronous client takes longer for each."""
    stride = 1 if request.node.callspec.params["connect"] is Client else 7
    return stride if SOAK else 5 * stride
