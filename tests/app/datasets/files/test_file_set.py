"""The files of a dataset stay what they were, or say what became of them."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets.files.file_set import FileSet, ReadFailedError
from app.datasets.files.fingerprints import fingerprint, prefix_fingerprint
from app.datasets.files.identity import CLOCK_STEP, SAMPLE
from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.errors import DataChangedError
from tests.descriptors import files_open

SIZES = (10_000, 0, 1, 4096)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(5)
    made = [tmp_path / f"part_{k}.raw" for k in range(len(SIZES))]
    for path, size in zip(made, SIZES, strict=True):
        path.write_bytes(rng.bytes(size))
    return made


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[Callable[[Path], int]]:
    yield Roots([tmp_path]).open
    assert not files_open(tmp_path)


OpenFile = Callable[[Path], int]


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def touch(path: Path) -> None:
    os.utime(path)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"!")


def replace(path: Path) -> None:
    """With a copy that is the same in all but its inode."""
    copy = path.with_suffix(".copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def remove(path: Path) -> None:
    path.unlink()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (shrink, "shrank"),
    (empty, "shrank"),
    (grow, "grew"),
    (touch, "was modified"),
    (overwrite, "was modified"),
    (replace, "was replaced"),
    (loop, "was replaced"),
    (remove, "was removed"),
]


def test_names_sizes_and_bytes(paths: list[Path], open_file: OpenFile) -> None:
    with FileSet(paths, open_file) as files:
        assert [(i.name, i.size) for i in files.infos] == [
            (f"part_{k}.raw", size) for k, size in enumerate(SIZES)
        ]
        for index, path in enumerate(paths):
            whole = path.read_bytes()
            size = len(whole)
            for start, stop in ((0, size), (0, size + 99), (5, 50), (size, size + 1), (9, 3)):
                assert files.read(index, start, stop) == whole[start:stop]
        files.verify()


@pytest.mark.parametrize(("change", "what"), CHANGES)
def test_changes_are_noticed(
    paths: list[Path], open_file: OpenFile, change: Callable[[Path], None], what: str
) -> None:
    with FileSet(paths, open_file) as files:
        change(paths[0])
        for look in (files.verify, lambda: files.read(0, 0, 100), lambda: fingerprint(files)):
            with pytest.raises(DataChangedError, match=what) as caught:
                look()
            assert caught.value.members == {"file": "part_0.raw", "change": what}
            assert str(paths[0].parent) not in str(caught.value)
        assert files.read(3, 0, 9) == paths[3].read_bytes()[:9]


def rewrite(path: Path, at: int, octets: bytes) -> None:
    """In place, with the modification time set back."""
    known = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(octets)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert path.stat().st_mtime_ns == known.st_mtime_ns
    assert path.stat().st_size == known.st_size


LONG = 5 * SAMPLE


@pytest.mark.parametrize("at", [0, SAMPLE - 1, LONG - SAMPLE, LONG - 1])
@pytest.mark.parametrize("look", ["verify", "read", "use", "fingerprint"])
def test_a_time_that_was_set_back_hides_no_change_of_the_ends(
    tmp_path: Path, open_file: OpenFile, at: int, look: str
) -> None:
    path = tmp_path / "x.raw"
    path.write_bytes(bytes(LONG))

    def use() -> None:
        with files.use(0):
            pass

    with FileSet([path], open_file) as files:
        assert files.read(0, at, at + 1) == b"\0"
        rewrite(path, at, b"!")
        looks: dict[str, Callable[[], object]] = {
            "verify": files.verify,
            "read": lambda: files.read(0, SAMPLE, SAMPLE + 1),
            "use": use,
            "fingerprint": lambda: fingerprint(files),
        }
        for _ in range(2):
            with pytest.raises(DataChangedError, match="was modified"):
                looks[look]()
        rewrite(path, at, b"\0")
        files.verify()


def test_a_change_between_the_ends_with_the_time_set_back_goes_unnoticed(
    tmp_path: Path, open_file: OpenFile
) -> None:
    """As documented: were this to change, the documents would have to."""
    path = tmp_path / "x.raw"
    path.write_bytes(bytes(LONG))
    with FileSet([path], open_file) as files:
        before = fingerprint(files)
        rewrite(path, 2 * SAMPLE, b"!")
        assert files.read(0, 2 * SAMPLE, 2 * SAMPLE + 1) == b"!"
        assert fingerprint(files) == before


def test_what_changes_no_data_is_no_change(paths: list[Path], open_file: OpenFile) -> None:
    with FileSet(paths, open_file) as files:
        contents = [files.read(k, 0, SIZES[k]) for k in range(len(paths))]
        for step in (
            lambda path: path.chmod(0o600),
            lambda path: path.with_suffix(".link").hardlink_to(path),
            lambda path: path.with_suffix(".link").unlink(),
            lambda path: os.utime(path, ns=(5, path.stat().st_mtime_ns)),
            lambda path: os.chown(path, os.getuid(), os.getgid()),
        ):
            for path in paths:
                step(path)
            files.verify()
            assert [files.read(k, 0, SIZES[k]) for k in range(len(paths))] == contents


def test_contents_are_compared_once_per_change_time(
    paths: list[Path], open_file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileSet(paths, open_file) as files:
        files.read(0, 0, 1)
        paths[0].chmod(0o600)
        time.sleep(2 * CLOCK_STEP)  # a younger time is not kept
        reads: list[int] = []
        whole = os.pread

        def count(descriptor: int, size: int, at: int) -> bytes:
            reads.append(size)
            return whole(descriptor, size, at)

        monkeypatch.setattr(os, "pread", count)
        for _ in range(5):
            files.verify()
        assert reads == [SIZES[0]]


def test_files_that_were_never_used_are_not_read_to_be_verified(
    paths: list[Path], open_file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileSet(paths, open_file) as files:
        for path in paths:
            path.chmod(0o600)
        with monkeypatch.context() as patch:
            patch.delattr(os, "pread")
            files.verify()
        assert files.read(0, 0, 5) == paths[0].read_bytes()[:5]
        rewrite(paths[0], 7, b"!")
        with pytest.raises(DataChangedError):
            files.verify()


def test_changes_in_one_tick_of_the_clock_are_noticed(tmp_path: Path, open_file: OpenFile) -> None:
    path = tmp_path / "x.raw"
    path.write_bytes(bytes(1000))
    with FileSet([path], open_file) as files:
        files.read(0, 0, 1)
        for k in range(50):
            path.chmod(0o600 + k % 2)
            files.verify()
            rewrite(path, 5, b"!")
            with pytest.raises(DataChangedError):
                files.verify()
            rewrite(path, 5, b"\0")
            files.verify()


def test_the_prefix_of_a_growing_file_is_compared(tmp_path: Path, open_file: OpenFile) -> None:
    path = tmp_path / "x.raw"
    path.write_bytes(bytes(1000))
    with FileSet([path], open_file, growing=True) as files:
        assert files.read(0, 0, 2000) == bytes(1000)
        for size in (1004, 1008):
            grow(path)
            files.verify()
            assert files.refresh()
            assert files.size(0) == size
        overwrite(path)
        for look in (files.verify, files.refresh, lambda: files.read(0, 0, 1)):
            with pytest.raises(DataChangedError, match="was modified"):
                look()
        rewrite(path, 0, b"\0")
        grow(path)
        assert files.refresh()
        with path.open("r+b") as file:
            file.seek(1005)
            file.write(b"!")
        with pytest.raises(DataChangedError, match="was modified"):
            files.verify()


def test_a_directory_that_is_exchanged_is_noticed(paths: list[Path], open_file: OpenFile) -> None:
    folder = paths[0].parent / "folder"
    folder.mkdir()
    inside = folder / "x.raw"
    shutil.copy2(paths[0], inside)
    with FileSet([inside], open_file) as files:
        folder.rename(folder.with_name("old"))
        shutil.copytree(folder.with_name("old"), folder)
        with pytest.raises(DataChangedError, match="replaced"):
            files.verify()


def test_a_change_right_before_opening_does_not_hide_the_next(
    paths: list[Path], open_file: OpenFile
) -> None:
    for k in range(20):
        overwrite(paths[0])
        with FileSet(paths[:1], open_file) as files:
            with paths[0].open("r+b") as file:
                file.write(b"%d" % (k % 10))
            with pytest.raises(DataChangedError):
                files.verify()


def test_it_waits_until_the_clock_that_stamps_files_has_gone_on(
    paths: list[Path], open_file: OpenFile
) -> None:
    touch(paths[0])
    with FileSet(paths[:1], open_file):
        assert time.time() - paths[0].stat().st_mtime >= 0.02


def test_the_same_numbers_on_another_device_are_another_file(
    paths: list[Path], open_file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(path: Path | int) -> os.stat_result:
        known = real(path)
        numbers = list(known)
        numbers[stat.ST_DEV] += 1
        return os.stat_result(numbers, {"st_mtime_ns": known.st_mtime_ns})

    real = os.stat
    with FileSet(paths, open_file) as files:
        files.verify()
        monkeypatch.setattr(os, "stat", elsewhere)
        with pytest.raises(DataChangedError, match="was replaced"):
            files.verify()
        monkeypatch.undo()
        monkeypatch.setattr(os, "fstat", elsewhere)
        with pytest.raises(DataChangedError, match="was replaced"):
            files.read(0, 0, 1)
        monkeypatch.undo()
        files.verify()


def test_times_in_the_future_do_not_make_it_wait(
    paths: list[Path], open_file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(paths[0], (2**32, 2**32))
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with FileSet(paths[:1], open_file) as files:
        files.verify()
    assert all(wait < 1 for wait in waits)


def test_where_files_are_and_what_they_depend_on(tmp_path: Path, open_file: OpenFile) -> None:
    """Only what all nodes see is read by the workers of a cluster."""
    paths = [tmp_path / folder / "a" for folder in ("one", "two", "three")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(b"1")
    one, two, three = (path.parent for path in paths)
    with FileSet(paths[:2], open_file) as files:
        assert files.are_below([one, two])
        assert not files.are_below([one])
        assert not files.are_below([two, three])
        assert not files.are_below([])
    with FileSet(paths[:1], open_file) as files:
        files.beside["dark"] = FileSet(paths[2:], open_file)
        assert not files.are_below([one])
        assert files.are_below([one, three])


def test_a_file_that_shrinks_while_it_is_read_is_told(
    paths: list[Path], open_file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileSet(paths, open_file) as files:
        monkeypatch.setattr(os, "pread", lambda *_: b"")
        with pytest.raises(DataChangedError, match="shrank"):
            files.read(0, 0, 10)
        monkeypatch.undo()


def test_a_set_that_does_not_grow_is_not_refreshed(paths: list[Path], open_file: OpenFile) -> None:
    with FileSet(paths, open_file) as files:
        assert not files.refresh()
        grow(paths[3])
        with pytest.raises(DataChangedError, match="grew"):
            files.refresh()
        assert files.infos[3].size == 4096


def test_the_last_file_of_a_growing_set_may_grow(paths: list[Path], open_file: OpenFile) -> None:
    with FileSet(paths, open_file, growing=True) as files:
        assert not files.refresh()
        grow(paths[3])
        files.verify()
        assert files.infos[3].size == 4096
        assert len(files.read(3, 0, 9999)) == 4096
        assert files.refresh()
        assert not files.refresh()
        assert files.infos[3].size == 4100
        assert files.read(3, 4090, 9999) == paths[3].read_bytes()[4090:]
        shrink(paths[3])
        with pytest.raises(DataChangedError, match="shrank"):
            files.verify()
    for change, what in CHANGES:
        if change in {shrink, empty, replace, loop, remove}:
            continue
        with FileSet(paths, open_file, growing=True) as files:
            change(paths[3])
            files.verify()
            change(paths[0])
            with pytest.raises(DataChangedError, match=what):
                files.verify()


def test_what_cannot_be_opened(paths: list[Path], open_file: OpenFile, tmp_path: Path) -> None:
    with pytest.raises(FileMissingError):
        FileSet([*paths, tmp_path / "nothing"], open_file)
    with pytest.raises(PathRefusedError):
        FileSet([*paths, tmp_path], open_file)
    for bad in ([], [Path("part_0.raw")]):
        with pytest.raises(ValueError, match="absolute"):
            FileSet(bad, open_file)


def test_the_last_owner_closes(paths: list[Path], open_file: OpenFile, tmp_path: Path) -> None:
    files = FileSet(paths, open_file)
    assert files_open(tmp_path) == len(paths)
    other = files.share()
    files.close()
    assert other.read(0, 0, 3) == paths[0].read_bytes()[:3]
    with other.use(0) as descriptor:
        other.close()
        # What is in use is closed when it no longer is.
        assert os.pread(descriptor, 3, 0) == paths[0].read_bytes()[:3]
        assert files_open(tmp_path) == 1
    assert not files_open(tmp_path)
    other.close()
    for call in (files.share, lambda: files.read(0, 0, 1)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_many_files_are_not_open_at_once(tmp_path: Path, open_file: OpenFile) -> None:
    paths = [tmp_path / f"{k}.raw" for k in range(2000)]
    for k, path in enumerate(paths):
        path.write_bytes(b"%d" % k)
    with FileSet(paths, open_file, max_open=10) as files:
        assert files_open(tmp_path) == 10
        for k in (0, 1999, 5, 0, 1000):
            assert files.read(k, 0, 9) == b"%d" % k
        assert files_open(tmp_path) == 10
        files.verify()
        assert len(fingerprint(files)) == 8
        replace(paths[7])
        with pytest.raises(DataChangedError, match="was replaced"):
            files.read(7, 0, 9)
        paths[8].unlink()
        with pytest.raises(DataChangedError, match="was removed"):
            files.read(8, 0, 9)
        paths[9].unlink()
        paths[9].mkdir()
        with pytest.raises(DataChangedError, match="was replaced"):
            files.read(9, 0, 9)


def test_threads_share_few_descriptors(tmp_path: Path, open_file: OpenFile) -> None:
    paths = [tmp_path / f"{k}.raw" for k in range(40)]
    for k, path in enumerate(paths):
        path.write_bytes(b"%d" % k * 1000)
    wrong: list[int] = []
    with FileSet(paths, open_file, max_open=3) as files:

        def read(seed: int) -> None:
            some = np.random.default_rng(seed).integers(0, 40, 300).tolist()
            wrong.extend(k for k in some if files.read(k, 0, 9999) != b"%d" % k * 1000)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_failing_disk_is_told_from_a_changed_file(
    paths: list[Path], open_file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileSet(paths, open_file) as files:
        for number, error in ((5, ReadFailedError), (116, DataChangedError)):

            def fail(*_: object, number: int = number) -> bytes:
                raise OSError(number, "no")

            monkeypatch.setattr(os, "pread", fail)
            with pytest.raises(error):
                files.read(0, 0, 10)


def test_the_fingerprint_is_that_of_copies_elsewhere(
    paths: list[Path], open_file: OpenFile
) -> None:
    with FileSet(paths, open_file) as files:
        first = fingerprint(files)
    other = paths[0].parent / "elsewhere"
    other.mkdir()
    copies = [Path(shutil.copy2(path, other)) for path in paths]
    with FileSet(copies, open_file) as files:
        assert fingerprint(files) == first
    with FileSet(copies[::-1], open_file) as files:
        assert fingerprint(files) != first
    for change in (shrink, grow, touch, overwrite):
        fresh = [Path(shutil.copy2(path, other)) for path in paths]
        change(fresh[0])
        with FileSet(fresh, open_file) as files:
            assert fingerprint(files) != first
    renamed = fresh[3].rename(other / "part_4.raw")
    shutil.copy2(paths[0], other)
    with FileSet([*fresh[:3], renamed], open_file) as files:
        assert fingerprint(files) != first


@pytest.mark.parametrize("size", [0, 1, SAMPLE, 2 * SAMPLE - 1, 2 * SAMPLE, 5 * SAMPLE])
def test_both_ends_count(tmp_path: Path, open_file: OpenFile, size: int) -> None:
    path = tmp_path / "x.raw"
    octets = bytearray(np.random.default_rng(1).bytes(size))

    def now() -> bytes:
        path.write_bytes(octets)
        os.utime(path, ns=(1, 1))
        with FileSet([path], open_file) as files:
            return fingerprint(files)

    first = now()
    for at in {0, size // 2, size - 1, min(SAMPLE, size) - 1, max(size - SAMPLE, 0)} - {-1}:
        if at < size:
            octets[at] ^= 1
            counts = at < SAMPLE or at >= size - SAMPLE
            assert (now() != first) == counts
            octets[at] ^= 1
    assert now() == first


def test_prefixes_stay_when_files_grow(tmp_path: Path, open_file: OpenFile) -> None:
    paths = [tmp_path / f"{k}.raw" for k in range(2)]
    for path in paths:
        path.write_bytes(np.random.default_rng(2).bytes(300_000))
    stops = [(100,), (300_000,), (300_000, 5), (300_000, 250_000), (300_000, 300_000)]
    with FileSet(paths, open_file, growing=True) as files:
        prints = [prefix_fingerprint(files, stop) for stop in stops]
        assert len(set(prints)) == len(stops)
        grow(paths[1])
        files.refresh()
        assert [prefix_fingerprint(files, stop) for stop in stops] == prints
        for wrong in ((300_000, 300_005), (1, 1, 1), (-1,)):
            with pytest.raises(ValueError, match="of"):
                prefix_fingerprint(files, wrong)
        assert prefix_fingerprint(files, (300_000, 300_004)) not in prints
    with paths[1].open("r+b") as file:
        file.seek(249_999)
        file.write(b"\0")
    with FileSet(paths, open_file, growing=True) as files:
        again = [prefix_fingerprint(files, stop) for stop in stops]
    # Byte 249,999 is the last of one prefix, and in the last 64 KiB of another.
    assert [a == b for a, b in zip(again, prints, strict=True)] == [True, True, True, False, False]


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=4), data=st.data())
def test_reads_are_slices(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("reads")
    contents = [np.random.default_rng(size).bytes(size) for size in sizes]
    paths = [folder / f"{k}.raw" for k in range(len(sizes))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
        os.utime(path, (1, 1))
    with FileSet(paths, Roots([folder]).open, max_open=2) as files:
        for _ in range(5):
            index = data.draw(st.integers(0, len(sizes) - 1))
            start, stop = (data.draw(st.integers(0, 6000)) for _ in range(2))
            assert files.read(index, start, stop) == contents[index][start:stop]
    shutil.rmtree(folder)
