"""Faults are retried at once in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.client.transport import retry as _retry

from .fakes.service import FakeService


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "_FIRST_DELAY", 0.001)
    monkeypatch.setattr(_retry, "_LONGEST_DELAY", 0.002)


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as fake:
        yield fake
