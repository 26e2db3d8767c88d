"""Namespaces of owners, content that several share, and stores of earlier versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.losses.input_store import InputStore, digest_of
from app.state.base import (
    Admit,
    Head,
    HeadConflictError,
    HeadExistsError,
    HeadMissingError,
    Usage,
)
from app.state.memory import MemoryStateStore
from app.state.memory_blobs import MemoryBlobStore
from app.state.ownership import (
    ADMIN,
    Namespaces,
    Shares,
    adopt,
    is_migrated,
    migrate,
    namespace,
)


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


def test_equal_ids_of_two_owners_are_two_things(store: MemoryStateStore) -> None:
    things = Namespaces(store, "dataset")
    assert things.create("alice", "scan", {"a": 1})
    assert not things.create("alice", "scan", {"a": 1})
    with pytest.raises(HeadExistsError, match="the dataset scan already exists"):
        things.create("alice", "scan", {"a": 2})
    assert things.create("bob", "scan", {"a": 2})
    assert things.get("alice", "scan").value == {"a": 1}
    assert things.get("bob", "scan").value == {"a": 2}
    things.delete("alice", "scan")
    assert not things.has("alice", "scan")
    assert things.has("bob", "scan")
    with pytest.raises(HeadMissingError):
        things.delete("alice", "scan")


@pytest.mark.parametrize("ident", ["../x", "", "a b", "x" * 300, "\0"])
def test_what_is_no_id_is_nobodys(store: MemoryStateStore, ident: str) -> None:
    things = Namespaces(store, "view")
    assert not things.has("alice", ident)
    assert things.of_anyone(ident) == []
    with pytest.raises(HeadMissingError):
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
    assert {owned.owner for owned in things.of_anyone("d")} == {"alice", "bob"}
    assert [owned.ident for owned in things.all("alice")] == ["b", "d", "e"]


def test_a_replacement_sees_what_it_replaces(store: MemoryStateStore) -> None:
    things = Namespaces(store, "pipeline")
    things.create("alice", "p", {"n": 1})
    seen = things.get("alice", "p")
    things.replace(seen, {"n": 2})
    assert things.get("alice", "p").value == {"n": 2}
    with pytest.raises(HeadConflictError):
        things.replace(seen, {"n": 3})


class Content:
    """One content, and something that happens while it is being removed."""

    def __init__(self) -> None:
        self.stored = False
        self.meanwhile: Callable[[], None] = lambda: None

    def put(self) -> None:
        self.stored = True

    def remove(self) -> Callable[[], None]:
        self.meanwhile()
        self.stored = False
        return self.put


def test_the_last_owner_takes_the_content_along(store: MemoryStateStore) -> None:
    shares, content = Shares(store, "input"), Content()
    shares.put("alice", "x", 1, content.put)
    shares.put("alice", "x", 1, content.put)
    shares.put("bob", "x", 1, content.put)
    assert set(shares.owners("x")) == {"alice", "bob"}
    shares.delete("alice", "x", content.remove)
    assert (content.stored, shares.has("alice", "x"), shares.has("bob", "x")) == (True, False, True)
    with pytest.raises(HeadMissingError):
        shares.delete("alice", "x", content.remove, everyone=False)
    shares.delete("bob", "x", content.remove)
    assert not content.stored
    assert shares.owners("x") == []


def test_content_that_is_stored_again_while_it_is_deleted_stays(store: MemoryStateStore) -> None:
    shares, content = Shares(store, "input"), Content()
    shares.put("alice", "x", 1, content.put)
    content.meanwhile = lambda: shares.put("bob", "x", 1, lambda: None)
    shares.delete("alice", "x", content.remove)
    assert content.stored
    assert shares.has("bob", "x")


def test_owners_that_race_lose_nothing(store: MemoryStateStore) -> None:
    """Whoever has put last still has the content when all is quiet."""
    inputs, shares = InputStore(MemoryBlobStore(), 1), Shares(store, "input")
    digest = digest_of(b"content")

    def remove() -> Callable[[], None]:
        data = inputs.remove("quantiles", digest)

        def restore() -> None:
            if data is not None:
                inputs.put("quantiles", digest, data)

        return restore

    def run(owner: str, *, keep: bool) -> None:
        for turn in range(40):
            shares.put(owner, "x", 7, lambda: inputs.put("quantiles", digest, b"content"))
            if turn < 39 or not keep:
                shares.delete(owner, "x", remove)

    for _ in range(10):
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(run, f"owner {n}", keep=n == 0) for n in range(3)]
            for done in runs:
                done.result()
        assert shares.owners("x") == ["owner 0"]
        assert inputs.read("quantiles", digest) == b"content"
        shares.delete("owner 0", "x", remove)


def test_content_that_cannot_be_stored_is_not_owned(store: MemoryStateStore) -> None:
    shares = Shares(store, "input")

    def fail() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it is the one above
        shares.put("alice", "x", 1, fail)
    assert not shares.has("alice", "x")


def test_everyone_is_removed_by_who_is_none_of_them(store: MemoryStateStore) -> None:
    shares, content = Shares(store, "input"), Content()
    for owner in ("alice", "bob"):
        shares.put(owner, "x", 1, content.put)
    shares.put(ADMIN, "x", 1, content.put)
    shares.delete(ADMIN, "x", content.remove, everyone=True)
    assert (content.stored, set(shares.owners("x"))) == (True, {"alice", "bob"})
    shares.delete(ADMIN, "x", content.remove, everyone=True)
    assert not content.stored
    with pytest.raises(HeadMissingError):
        shares.delete(ADMIN, "x", content.remove, everyone=True)


def test_what_earlier_versions_stored_belongs_to_admin(
    store: MemoryStateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"dataset": "scan", "view": "ab" * 12, "pipeline": "cd" * 16}
    for kind, ident in old.items():
        store.create(kind, ident, json.dumps({"id": ident, "spec": {}}).encode())
    Namespaces(store, "view").create("alice", "new", {})
    assert not is_migrated(store)
    for turn in range(2):
        migrate(store, [("x.quantiles", 7)])
        assert ("things=4" in capsys.readouterr().out) == (turn == 0)
        assert is_migrated(store)
        for kind, ident in old.items():
            assert Namespaces(store, kind).get(ADMIN, ident).value["id"] == ident
            assert all(
                head.id.startswith((namespace(ADMIN), namespace("alice")))
                for head in store.list(kind).heads
            )
        assert Shares(store, "input").has(ADMIN, "x.quantiles")
    Shares(store, "input").delete(ADMIN, "x.quantiles", lambda: lambda: None)
    migrate(store, [("x.quantiles", 7)])
    assert Shares(store, "input").owners("x.quantiles") == []


def test_a_head_names_its_owner(store: MemoryStateStore) -> None:
    things = Namespaces(store, "view")
    things.create("alice", "v", {})
    assert json.loads(things.head("alice", "v").value)["owner"] == "alice"
    assert [owned.owner for owned in things.of_anyone("v")] == ["alice"]


def test_content_counts_with_its_size(store: MemoryStateStore) -> None:
    Shares(store, "input").put("alice", "x", 700, lambda: None)
    assert usage(store, "input", "alice") == Usage(1, 700)
    adopt(store, "alice", "bob")
    assert usage(store, "input", "alice") == Usage()
    assert usage(store, "input", "bob") == Usage(1, 700)
    migrate(store, [("y.quantiles", 30)])
    assert usage(store, "input", ADMIN) == Usage(1, 30)


def usage(store: MemoryStateStore, kind: str, owner: str) -> Usage:
    """What an owner has, as an admission sees it without the head that it refuses."""
    seen: list[Usage] = []

    def refuse(usage: Usage) -> None:
        seen.append(Usage(usage.count - 1, usage.nbytes))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.create(kind, f"{namespace(owner)}.probe", b"", admit=refuse)
    return seen[0]


@pytest.mark.parametrize("calls", range(12))
def test_a_migration_that_was_killed_goes_on(calls: int) -> None:
    class Mortal(MemoryStateStore):
        left = calls

        def _live(self) -> None:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1

        def create(
            self,
            kind: str,
            head_id: str,
            value: bytes,
            *,
            size: int | None = None,
            admit: Admit | None = None,
        ) -> Head:
            self._live()
            return super().create(kind, head_id, value, size=size, admit=admit)

        def delete(
            self,
            kind: str,
            head_id: str,
            seen: Head | None = None,
            *,
            unused_since: float | None = None,
        ) -> None:
            self._live()
            super().delete(kind, head_id, seen, unused_since=unused_since)

    store = Mortal()
    store.left = 2
    for ident in ("a", "b"):
        store.create("dataset", ident, json.dumps({"id": ident}).encode())
    store.left = calls
    try:
        migrate(store, [("x.quantiles", 7)])
    except KeyboardInterrupt:
        store.left = 100
        migrate(store, [("x.quantiles", 7)])
    store.left = 100
    assert Namespaces(store, "dataset").ids(ADMIN) == ["a", "b"]
    assert len(store.list("dataset").heads) == 2
    assert Shares(store, "input").has(ADMIN, "x.quantiles")


def test_everything_is_handed_over_but_what_is_taken(store: MemoryStateStore) -> None:
    for kind in ("dataset", "view", "input"):
        Namespaces(store, kind).create("old", "same", {})
        Namespaces(store, kind).create("old", "own", {"kind": kind})
        Namespaces(store, kind).create("new", "same", {})
    Namespaces(store, "dataset").create("old", "taken", {"a": 1})
    Namespaces(store, "dataset").create("new", "taken", {"a": 2})
    assert adopt(store, "old", "new") == (6, ["dataset taken"])
    assert Namespaces(store, "dataset").ids("old") == ["taken"]
    assert Namespaces(store, "dataset").get("new", "own").value == {"kind": "dataset"}
    assert Namespaces(store, "view").ids("old") == []
