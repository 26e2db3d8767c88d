"""Every test here talks to a small service, with either client, and waits for nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.client import Client, Dataset
from app.client.transport import asynchronous, blocking
from tests.scale import SOAK, THOROUGH

from .fakes.clock import FakeClock
from .fakes.faces import AsyncFace
from .fakes.service import FakeService

Connect: TypeAlias = Callable[..., Client]

_HERE = Path(__file__).parent
_FEW = 3
"""Cases of a test that go through both kinds of clients, if there are no more."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each of many cases go through one kind of client, and the next through the other.

    The blocking client is made from the other one, and each test goes through both.
    """
    if THOROUGH:
        return
    cases: dict[object, dict[object, int]] = defaultdict(dict)
    kinds: list[tuple[pytest.Item, dict[object, int], object, int]] = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "connect" in callspec.indices and _HERE in item.path.parents:
            assert isinstance(item, pytest.Function)
            of_test = cases[item.path, item.originalname]
            case = tuple((k, v) for k, v in callspec.indices.items() if k != "connect")
            of_test.setdefault(case, len(of_test))
            kinds.append((item, of_test, case, callspec.indices["connect"]))
    left_out = {
        item
        for item, of_test, case, kind in kinds
        if len(of_test) > _FEW and (of_test[case] + kind) % 2
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


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
