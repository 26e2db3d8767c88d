"""Limits, quotas, keys and problems, as pages show them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from app.console.overview import keys, limits, problems, quotas, shown
from app.http.identity import Identity
from app.parts import Parts
from app.settings import Settings
from app.state.api_keys import ApiKeys
from app.state.base import StoreError
from app.state.ownership import namespace


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(None, "no limit"), (0, "0 bytes"), (435, "435 bytes"), (3 << 39, "1.5 TiB")],
)
def test_bytes_are_shown_in_units(nbytes: int | None, text: str) -> None:
    assert shown(nbytes) == text


def test_limits_name_their_settings() -> None:
    rows = {row.setting: row.allowed for row in limits(Settings(max_body=1 << 30, owner_rate=2.5))}
    assert rows["THALWEG_MAX_BODY"] == "1 GiB"
    assert rows["THALWEG_OWNER_RATE"] == "2.5 per second"
    assert {name.removeprefix("THALWEG_").lower() for name in rows} <= {*Settings.model_fields}


def test_quotas_are_those_of_the_caller(tmp_path: Path) -> None:
    parts = Parts(Settings(data_dir=tmp_path, quota_runs=4))
    with contextlib.ExitStack() as undo:
        undo.enter_context(parts._resources)
        for owner in ("alice", "bob", "bob"):
            ident = f"{namespace(owner)}.{len(list(parts.storage.records.list('run').records))}"
            parts.storage.records.create("run", ident, b"12345")
        rows = {row.name: row for row in quotas(parts, Identity("bob", frozenset()))}
        assert rows["runs"].used == "2, 10 bytes"
        assert rows["runs"].ratio == 0.5
        assert rows["views"].used == "0, 0 bytes"
        settings = {row.setting.removeprefix("THALWEG_").lower() for row in rows.values()}
        assert settings <= {*Settings.model_fields}


def test_keys_are_shown_without_what_they_are(tmp_path: Path) -> None:
    parts = Parts(Settings(data_dir=tmp_path, api_keys=(f"alice:{'a' * 64}",)))
    with parts._resources:
        stored = ApiKeys(parts.storage.records)
        secret, record = stored.add("bob", {"runs"}, now=0, seconds=10)
        stored.add("carol", {"admin"}, now=0)
        rows = {row.owner: row for row in keys(parts)}
        assert rows["alice"].state == "in the settings"
        assert (rows["bob"].state, rows["carol"].state) == ("expired", "valid")
        assert rows["bob"].ident == record.ident
        assert secret not in str(rows)
        assert record.digest not in str(rows)


def test_problems_are_counted_and_explained() -> None:
    text = """
# HELP thalweg_problems_total Problem documents
thalweg_problems_total{code="busy"} 2.0
thalweg_problems_total{code="not-found"} 3.0
thalweg_problems_total{code="option"} 0.0
thalweg_problems_total{code="<b>"} 9.0
thalweg_requests_total{code="busy"} 9.0
"""
    assert problems(text) == [("not-found", 3, "Not found"), ("busy", 2, "Busy")]


def test_a_store_that_fails_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(Settings(data_dir=tmp_path))

    def fail(*_: object) -> None:
        raise StoreError("the disk failed")

    with parts._resources:
        monkeypatch.setattr(parts.storage.records, "largest_usage", fail)
        assert quotas(parts, Identity("bob", frozenset())) == []
