"""What a power failure leaves of files that were acknowledged, and of those that were not."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from app.losses.outputs import Outputs
from app.state.base import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError
from app.state.blob_files import FileBlobStore
from app.state.durable import (
    as_store_errors,
    make_directories,
    read_into,
    sync_directory,
    write_at,
)
from app.state.token_keys import FILE, load_keys
from tests.app.state.blob_suite import every, pattern
from tests.journal import Crash, Journal
from tests.scale import examples

TRIES = examples(3)
STEPS = (
    ("put", "aa", 700),
    ("append", "run", 5000),
    ("append", "run", 1),
    ("append", "run", 1_100_000),
    ("delete", "aa", 0),
    ("trim", "run", 5001),
    ("append", "run", 700),
    ("put", "ab", 0),
    ("put", "aa", 3000),
    ("delete", "run", 0),
    ("append", "run", 10),
    ("put", "ab", 0),
    ("append", "run", 3000),
)
State = dict[str, bytes]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Journal:
    root = tmp_path / "root"
    root.mkdir()
    return Journal(monkeypatch, root)


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "crashes"
    path.mkdir()
    return path


def done(state: State, verb: str, blob_id: str, size: int) -> State:
    """The blobs after a step."""
    if verb == "delete":
        return {name: data for name, data in state.items() if name != blob_id}
    if verb == "trim":
        return {**state, blob_id: state[blob_id][:size]}
    return {
        **state,
        blob_id: state.get(blob_id, b"")[: 0 if verb == "put" else None] + pattern(size),
    }


def step(store: FileBlobStore, state: State, verb: str, blob_id: str, size: int) -> None:
    if verb == "put":
        store.put("blob", blob_id, pattern(size))
    elif verb == "append":
        store.append("blob", blob_id, len(state.get(blob_id, b"")), pattern(size))
    elif verb == "trim":
        store.trim("blob", blob_id, size)
    else:
        store.delete("blob", blob_id)


def test_blobs(journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileBlobStore(journal.root / "data" / "blobs")
    states: list[State] = [{}]
    for k, (verb, blob_id, size) in enumerate(STEPS):
        states.append(done(states[-1], verb, blob_id, size))
        journal.say(("begin", k))
        step(store, states[k], verb, blob_id, size)
        journal.say(("done", k))
    monkeypatch.undo()
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)  # the disks made here need not last
    seen = set()
    for crash in journal.crashes(where, TRIES):
        before = sum(what == "done" for what, _ in crash.said)
        allowed = [states[before]]
        if crash.said and crash.said[-1][0] == "begin":
            allowed.append(states[before + 1])
        found = blobs_of(crash)
        assert found in allowed, crash.how
        seen.add((before, found == allowed[-1]))
    # Both outcomes of what was under way are among the crashes.
    assert len(seen) > 1.5 * len(STEPS)


def blobs_of(crash: Crash) -> State:
    with contextlib.closing(FileBlobStore(crash.path / "data" / "blobs")) as store:
        found = {blob.id: store.range("blob", blob.id) for blob in every(store, "blob")}
        # It can be written on, too.
        for blob_id, data in list(found.items())[: "random" not in crash.how]:
            assert store.append("blob", blob_id, len(data), b"more") == len(data) + 4
            assert store.range("blob", blob_id, len(data)) == b"more"
    return found


def test_what_a_writer_committed(
    journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileBlobStore(journal.root / "blobs")
    writer = store.writer("blob", "aa", 0)
    data = b""
    for k in range(6):
        data += pattern(700 * k)
        writer.write(pattern(700 * k)[:100])
        writer.write(pattern(700 * k)[100:])
        if k % 2:
            writer.commit()
            journal.say(len(data))
    writer.close()
    monkeypatch.undo()
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    for crash in journal.crashes(where, TRIES):
        with contextlib.closing(FileBlobStore(crash.path / "blobs")) as left:
            committed = crash.said[-1] if crash.said else 0
            found = left.range("blob", "aa") if committed else b""
            assert found == data[: len(found)], crash.how
            assert len(found) >= committed, crash.how


def test_a_damaged_blob_that_is_put_again(
    journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileBlobStore(journal.root)
    store.put("blob", "aa", b"0.5")
    path = journal.root / "blob" / "aa" / "aa"
    damaged = os.open(path, os.O_RDWR)
    os.pwrite(damaged, b"9", path.stat().st_size - 1)
    os.fsync(damaged)
    os.close(damaged)
    journal.say("begin")
    assert store.put("blob", "aa", b"0.5")
    journal.say("done")
    monkeypatch.undo()
    for crash in journal.crashes(where, TRIES):
        if "begin" not in crash.said:
            continue
        with contextlib.closing(FileBlobStore(crash.path)) as left:
            try:
                assert left.range("blob", "aa") == b"0.5"
            except StoreDamagedError:
                assert "done" not in crash.said, crash.how


def test_token_keys(journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = journal.root / "new" / "data"
    (key,) = load_keys(directory)
    journal.say("loaded")
    monkeypatch.undo()
    for crash in journal.crashes(where, TRIES):
        (found,) = load_keys(crash.path / "new" / "data")
        assert found == key or not crash.said, crash.how
        mode = (crash.path / "new" / "data" / FILE).stat().st_mode
        assert mode & 0o777 == 0o600


def test_tables_of_the_command(
    journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = journal.root / "melt.csv"
    for content in (b"old" * 400, b"newer" * 4000):
        with Outputs() as outputs:
            output = outputs.open(target)
            output.write(content[:700])
            output.write(content[700:])
        journal.say(content)
    monkeypatch.undo()
    for crash in journal.crashes(where, TRIES):
        path = crash.path / "melt.csv"
        found = path.read_bytes() if path.exists() else None
        last = crash.said[-1] if crash.said else None
        assert found in {last, b"old" * 400 if last is None else b"newer" * 4000}, crash.how


def test_a_journal_notices_what_is_not_synced(
    journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness itself: each sync that is left out shows."""

    def write(skipped: int) -> None:
        calls = iter(range(10))
        monkeypatch.setattr(
            os, "fsync", lambda fd: None if next(calls) == skipped else journal.fsync(fd)
        )
        load_keys(journal.root / f"data{skipped}")
        journal.say(skipped)

    for skipped in range(2):
        write(skipped)
    monkeypatch.undo()
    lost = set()
    for crash in journal.crashes(where, TRIES):
        for skipped in crash.said:
            path = crash.path / f"data{skipped}" / FILE
            if not path.exists() or len(path.read_bytes()) < 60:
                lost.add(skipped)
    assert lost == {0, 1}


