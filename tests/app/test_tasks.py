"""The registry of tasks: every row leads to code, and versions tell registries apart."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import pytest

from app.engine.base import Kind, resource_of
from app.engine.scheduler import Scheduler
from app.settings import Settings
from app.tasks import REGISTRY, make_cluster, scheduler_of, store_resource
from tests.app.state.memory import MemoryStateStore


@pytest.mark.parametrize("name", REGISTRY)
def test_a_task_is_a_function_of_its_service_and_json(name: str) -> None:
    kind = REGISTRY[name]
    module, _, function = kind.function.partition(":")
    parameters = inspect.signature(getattr(import_module(module), function)).parameters
    assert list(parameters) == [*([kind.service] if kind.service else []), "task"]


def test_any_other_version_is_another_resource() -> None:
    others = [{**REGISTRY, name: Kind("other", "", "")} for name in REGISTRY]
    others.append({name: kind for name, kind in REGISTRY.items() if name != "seal"})
    assert len({resource_of(registry) for registry in (REGISTRY, *others)}) == len(others) + 1
    assert resource_of(dict(reversed([*REGISTRY.items()]))) == resource_of(REGISTRY)


def test_stores_are_told_apart() -> None:
    first, second = MemoryStateStore(), MemoryStateStore()
    settings, elsewhere = Settings(), Settings(blobs="s3://bucket")
    assert store_resource(first, settings) == store_resource(first, settings)
    found = {
        store_resource(records, s) for records in (first, second) for s in (settings, elsewhere)
    }
    assert len(found) == 4


def test_without_a_scheduler_there_is_no_cluster() -> None:
    with ExitStack() as resources:
        assert make_cluster(Settings(), MemoryStateStore(), resources) is None
    with pytest.raises(ValueError, match="name a scheduler, as tcp://host:port"):
        scheduler_of(Settings())


def test_a_scheduler_that_encrypts_needs_certificates() -> None:
    with pytest.raises(ValueError, match="needs THALWEG_ENGINE_TLS_CA"):
        scheduler_of(Settings(), "tls://host:1")
    files = Path("ca"), Path("cert"), Path("key")
    ca, cert, key = files
    settings = Settings(
        engine="dask:tls://host:1", engine_tls_ca=ca, engine_tls_cert=cert, engine_tls_key=key
    )
    assert scheduler_of(settings) == Scheduler("tls://host:1", *files)
    security = scheduler_of(settings).security()
    assert security.require_encryption is True
    assert security.get_tls_config_for_role("client")["cert"] == "cert"
    assert security.get_tls_config_for_role("worker")["key"] == "key"


def test_dask_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tasks.find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"install thalweg-server\[dask\]"):
        scheduler_of(Settings(engine="dask:tcp://host:1"))
