"""One record that is damaged: what it names fails, and everything else goes on."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from app.errors import BadRequestError, NotFoundError
from app.http.identity import SINGLE_USER, Identity
from app.runs.records import REPORT, RUN, SEGMENT, STREAM
from app.runs.sealing.jobs import KIND as JOB
from app.runs.sealing.jobs import job_of
from app.runs.sweeping import chores, named_inputs
from app.state.api_keys import ApiKeys
from app.state.base import StoreDamagedError
from app.state.ownership import Namespaces, adopt, record_id
from app.state.sqlite import SqliteStateStore
from app.state.sweeper import expired_records
from tests.app.runs.test_store import ALICE, Stores

ADMIN = Identity("admin", frozenset({"admin"}))


class Store(SqliteStateStore):
    """A store whose records can be damaged."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._place = path

    def damage(self, kind: str, ident: str) -> None:
        with contextlib.closing(sqlite3.connect(self._place)) as other:
            values = (b"{}", kind, ident)
            count = other.execute("UPDATE head SET value = ? WHERE kind = ? AND id = ?", values)
            assert count.rowcount == 1
            other.commit()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store(tmp_path / "state.sqlite")) as store:
        yield store


def test_it_is_listed_and_deleted_but_not_read(store: Store) -> None:
    things = Namespaces(store, "view")
    for ident in "abc":
        things.insert("alice", ident, ident)
    things.insert("bob", "b", "b")
    store.damage("view", record_id("alice", "b"))
    with pytest.raises(StoreDamagedError, match="is damaged"):
        things.get("alice", "b")
    assert things.ids("alice") == ["a", "b", "c"]
    assert things.all_ids() == ["a", "b", "c"]
    for limit, found in ((1, "a"), (2, "ac"), (9, "ac")):
        assert [o.ident for o in things.listed("alice", "", limit, lambda o: o)] == [*found]
    assert [o.ident for o in things.listed("alice", "a", 1, lambda o: o)] == ["c"]
    everyone = things.listed("admin", "", 9, lambda o: o, everyone=True)
    assert [o.ident for o in everyone] == ["a", "c"]
    with pytest.raises(StoreDamagedError):
        things.page("alice")
    assert things.has("alice", "b")
    # An administrator's own thing of the name, if there is one, and no other.
    things.insert("admin", "c", "c")
    assert things.remove("admin", "c", everyone=True) == ["admin"]
    assert sorted(things.remove("admin", "b", everyone=True)) == ["", "bob"]
    assert things.ids("alice") == ["a", "c"]
    with pytest.raises(NotFoundError):
        things.remove("admin", "b", everyone=True)


@pytest.mark.parametrize("kind", [JOB, "ahead", REPORT, SEGMENT])
def test_what_a_run_has_besides_is_deleted_with_it(store: Store, kind: str) -> None:
    f = Stores(store)
    run = f.run()
    things = Namespaces(store, kind)
    for ident in "ab":
        things.insert("alice", f"{run.id}.{ident}", "x")
    store.damage(kind, record_id("alice", f"{run.id}.a"))
    store.damage(kind, record_id("alice", f"{run.id}.b"))
    f.removal.delete(ALICE, run.id)
    assert things.ids("alice") == []


def test_other_jobs_are_found(store: Store) -> None:
    f = Stores(store)
    runs = [f.run(), f.run()]
    for run in runs:
        f.removal.jobs.create(job_of(run))
    store.damage(JOB, record_id("alice", job_of(runs[0]).ident))
    assert [job.run for job in f.removal.jobs.claimable()] == [runs[1].id]


def test_a_job_is_made_again(store: Store) -> None:
    f = Stores(store)
    run = f.runs.change(f.run(), lambda run: replace(run, state="sealed"))
    job = job_of(run)
    f.removal.jobs.create(job)
    store.damage(JOB, record_id("alice", job.ident))
    chores(f.removal, store, f.blobs)["runs without jobs"]()
    assert [job.run for job in f.removal.jobs.claimable()] == [run.id]
    store.damage(JOB, record_id("alice", job.ident))
    f.removal.jobs.create(job)
    assert f.removal.jobs.find(job) == replace(job, owned=ANY)


@pytest.mark.parametrize("kind", [RUN, JOB])
def test_no_input_counts_as_unused_that_it_may_name(store: Store, kind: str) -> None:
    f = Stores(store)
    run = f.run()
    f.removal.jobs.create(job_of(run))
    assert list(named_inputs(store)) == []
    store.damage(kind, record_id("alice", run.id if kind == RUN else job_of(run).ident))
    with pytest.raises(StoreDamagedError):
        list(named_inputs(store))


def test_others_are_handed_over(store: Store) -> None:
    things = Namespaces(store, "view")
    for ident in "abc":
        things.insert("alice", ident, ident)
    store.damage("view", record_id("alice", "b"))
    assert adopt(store, "alice", "bob") == (2, ["view b is damaged: it stays with alice"])
    assert (things.ids("bob"), things.ids("alice")) == (["a", "c"], ["b"])


def test_others_expire(store: Store) -> None:
    for ident in ("a.1", "a.2", "a.3"):
        store.create("pipeline", ident, b"{}")
    store.damage("pipeline", "a.2")
    expired_records(store, "pipeline", -10.0)()
    assert not store.list("pipeline").records


def test_other_keys_are_revoked_and_so_is_it(store: Store) -> None:
    keys = ApiKeys(store)
    secrets = [keys.add(owner, ["read"], 0.0) for owner in ("alice", "bob")]
    (_, alice), (_, bob) = secrets
    store.damage("key", alice.digest)
    with pytest.raises(StoreDamagedError):
        keys.get(alice.digest)
    states = {key.owner: key.state(1.0) for key in keys.records()}
    assert states == {"(damaged)": "damaged", "bob": "valid"}
    assert [key.digest for key in keys.revoke("bob", 1.0)] == [bob.digest]
    assert [key.digest for key in keys.revoke(alice.ident, 1.0)] == [alice.digest]
    found = keys.get(alice.digest)
    assert found is not None
    with pytest.raises(BadRequestError):
        keys.add("(damaged)", ["read"], 0.0)
    assert (found.state(2.0), found.scopes) == ("revoked", frozenset())
    with pytest.raises(NotFoundError):
        keys.revoke(alice.ident, 2.0)


@pytest.mark.parametrize("caller", [ALICE, ADMIN])
@pytest.mark.parametrize("kind", [RUN, STREAM])
def test_a_run_can_be_deleted(store: Store, kind: str, caller: Identity) -> None:
    f = Stores(store)
    run, other = f.run(), f.run()
    stream = f.extend(f.add(run), b"1234")
    store.damage(kind, record_id("alice", run.id if kind == RUN else stream.key))
    listed = [each.id for each in f.runs.page(caller, "", 10)]
    assert listed == ([other.id] if kind == RUN else sorted([run.id, other.id]))
    f.removal.delete(caller, run.id)
    for chore in chores(f.removal, f.records, f.blobs, lambda: time.time() + 1e6).values():
        chore()
    assert [record.id for record in store.list(RUN).records] == [record_id("alice", other.id)]
    assert not store.list(STREAM).records
    assert not f.blobs.list("stream").blobs
    with pytest.raises(NotFoundError):
        f.removal.delete(SINGLE_USER, run.id)
