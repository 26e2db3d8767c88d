"""A service whose pages are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.harness import Service
from tests.scale import PURE_PYTHON


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its datasets are; modules fill it."""
    return tmp_path_factory.mktemp("roots")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, roots: Path) -> Iterator[Service]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    service = Service(tmp_path_factory.mktemp("console"), dataset_roots=roots)
    try:
        yield service
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()
