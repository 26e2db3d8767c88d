"""Content that several owners share: quotas, races, and processes that are killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.state.base import RecordMissingError, StoreBusyError, Usage
from app.state.blob_files import FileBlobStore
from app.state.blobs import BlobMissingError
from app.state.ownership import ADMIN, Namespaces, adopt, namespace
from app.state.shares import Shares
from app.state.sqlite import SqliteStateStore
from app.state.storage import SHARING, STATE, open_storage
from app.state.sweeper import blobs_without_owners
from app.state.turns import Turn, Turns
from tests.app.state.memory import MemoryStateStore
from tests.server_process import ROOT

KIND = "input"


@dataclass
class Content:
    """One content."""

    stored: bool = False

    def store(self) -> None:
        self.stored = True

    def is_stored(self) -> bool:
        return self.stored

    def remove(self) -> None:
        self.stored = False


def put(shares: Shares, owner: str, ident: str, size: int, content: Content | Blob) -> None:
    """Store a content, and add an owner."""
    store, is_stored, remove = content.store, content.is_stored, content.remove
    shares.put(owner, ident, size, store=store, is_stored=is_stored, remove=remove)


@dataclass
class Held:
    """A lock that says whether it is held."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> threading.Lock:
        return self.lock


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


def shares_of(store: MemoryStateStore, turn: Turn | None = None) -> Shares:
    return Shares(store, KIND, turn or Held())


def test_the_last_owner_takes_the_content_along(store: MemoryStateStore) -> None:
    shares, content = shares_of(store), Content()
    put(shares, "alice", "x", 1, content)
    put(shares, "alice", "x", 1, content)
    put(shares, "bob", "x", 1, content)
    assert set(shares.owners("x")) == {"alice", "bob"}
    shares.delete("alice", "x", content.remove)
    assert (content.stored, shares.has("alice", "x"), shares.has("bob", "x")) == (True, False, True)
    with pytest.raises(RecordMissingError):
        shares.delete("alice", "x", content.remove, everyone=False)
    shares.delete("bob", "x", content.remove)
    assert not content.stored
    assert shares.owners("x") == []


def test_content_that_is_deleted_before_its_owner_is_noted_is_stored_again(
    store: MemoryStateStore,
) -> None:
    content, lock = Content(), threading.Lock()

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        # Another owner deletes the content just before each turn of this one.
        content.remove()
        with lock:
            yield

    put(shares_of(store, turn), "alice", "x", 1, content)
    assert content.stored


def test_owners_and_content_change_within_a_turn() -> None:
    turn, content = Held(), Content()
    created: list[bool] = []
    removed: list[bool] = []

    class Watched(MemoryStateStore):
        def create(self, *args: object, **options: object) -> object:  # type: ignore[override]
            created.append(turn.lock.locked())
            return super().create(*args, **options)  # type: ignore[arg-type]

    def remove() -> None:
        removed.append(turn.lock.locked())

    shares = shares_of(Watched(), turn)
    put(shares, "alice", "x", 1, content)
    shares.delete("alice", "x", remove)
    shares.sweep("x", remove)
    assert (created, removed) == ([True], [True, True])


def test_owners_that_race_lose_nothing(tmp_path: Path) -> None:
    """Whoever has put last still has the content when all is quiet, and is never without it."""
    store, blobs = MemoryStateStore(), FileBlobStore(tmp_path / "blobs")
    turns = Turns(tmp_path / SHARING, 10.0)
    shares = Shares(store, KIND, turns.turn)

    def run(owner: str, *, keep: bool) -> None:
        for round_ in range(25):
            put(shares, owner, "x", 7, Blob(blobs))
            assert blobs.range(KIND, "x") == b"content"
            if round_ < 24 or not keep:
                shares.delete(owner, "x", Blob(blobs).remove)

    for _ in range(4):
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(run, f"owner {n}", keep=n == 0) for n in range(3)]
            for done in runs:
                done.result()
        assert shares.owners("x") == ["owner 0"]
        assert blobs.range(KIND, "x") == b"content"
        shares.delete("owner 0", "x", Blob(blobs).remove)
    turns.close()


@dataclass
class Blob:
    """The content, in a store of blobs."""

    blobs: FileBlobStore

    def store(self) -> None:
        self.blobs.put(KIND, "x", b"content")

    def is_stored(self) -> bool:
        try:
            self.blobs.info(KIND, "x")
        except BlobMissingError:
            return False
        return True

    def remove(self) -> None:
        with contextlib.suppress(BlobMissingError):
            self.blobs.delete(KIND, "x")


def test_content_that_cannot_be_stored_is_not_owned(store: MemoryStateStore) -> None:
    class Failing(Content):
        def store(self) -> None:
            raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it is the one above
        put(shares_of(store), "alice", "x", 1, Failing())
    assert not shares_of(store).has("alice", "x")


@pytest.mark.parametrize("others", [False, True])
def test_content_of_an_owner_who_is_refused_stays_only_for_others(*, others: bool) -> None:
    class Refusing(MemoryStateStore):
        refusing = False

        def create(self, *args: object, **options: object) -> object:  # type: ignore[override]
            if self.refusing:
                raise StoreBusyError("refused")
            return super().create(*args, **options)  # type: ignore[arg-type]

    store, content = Refusing(), Content()
    if others:
        put(shares_of(store), "bob", "x", 1, content)
    store.refusing = True
    with pytest.raises(StoreBusyError):
        put(shares_of(store), "alice", "x", 1, content)
    assert content.stored == others


