"""Auxiliary files: under their digest is their content, or nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from app.engine.ledger import Ledger
from app.errors import (
    BusyError,
    InputGoneError,
    QuotaExceededError,
    StorageFullError,
    TooLargeError,
)
from app.http.identity import Identity
from app.losses.input_store import KIND, InputStore, digest_of
from app.losses.inputs import Inputs
from app.state.base import StoreError
from app.state.blob_files import FileBlobStore
from app.state.quotas import AdmittedRecords, Limit, Quotas
from tests.app.state.memory import MemoryStateStore
from tests.app.state.memory_blobs import MemoryBlobStore

DATA = b"0.5\n0.9\n"
DIGEST = digest_of(DATA)


class Clock:
    now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobStore:
    return FileBlobStore(tmp_path / "blobs")


@pytest.fixture
def store(blobs: FileBlobStore) -> InputStore:
    return InputStore(blobs, 1)


def path_of(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "blobs" / "input").rglob(f"{DIGEST}.*")
    return path


def test_a_file_is_kept_until_nobody_uses_it(blobs: FileBlobStore) -> None:
    clock = Clock()
    store = InputStore(blobs, 1, clock)
    first = store.put("quantiles", DIGEST, DATA)
    assert first.created
    assert first.expires == clock.now + 86400
    clock.now += 80_000
    again = store.put("quantiles", DIGEST, DATA)
    assert not again.created
    assert again.expires == first.expires + 80_000
    for _ in range(3):
        clock.now += 86_000
        assert store.read("quantiles", DIGEST) == DATA
        clock.now += 86_000
        store.touch("quantiles", DIGEST)
    clock.now += 91_000
    assert not store.has("quantiles", DIGEST)
    for use in (store.touch, store.read):
        with pytest.raises(InputGoneError, match="there is no quantiles input"):
            use("quantiles", DIGEST)


def test_kinds_are_apart(store: InputStore) -> None:
    store.put("quantiles", DIGEST, DATA)
    with pytest.raises(InputGoneError):
        store.read("occurrence", DIGEST)


@pytest.mark.parametrize("size", range(8))
def test_a_changed_digit_is_a_problem_not_a_number(
    store: InputStore, tmp_path: Path, size: int
) -> None:
    store.put("quantiles", DIGEST, DATA)
    path = path_of(tmp_path)
    whole = path.read_bytes()
    at = whole.index(DATA) + size
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    with pytest.raises(InputGoneError, match="is damaged") as caught:
        store.read("quantiles", DIGEST)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("PUT it to /v1/inputs/quantiles")
    assert store.put("quantiles", DIGEST, DATA).created
    assert store.read("quantiles", DIGEST) == DATA


def test_an_input_of_another_digest_is_damaged(blobs: FileBlobStore, store: InputStore) -> None:
    blobs.put(KIND, f"{DIGEST}.quantiles", b"0.9\n0.9\n")
    with pytest.raises(InputGoneError, match="is damaged"):
        store.read("quantiles", DIGEST)


def test_one_whose_file_was_emptied(store: InputStore, tmp_path: Path) -> None:
    store.put("quantiles", DIGEST, DATA)
    path_of(tmp_path).write_bytes(b"")
    for use in (store.touch, store.read):
        with pytest.raises(InputGoneError, match="is damaged"):
            use("quantiles", DIGEST)
    assert store.put("quantiles", DIGEST, DATA).created


def test_one_that_is_removed(store: InputStore, tmp_path: Path) -> None:
    for _ in range(2):
        store.put("quantiles", DIGEST, DATA)
        store.put("occurrence", DIGEST, DATA)
        assert store.has("quantiles", DIGEST)
        store.remove("quantiles", DIGEST)
        store.remove("quantiles", DIGEST)
        assert not store.has("quantiles", DIGEST)
        with pytest.raises(InputGoneError):
            store.touch("quantiles", DIGEST)
        assert store.read("occurrence", DIGEST) == DATA
    path_of(tmp_path).write_bytes(b"damaged")
    assert not store.has("occurrence", DIGEST)
    store.remove("occurrence", DIGEST)
    assert not list((tmp_path / "blobs" / "input").rglob(f"{DIGEST}.*"))


def test_what_cannot_be_kept_is_said() -> None:
    store = InputStore(MemoryBlobStore(limit=4), 1)
    with pytest.raises(StorageFullError, match="cannot be stored"):
        store.put("quantiles", DIGEST, DATA)


def test_only_a_full_disk_is_called_full(blobs: FileBlobStore, tmp_path: Path) -> None:
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be read or written"):
        InputStore(blobs, 1).put("quantiles", DIGEST, DATA)


def test_an_owner_has_a_quota(blobs: FileBlobStore) -> None:
    records = MemoryStateStore()
    quotas = Quotas({KIND: Limit("inputs", 2, 11)})
    admitted = AdmittedRecords(records, quotas)
    ledger = Ledger(1 << 20, 1 << 20)
    inputs = Inputs(InputStore(blobs, 1), admitted, contextlib.nullcontext, ledger)
    alice, bob = (Identity(name, frozenset({"losses"})) for name in ("alice", "bob"))
    first = inputs.put(alice, "quantiles", b"0.1")
    inputs.put(alice, "quantiles", b"0.2")
    with pytest.raises(QuotaExceededError):
        inputs.put(alice, "quantiles", b"0.3")
    assert len(blobs.list(KIND).blobs) == 2
    # What she has already takes nothing, and the quota of another is another one.
    assert not inputs.put(alice, "quantiles", b"0.1").created
    for text in (b"0.1", b"0.3"):
        inputs.put(bob, "quantiles", text)
    with pytest.raises(QuotaExceededError):
        inputs.put(alice, "quantiles", b"0.3")
    inputs.delete(alice, "quantiles", first.digest)
    with pytest.raises(QuotaExceededError, match="11 bytes of inputs"):
        inputs.put(alice, "quantiles", b"0.3456789")
    inputs.put(alice, "quantiles", b"0.3")


def test_a_stored_file_is_charged_while_it_is_parsed_again(blobs: FileBlobStore) -> None:
    records = MemoryStateStore()
    alice = Identity("alice", frozenset({"losses"}))
    large = "".join(f"{event},{event},1\n" for event in range(1, 10_000)).encode()

    def inputs(ledger: Ledger) -> Inputs:
        return Inputs(InputStore(blobs, 1), records, contextlib.nullcontext, ledger)

    ample, ledger = Ledger(1 << 30, 1 << 30), Ledger(1 << 20, 1 << 19)
    few = inputs(ample).put(alice, "occurrence", b"1,1,1\n")
    many = inputs(ample).put(alice, "occurrence", large)
    assert inputs(ledger).occurrence(alice, few.digest, 1).periods == 1
    with pytest.raises(TooLargeError, match="for inputs"):
        inputs(ledger).occurrence(alice, many.digest, 9_999)
    assert ledger.held == ledger.purposes().get("cached", 0)
    assert ledger.peak > 0


def test_what_stays_parsed_is_charged_and_given_up_where_others_need_its_memory(
    blobs: FileBlobStore,
) -> None:
    ledger = Ledger(1 << 20, 1 << 20)
    inputs = Inputs(InputStore(blobs, 1), MemoryStateStore(), contextlib.nullcontext, ledger)
    alice = Identity("alice", frozenset({"losses"}))
    stored = [inputs.put(alice, "return_periods", f"{n}\n5\n".encode()).digest for n in (7, 8)]
    years = [inputs.parsed(alice, "return_periods", digest) for digest in stored]
    one, both = ledger.held // 2, ledger.held
    assert ledger.purposes().get("cached", 0) == both > 0
    assert inputs.parsed(alice, "return_periods", stored[1]) is years[1]
    with ledger.hold("bob", ledger.limit - one, "bodies"):
        assert ledger.purposes().get("cached", 0) == one
        assert inputs.parsed(alice, "return_periods", stored[1]) is years[1]
        with pytest.raises(BusyError):
            ledger.hold("carol", one + 1, "bodies")
    assert ledger.held == 0
    assert inputs.parsed(alice, "return_periods", stored[0]) is not years[0]


# -- data directories of earlier versions -------------------------------------------------


def test_a_file_to_be_stored_is_there_until_it_is_removed(store: InputStore) -> None:
    assert not store.has("quantiles", DIGEST)
    assert store.put("quantiles", DIGEST, DATA).created
    assert store.has("quantiles", DIGEST)
    store.remove("quantiles", DIGEST)
    assert not store.has("quantiles", DIGEST)
