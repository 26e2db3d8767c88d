"""Servers that tests send wrong requests to, and that must take no harm from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import quick_routes
from tests.app.harness import Contract, Service, wait_until
from tests.scale import PURE_PYTHON

__all__ = ["quick_routes"]

KEY = "an honest key"
ORIGIN = "https://portfolio.example"
TOKEN_KEYS = {"sign": (3, "33" * 32), "accept": (2, "22" * 32), "refresh-only": (1, "11" * 32)}
MAX_INPUT = 200_000
MAX_BODY = 50_000


def _serve(directory: Path, **settings: object) -> Iterator[Service]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    service = Service(directory, **settings)
    try:
        service.get("/metrics")
        before = service.descriptors()
        yield service
        wait_until(service.is_idle)
        wait_until(lambda: service.descriptors() <= before)
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server that lets everybody in; after all of the tests nothing may be left in it."""
    keys = ",".join(f"{ident}:{use}:{secret}" for use, (ident, secret) in TOKEN_KEYS.items())
    yield from _serve(
        tmp_path_factory.mktemp("service"),
        token_keys=keys,
        cors_origins=ORIGIN,
        max_input=MAX_INPUT,
        # Decoders of parquet inputs hold descriptors until they are stopped.
        decoder_idle_seconds=1,
    )


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server that lets in one key only, and little of it."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    yield from _serve(
        tmp_path_factory.mktemp("guarded"),
        api_keys=f"alice:{digest}",
        max_body=MAX_BODY,
        cors_origins=ORIGIN,
        open_metrics=True,
    )


@pytest.fixture(scope="session")
def contract(service: Service) -> Contract:
    return Contract.of(service)