def test_everyone_is_removed_by_who_is_none_of_them(store: MemoryStateStore) -> None:
    shares, content = shares_of(store), Content()
    for owner in ("alice", "bob"):
        put(shares, owner, "x", 1, content)
    put(shares, ADMIN, "x", 1, content)
    shares.delete(ADMIN, "x", content.remove, everyone=True)
    assert (content.stored, set(shares.owners("x"))) == (True, {"alice", "bob"})
    shares.delete(ADMIN, "x", content.remove, everyone=True)
    assert not content.stored
    with pytest.raises(RecordMissingError):
        shares.delete(ADMIN, "x", content.remove, everyone=True)


def test_content_counts_with_its_size(store: MemoryStateStore) -> None:
    put(shares_of(store), "alice", "x", 700, Content())
    assert usage(store, "alice") == Usage(1, 700)
    turn = Held()
    adopt(store, "alice", "bob", turn)
    assert usage(store, "alice") == Usage()
    assert usage(store, "bob") == Usage(1, 700)


def usage(store: MemoryStateStore | SqliteStateStore, owner: str) -> Usage:
    """What an owner has, as an admission sees it without the record that it refuses."""
    seen: list[Usage] = []

    def refuse(usage: Usage) -> None:
        seen.append(Usage(usage.count - 1, usage.nbytes))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.create(KIND, f"{namespace(owner)}.probe", b"", admit=refuse)
    return seen[0]


def test_whoever_waits_too_long_for_a_turn_is_told_to_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.state.storage._WAIT", 0.01)
    first, second = open_storage(tmp_path, 0), open_storage(tmp_path, 0)
    busy = pytest.raises(StoreBusyError, match="others store or delete for too long")
    with first.turn(), busy, second.turn():
        raise AssertionError
    with second.turn():
        pass
    first.close()
    second.close()


# -- kills ------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from pathlib import Path
from app.state.blob_files import FileBlobStore
from app.state.shares import Shares
from app.state.sqlite import SqliteStateStore
from app.state.storage import SHARING
from app.state.turns import Turns
from tests.app.state.test_shares import KIND, Blob, put

directory, action, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
records, blobs = SqliteStateStore(directory / "state.sqlite"), FileBlobStore(directory / "blobs")
shares = Shares(records, KIND, Turns(directory / SHARING, 10.0).turn)
calls = 0

def mortal(function):
    def call(*args, **options):
        global calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **options)
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

for store, names in ((records, ("create", "delete")), (blobs, ("put", "delete"))):
    for name in names:
        setattr(store, name, mortal(getattr(store, name)))
if action == "put":
    put(shares, "alice", "x", 7, Blob(blobs))
else:
    shares.delete("alice", "x", Blob(blobs).remove)
print("done")
"""


@pytest.mark.parametrize("action", ["put", "delete"])
def test_a_kill_at_any_step_leaves_no_owner_without_content(tmp_path: Path, action: str) -> None:
    ended = []
    for step in range(1, 6):
        directory = tmp_path / str(step)
        directory.mkdir()
        turns = Turns(directory / SHARING, 10.0)
        records = SqliteStateStore(directory / STATE)
        blobs = FileBlobStore(directory / "blobs")
        shares = Shares(records, KIND, turns.turn)
        if action == "delete":
            put(shares, "alice", "x", 7, Blob(blobs))
        command = [sys.executable, "-c", _KILLED, str(directory), action, str(step)]
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=False)
        ended.append(done.returncode)
        assert done.returncode == (0 if done.stdout else -signal.SIGKILL)
        owned, stored = shares.has("alice", "x"), Blob(blobs).is_stored()
        assert stored or not owned
        assert usage(records, "alice") == (Usage(1, 7) if owned else Usage())
        if done.returncode == 0:
            assert owned == stored == (action == "put")
        # The lock of the killed process is free, and what it left is removed or used again.
        blobs_without_owners(blobs, shares, KIND, -100)()
        assert Blob(blobs).is_stored() == owned
        put(shares, "bob", "x", 7, Blob(blobs))
        assert Blob(blobs).is_stored()
        for store in (records, blobs, turns):
            store.close()
    assert ended == [-signal.SIGKILL] * 4 + [0]


def test_the_sweeper_spares_what_has_an_owner_or_is_new(tmp_path: Path) -> None:
    records, blobs = MemoryStateStore(), FileBlobStore(tmp_path)
    shares = shares_of(records)
    for name in ("a", "b"):
        blobs.put(KIND, name, b"content")
    blobs.put("partial", "p", b"content")
    Namespaces(records, KIND).create("alice", "a", {}, 7)
    now = time.time()
    blobs_without_owners(blobs, shares, KIND, 50, lambda: now + 40)()
    assert [blob.id for blob in blobs.list(KIND).blobs] == ["a", "b"]
    blobs_without_owners(blobs, shares, KIND, 50, lambda: now + 60)()
    assert [blob.id for blob in blobs.list(KIND).blobs] == ["a"]
    assert blobs.range("partial", "p") == b"content"