def test_a_journal_notices_what_it_did_not_see(
    journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (journal.root / "unseen").write_bytes(b"x")
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="not recorded"):
        next(journal.crashes(where, 1))


def test_many_buffers_are_written_and_read(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    parts = [bytes([k % 251]) * (k % 5) for k in range(1500)]
    write_at(descriptor, parts, 7)
    assert (tmp_path / "file").read_bytes() == bytes(7) + b"".join(parts)
    buffers = [bytearray(len(part)) for part in parts]
    assert read_into(descriptor, buffers, 7)
    assert buffers == parts
    assert not read_into(descriptor, [*buffers, bytearray(1)], 7)
    os.close(descriptor)


def test_short_writes_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", lambda fd, b, at: os.pwrite(fd, bytes(b[0])[:3], at))
        patch.setattr(os, "preadv", _read_some)
        write_at(descriptor, [b"abcdefgh", b"", b"ij"], 0)
        found = [bytearray(1), bytearray(9)]
        assert read_into(descriptor, found, 0)
    os.close(descriptor)
    assert b"".join(found) == b"abcdefghij"


def _read_some(descriptor: int, buffers: list[memoryview], at: int) -> int:
    some = os.pread(descriptor, min(3, len(buffers[0])), at)
    buffers[0][: len(some)] = some
    return len(some)


def test_directories_are_made_once(tmp_path: Path) -> None:
    make_directories(tmp_path / "a" / "b", 0o700)
    make_directories(tmp_path / "a" / "b", 0o700)
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(OSError, match="No such file"):
        sync_directory(tmp_path / "none")


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EROFS, StoreReadOnlyError),
        (errno.EACCES, StoreReadOnlyError),
        (errno.EIO, StoreDamagedError),
        (errno.ENAMETOOLONG, StoreError),
    ],
)
def test_errors_of_the_system_have_a_meaning(
    number: int, error: type[StoreError], tmp_path: Path
) -> None:
    with pytest.raises(StoreError) as caught, as_store_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is error
    assert caught.value.path == tmp_path
