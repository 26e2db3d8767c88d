"""Namespaces of owners, and content that several share."""

from __future__ import annotations

import json

import pytest

from app.state.base import (
    Record,
    RecordConflictError,
    RecordExistsError,
    RecordMissingError,
)
from app.state.ownership import (
    Namespaces,
    adopt,
)
from tests.app.state.memory import MemoryStateStore


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


def test_equal_ids_of_two_owners_are_two_things(store: MemoryStateStore) -> None:
    things = Namespaces(store, "dataset")
    assert things.create("alice", "scan", {"a": 1})
    assert not things.create("alice", "scan", {"a": 1})
    with pytest.raises(RecordExistsError, match="the dataset scan already exists"):
        things.create("alice", "scan", {"a": 2})
    assert things.create("bob", "scan", {"a": 2})
    assert things.get("alice", "scan").value == {"a": 1}
    assert things.get("bob", "scan").value == {"a": 2}
    things.delete("alice", "scan")
    assert not things.has("alice", "scan")
    assert things.has("bob", "scan")
    with pytest.raises(RecordMissingError):
        things.delete("alice", "scan")


@pytest.mark.parametrize("ident", ["../x", "", "a b", "x" * 300, "\0"])
def test_what_is_no_id_is_nobodys(store: MemoryStateStore, ident: str) -> None:
    things = Namespaces(store, "view")
    assert not things.has("alice", ident)
    assert things.of_anyone(ident) == []
    with pytest.raises(RecordMissingError):
        things.delete("alice", ident)


def test_lists_are_of_one_owner_or_of_all(store: MemoryStateStore) -> None:
    things = Namespaces(store, "view")
    owned = {"alice": ["b", "d", "e"], "bob": ["a", "d"], "carol": ["z" * 128]}
    for owner, idents in owned.items():
        for ident in idents:
            things.create(owner, ident, {})
    assert things.ids("alice") == ["b", "d", "e"]
    assert things.ids("alice", after="b", limit=1) == ["d"]
    assert things.ids("nobody") == []
    assert things.all_ids() == ["a", "b", "d", "e", "z" * 128]
    assert things.all_ids(after="a", limit=2) == ["b", "d"]
    things.create("alice", "da", {})
    assert things.ids("alice", prefix="d") == ["d", "da"]
    assert things.ids("alice", after="d", prefix="d") == ["da"]
    assert things.all_ids(prefix="d") == ["d", "da"]
    things.delete("alice", "da")
    assert {owned.owner for owned in things.of_anyone("d")} == {"alice", "bob"}
    assert list(things.all_of("alice")) == ["b", "d", "e"]


def test_a_replacement_sees_what_it_replaces(store: MemoryStateStore) -> None:
    things = Namespaces(store, "pipeline")
    things.create("alice", "p", {"n": 1})
    seen = things.get("alice", "p")
    things.replace(seen, {"n": 2})
    assert things.get("alice", "p").value == {"n": 2}
    with pytest.raises(RecordConflictError):
        things.replace(seen, {"n": 3})


def test_what_is_known_besides_is_ignored_and_kept(store: MemoryStateStore) -> None:
    """By nodes of the version before, while others know more."""
    things = Namespaces(store, "view")
    newer = {"colour": "red", "since": [1, None]}
    things.insert("alice", "v", {"n": 1}, beside=newer)
    assert not things.create("alice", "v", {"n": 1})
    assert not things.create("alice", "v", {"n": 1}, beside={"colour": "red"})
    for other in ({"n": 2}, {"n": 1, "m": None}):
        with pytest.raises(RecordExistsError):
            things.create("alice", "v", other)
    with pytest.raises(RecordExistsError):
        things.create("alice", "v", {"n": 1}, beside={"colour": "blue"})
    changed = things.replace(things.get("alice", "v"), {"n": 2})
    assert things.replace(changed, {"n": 3}).beside == newer
    assert adopt(store, "alice", "bob") == (1, [])
    owned = things.get("bob", "v")
    assert (owned.value, owned.beside) == ({"n": 3}, newer)


def test_a_head_names_its_owner(store: MemoryStateStore) -> None:
    things = Namespaces(store, "view")
    things.create("alice", "v", {})
    assert json.loads(things.record("alice", "v").value)["owner"] == "alice"
    assert [owned.owner for owned in things.of_anyone("v")] == ["alice"]


def test_everything_is_handed_over_but_what_is_taken(store: MemoryStateStore) -> None:
    for kind in ("dataset", "view", "input"):
        Namespaces(store, kind).create("old", "same", {})
        Namespaces(store, kind).create("old", "own", {"kind": kind})
        Namespaces(store, kind).create("new", "same", {})
    Namespaces(store, "dataset").create("old", "taken", {"a": 1})
    Namespaces(store, "dataset").create("new", "taken", {"a": 2})
    assert adopt(store, "old", "new") == (6, ["new has another dataset taken: that of old stays"])
    assert Namespaces(store, "dataset").ids("old") == ["taken"]
    assert Namespaces(store, "dataset").get("new", "own").value == {"kind": "dataset"}
    assert Namespaces(store, "view").ids("old") == []


def test_what_is_deleted_while_it_is_posted_again_is_there() -> None:
    class Deleting(MemoryStateStore):
        """A store where another request deletes what this one finds to exist."""

        def get(self, kind: str, record_id: str) -> Record:
            self.delete(kind, record_id)
            return super().get(kind, record_id)

    things = Namespaces(Deleting(), "view")
    assert things.create("alice", "v", {"a": 1})
    assert things.create("alice", "v", {"a": 1})
    assert things.ids("alice") == ["v"]


def test_what_changes_while_it_is_handed_over_is_handed_over_with_its_change() -> None:
    class Changing(MemoryStateStore):
        """Somebody changes each thing once before it is deleted."""

        def delete(
            self,
            kind: str,
            record_id: str,
            seen: Record | None = None,
            *,
            unused_since: float | None = None,
        ) -> None:
            things = Namespaces(self, "stream")
            if things.get("old", "a").value == {"offset": 1}:
                things.replace(things.get("old", "a"), {"offset": 2}, 2)
            super().delete(kind, record_id, seen, unused_since=unused_since)

    store = Changing()
    things = Namespaces(store, "stream")
    things.create("old", "a", {"offset": 1}, 1)
    assert adopt(store, "old", "new") == (1, [])
    owned = things.get("new", "a")
    assert (owned.value, owned.record.size) == ({"offset": 2}, 2)
    assert not things.has("old", "a")


def test_what_the_new_owner_had_stays_though_the_old_one_deletes_its_own() -> None:
    class Deleting(MemoryStateStore):
        """The old owner deletes each thing as it is handed over."""

        def delete(
            self,
            kind: str,
            record_id: str,
            seen: Record | None = None,
            *,
            unused_since: float | None = None,
        ) -> None:
            super().delete(kind, record_id)
            super().delete(kind, record_id, seen, unused_since=unused_since)

    store = Deleting()
    things = Namespaces(store, "view")
    for owner in ("old", "new"):
        things.create(owner, "v", {"a": 1})
    assert adopt(store, "old", "new") == (0, [])
    assert things.has("new", "v")
