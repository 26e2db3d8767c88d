"""Quotas hold exactly, whoever stores at the same time."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.errors import QuotaExceededError
from app.retention import make_quotas
from app.settings import Settings
from app.state.admission import AdmittedHeads
from app.state.base import StateStore, Usage
from app.state.quotas import Limit, Quotas, refuse
from app.state.sqlite import SqliteStateStore
from tests.app.state.memory import MemoryStateStore
from tests.server_process import ROOT

LIMIT = Limit("views", 10, 1000)
QUOTAS = Quotas({"view": LIMIT})

_RACER = """
import sys
from pathlib import Path
from tests.app.state.test_quotas import store_until_refused
from app.state.sqlite import SqliteStateStore

store = SqliteStateStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print(store_until_refused(store, sys.argv[2]))
"""


def store_until_refused(store: StateStore, name: str) -> int:
    """Store heads of one owner until five are refused; return how many were stored."""
    heads = AdmittedHeads(store, QUOTAS)
    refused = stored = 0
    while refused < 5:
        try:
            heads.create("view", f"alice.{name}{stored + refused}", b"1")
        except QuotaExceededError:
            refused += 1
        else:
            stored += 1
    return stored


def admission(count: int, nbytes: int, usage: Usage) -> None:
    admit = QUOTAS.admission("view", count, nbytes)
    assert admit is not None
    admit(usage)


def test_what_fits_is_admitted_and_what_does_not_is_refused() -> None:
    admission(1, 5, Usage(10, 1000))
    with pytest.raises(QuotaExceededError, match="may have 10 views"):
        admission(1, 5, Usage(11, 1000))
    with pytest.raises(QuotaExceededError, match="1000 bytes of views"):
        admission(1, 5, Usage(10, 1001))
    with pytest.raises(QuotaExceededError, match="1000 bytes of views"):
        admission(0, 1, Usage(10, 1001))


def test_refusals_name_a_setting() -> None:
    settings = Settings()
    limits = [
        f"{limit.name}.{unit}"
        for limit in make_quotas(settings).limits.values()
        for unit in ("count", "bytes")
    ]
    found = set()
    for limit in [*limits, "spools.bytes"]:
        with pytest.raises(QuotaExceededError) as caught:
            refuse(limit, 1, 1, retry_after=1)
        found.add(caught.value.members["setting"])
    quotas = {name for name in Settings.model_fields if name.startswith("quota_")}
    assert found == {f"THALWEG_{name.upper()}" for name in quotas}


def test_what_adds_nothing_is_admitted_beyond_a_limit() -> None:
    admission(0, 0, Usage(11, 1001))
    admission(0, -1, Usage(11, 1001))
    admission(1, 0, Usage(10, 1001))


def test_kinds_without_a_limit_are_admitted() -> None:
    assert QUOTAS.admission("dataset", 1, 1 << 60) is None


def test_threads_that_race_store_as_much_as_is_allowed() -> None:
    for _ in range(20):
        store = MemoryStateStore()
        with ThreadPoolExecutor(4) as pool:
            stored = pool.map(lambda name: store_until_refused(store, name), "abcd")  # noqa: B023
            assert sum(stored) == LIMIT.count
        assert len(store.list("view").heads) == LIMIT.count


def test_processes_that_race_store_as_much_as_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    SqliteStateStore(path).close()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in "ab"
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    stored = [int(racer.communicate()[0]) for racer in racers]
    assert sum(stored) == LIMIT.count
    store = SqliteStateStore(path)
    assert len(store.list("view").heads) == LIMIT.count
    # A restart forgets nothing, and what is deleted makes room.
    assert store_until_refused(store, "c") == 0
    store.delete("view", store.list("view").heads[0].id)
    assert store_until_refused(store, "d") == 1
    store.close()
