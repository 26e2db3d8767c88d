"""Inputs of earlier versions: whatever fails at a start, the next one moves them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from app.errors import InputGoneError
from app.losses.earlier_inputs import DAMAGED, INPUTS, EarlierInputs
from app.losses.input_store import KIND, InputStore, digest_of
from app.state.base import StoreFullError
from app.state.blob_files import FileBlobStore
from app.state.blobs import BlobStore
from app.state.memory import MemoryStateStore
from app.state.memory_blobs import MemoryBlobStore
from app.state.ownership import ADMIN, Namespaces, migrate
from app.state.shares import Shares
from app.state.sweeper import blobs_without_owners

DATA = b"0.5\n0.9\n"
NAME = f"{digest_of(DATA)}.quantiles"
KINDS = ("quantiles", "occurrence")


class Service:
    """The stores of a service, and what a start and a sweep do to them."""

    def __init__(self, directory: Path, blobs: BlobStore | None = None) -> None:
        self.directory = directory
        self.heads = MemoryStateStore()
        self.use(blobs or FileBlobStore(directory / "blobs"))

    def use(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.files = InputStore(blobs, 1)
        lock = threading.Lock()
        self.owners = Shares(self.heads, KIND, lambda: lock)

    def start(self) -> None:
        EarlierInputs(self.directory, self.files, self.owners, KINDS).move()
        migrate(self.heads, self.files.sizes())

    def sweep(self) -> None:
        """Delete what nobody owns, however new it is."""
        later = time.time() + 3600
        blobs_without_owners(self.blobs, self.owners, KIND, 60, lambda: later)()

    def names(self) -> list[str]:
        return [blob.id for blob in self.blobs.list(KIND).blobs]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of an earlier version, with one input."""
    directory = tmp_path / INPUTS
    directory.mkdir()
    (directory / NAME).write_bytes(DATA)
    return directory


def test_what_is_whole_is_moved_to_admin_with_the_time_of_its_use(
    old: Path, tmp_path: Path
) -> None:
    recently = time.time() - 5000
    other = f"{digest_of(b'2')}.occurrence"
    expired = f"{digest_of(b'5')}.quantiles"
    (old / other).write_bytes(b"2")
    (old / expired).write_bytes(b"5")
    (old / ".tmpabc").write_bytes(b"half an upload")
    for path in old.iterdir():
        os.utime(path, (recently, recently))
    os.utime(old / expired, (0, 0))
    service = Service(tmp_path)
    for _ in range(2):
        service.start()
        assert not old.exists()
        assert not (tmp_path / DAMAGED).exists()
        assert sorted(service.names()) == sorted([NAME, other, expired])
    used = {blob.id: blob.used for blob in service.blobs.list(KIND).blobs}
    assert abs(used[NAME] - recently) < 1
    service.sweep()
    assert service.files.read("quantiles", digest_of(DATA)) == DATA
    assert service.files.read("occurrence", digest_of(b"2")) == b"2"
    with pytest.raises(InputGoneError):
        service.files.read("quantiles", digest_of(b"5"))
    assert Namespaces(service.heads, KIND).head(ADMIN, NAME).size == len(DATA)


def test_one_that_the_first_start_could_not_store_has_an_owner_after_the_second(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = f"{digest_of(b'1')}.quantiles"
    (old / small).write_bytes(b"1")
    service = Service(tmp_path, MemoryBlobStore(limit=4))
    service.start()
    # The small one did fit, and the other is said to stay.
    assert service.names() == [small]
    assert (old / NAME).read_bytes() == DATA
    printed = capsys.readouterr().out
    assert "stays for the next start" in printed
    assert NAME in printed
    service.use(FileBlobStore(tmp_path / "blobs"))
    service.start()
    service.sweep()
    assert service.names() == [NAME]
    assert service.owners.owners(NAME) == [ADMIN]
    assert not old.exists()


def test_one_whose_owner_could_not_be_stored_is_neither_lost_nor_left_without(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path)
    migrate(service.heads, ())
    with monkeypatch.context() as patch:

        def full(*_args: object, **_options: object) -> None:
            raise StoreFullError("the disk is full")

        patch.setattr(service.heads, "create", full)
        service.start()
        service.sweep()
    assert (old / NAME).read_bytes() == DATA
    service.start()
    service.sweep()
    assert service.files.read("quantiles", digest_of(DATA)) == DATA


@pytest.mark.parametrize("step", ["content", "owner", "time", "removal"])
def test_one_that_a_kill_interrupted_is_moved_by_the_next_start(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    service = Service(tmp_path)
    migrate(service.heads, ())
    places = {
        "content": (InputStore, "put"),
        "owner": (Namespaces, "create"),
        "time": (InputStore, "touch_at"),
        "removal": (Path, "unlink"),
    }
    real = Path.unlink
    with monkeypatch.context() as patch:

        def die(*arguments: object, **_options: object) -> None:
            if arguments[0] == old / NAME or step != "removal":
                raise KeyboardInterrupt
            real(arguments[0])  # type: ignore[arg-type]

        patch.setattr(*places[step], die)
        with pytest.raises(KeyboardInterrupt):
            service.start()
    service.sweep()
    service.start()
    service.sweep()
    assert service.files.read("quantiles", digest_of(DATA)) == DATA
    assert service.owners.owners(NAME) == [ADMIN]
    assert not old.exists()


def test_one_that_a_client_has_stored_since_belongs_to_both(old: Path, tmp_path: Path) -> None:
    service = Service(tmp_path)
    Namespaces(service.heads, KIND).create("alice", NAME, {}, len(DATA))
    service.files.put("quantiles", digest_of(DATA), DATA)
    service.start()
    assert sorted(service.owners.owners(NAME)) == [ADMIN, "alice"]
    assert not old.exists()


def test_damaged_and_foreign_files_are_put_aside_and_reported_at_each_start(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = f"{digest_of(b'3')}.quantiles"
    foreign = f"{digest_of(b'4')}.unknown"
    contents = {changed: b"9", foreign: b"4", "notes": b"?"}
    for name, data in contents.items():
        (old / name).write_bytes(data)
    (old / f"{digest_of(b'6')}.quantiles").mkdir()
    service = Service(tmp_path)
    aside = tmp_path / DAMAGED
    for _ in range(2):
        service.start()
        assert not old.exists()
        assert service.names() == [NAME]
        assert {name: (aside / name).read_bytes() for name in contents} == contents
        assert "count=4" in capsys.readouterr().out
    # A second one of the name does not replace the first.
    old.mkdir()
    (old / changed).write_bytes(b"8")
    service.start()
    assert (aside / changed).read_bytes() == b"9"
    assert (aside / f"{changed}.1").read_bytes() == b"8"


def test_workers_that_start_together_move_each_file_once(old: Path, tmp_path: Path) -> None:
    (old / f"{digest_of(b'damaged')}.quantiles").write_bytes(b"9")
    for number in range(20):
        data = str(number).encode()
        (old / f"{digest_of(data)}.quantiles").write_bytes(data)
    service = Service(tmp_path)
    begin = threading.Barrier(4)

    def start() -> None:
        begin.wait()
        service.start()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not old.exists()
    assert len(service.names()) == 21
    assert all(service.owners.owners(name) == [ADMIN] for name in service.names())
    assert len(list((tmp_path / DAMAGED).iterdir())) == 1


def test_without_earlier_inputs_nothing_is_done(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.start()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blobs"]
