"""Temporary files: they hold what they are given, leave nothing, and say when a disk is full."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from app.losses import spilling
from app.losses.spilling import SpillFiles, forget, forget_written
from core.errors import LimitError


def test_bytes_come_back_from_anywhere(tmp_path: Path) -> None:
    files = SpillFiles(tmp_path / "spill")
    file = files.create()
    octets = os.urandom(100_000)
    for begin in range(0, len(octets), 7777):
        file.append(memoryview(octets[begin : begin + 7777]))
    for begin, end in ((0, 100_000), (0, 0), (99_999, 100_000), (12_345, 67_890)):
        target = bytearray(end - begin)
        file.read_into(begin, memoryview(target))
        assert bytes(target) == octets[begin:end]
    files.close()
    files.close()


def test_no_file_has_a_name(tmp_path: Path) -> None:
    files = SpillFiles(tmp_path)
    files.create().append(memoryview(b"some"))
    assert list(tmp_path.iterdir()) == []
    files.close()


def test_reading_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    file = SpillFiles(tmp_path).create()
    file.append(memoryview(b"some"))
    with pytest.raises(LimitError, match="is cut"):
        file.read_into(2, memoryview(bytearray(3)))
    file.close()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SpillFiles(tmp_path).create()

    def write(_fd: int, _data: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(LimitError, match="No space left on device") as caught:
        file.append(memoryview(b"some"))
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint
    file.close()


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LimitError, match="cannot be kept"):
        SpillFiles(tmp_path / "file" / "below").create()


PAGE = mmap.PAGESIZE


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the system is told to forget, in pages, of a file of which two may stay."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(spilling, "KEPT", 2 * PAGE)
    monkeypatch.setattr(spilling, "STEP", PAGE)
    monkeypatch.setattr(
        "os.posix_fadvise",
        lambda _fd, begin, size, _advice: calls.append((begin // PAGE, (begin + size) // PAGE)),
    )
    return calls


def test_what_is_written_is_forgotten_several_times_but_for_the_beginning(
    told: list[tuple[int, int]], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("wb") as file:
        for begin in range(0, 9 * PAGE, PAGE // 2):
            forget_written(file.fileno(), begin, begin + PAGE // 2)
    assert told == [(2, 3), (2, 4), (2, 5), (2, 6), (3, 7), (4, 8), (5, 9)]


def test_what_was_read_is_forgotten_beyond_the_beginning(
    told: list[tuple[int, int]], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("wb") as file:
        forget(file.fileno(), 0, 2 * PAGE)
        forget(file.fileno(), PAGE, 3 * PAGE)
        forget(file.fileno(), 7 * PAGE, 8 * PAGE)
    assert told == [(2, 3), (7, 8)]
