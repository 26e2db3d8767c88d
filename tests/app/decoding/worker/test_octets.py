"""File objects over descriptors."""

from __future__ import annotations

import errno
import io
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from app.decoding.worker.octets import DescriptorFile, MappedFile


def test_it_reads_as_files_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    file = DescriptorFile(descriptor, 90)
    assert file.readable()
    assert file.seekable()
    assert file.read(3) == b"\0\1\2"
    assert file.tell() == 3
    assert file.seek(-2, io.SEEK_CUR) == 1
    assert file.read(0) == b""
    assert file.seek(-5, io.SEEK_END) == 85
    assert file.read() == bytes(range(85, 90))
    assert file.read(10) == b""
    assert file.seek(-5) == 0
    buffer = bytearray(4)
    assert file.readinto(memoryview(buffer)) == 4
    assert buffer == b"\0\1\2\3"
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_buffer_is_filled_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    with DescriptorFile(os.open(tmp_path / "a", os.O_RDONLY), 100) as file:
        file.seek(98)
        with pytest.raises(EOFError, match="3 bytes at byte 98 of 100"):
            file.readinto(bytearray(3))
        os.truncate(tmp_path / "a", 50)
        file.seek(40)
        with pytest.raises(EOFError, match="ends at byte 50"):
            file.readinto(bytearray(20))


# -- maps ------------------------------------------------------------------------------


def mapped(path: Path, content: bytes) -> MappedFile:
    path.write_bytes(content)
    return MappedFile(os.open(path, os.O_RDONLY), len(content))


def address_of(octets: bytes | memoryview) -> int:
    return int(np.frombuffer(octets, np.uint8).ctypes.data)


def test_maps_hold_the_bytes_of_the_file_and_know_their_places(tmp_path: Path) -> None:
    content = np.random.default_rng(1).bytes(300_000)
    with mapped(tmp_path / "file", content) as file:
        file.seek(5000)
        large, small = file.read(200_000), file.read(10)
        assert isinstance(large, memoryview)
        assert (bytes(large), bytes(small)) == (content[5000:205_000], content[205_000:205_010])
        assert file.tell() == 205_010
        for octets, start in ((large, 5000), (small, 205_000)):
            address = address_of(octets)
            assert file.place_of(address, len(octets)) == start
            assert file.place_of(address + 3, 2) == start + 3
            assert file.place_of(address - 1, 2) is None
            assert file.place_of(address + 1, len(octets)) is None
        assert bytes(file.read()) == content[205_010:]
        assert bytes(file.read(100_000)) == b""
        file.forget()
        assert file.place_of(address_of(large), 1) is None
        # What a library still uses stays.
        assert bytes(large[-3:]) == content[204_997:205_000]


def test_what_follows_the_known_size_is_not_mapped(tmp_path: Path) -> None:
    content = np.random.default_rng(1).bytes(300_000)
    (tmp_path / "file").write_bytes(content)
    with MappedFile(os.open(tmp_path / "file", os.O_RDONLY), 200_000) as file:
        file.seek(50_000)
        assert bytes(file.read()) == content[50_000:200_000]
        file.seek(50_000)
        assert bytes(file.read(200_000)) == content[50_000:200_000]


def test_a_file_that_cannot_be_mapped_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "no descriptors")

    monkeypatch.setattr(mmap, "mmap", refuse)
    content = np.random.default_rng(1).bytes(300_000)
    with mapped(tmp_path / "file", content) as file:
        octets = file.read(100_000)
        assert isinstance(octets, bytes)
        assert octets + file.read(200_000) == content
        assert file.place_of(address_of(octets), 100_000) == 0


def test_a_file_that_has_become_shorter_is_not_mapped_beyond_its_end(tmp_path: Path) -> None:
    with mapped(tmp_path / "file", bytes(300_000)) as file:
        os.truncate(tmp_path / "file", 100_000)
        with pytest.raises(EOFError):
            file.read(200_000)


# -- bytes that are fetched -----------------------------------------------------------


class Fetched:
    """A file that is asked for, and what is asked."""

    def __init__(self, size: int) -> None:
        self.content = np.random.default_rng(0).bytes(size)
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, size: int) -> bytes:
        self.asked.append((start, size))
        assert start + size <= len(self.content)
        return self.content[start : start + size]

    def open(self, kind: type[DescriptorFile] = DescriptorFile) -> DescriptorFile:
        return kind.of({"size": len(self.content), "fetch": self}, [])


def test_what_is_fetched_is_read_as_files_are() -> None:
    fetched = Fetched(3_000_000)
    file, rng = fetched.open(), np.random.default_rng(1)
    for longest in (10, 300_000, 3_000_000):
        for _ in range(10):
            start = int(rng.integers(0, 3_000_000))
            size = int(rng.integers(0, longest))
            file.seek(start)
            assert file.read(size) == fetched.content[start : start + size]
            if start + size <= 3_000_000:
                buffer = bytearray(size)
                file.seek(start)
                assert file.readinto(buffer) == size
                assert buffer == fetched.content[start : start + size]
    file.seek(-5, io.SEEK_END)
    assert file.read() == fetched.content[-5:]
    with pytest.raises(EOFError):
        file.readinto(bytearray(1))
    file.close()
    file.close()


def test_it_asks_for_blocks_and_for_more_of_them_in_order() -> None:
    fetched = Fetched(20 << 20)
    file = fetched.open()
    for _ in range(200):
        file.read(100_000)
    assert len(fetched.asked) < 12
    assert sum(size for _, size in fetched.asked) <= 25 << 20
    assert max(size for _, size in fetched.asked) == 4 << 20
    before = len(fetched.asked)
    file.seek(0)
    file.read(10)
    assert fetched.asked[before:] == [(0, 256 << 10)]


def test_tables_are_not_mapped_where_they_are_fetched() -> None:
    fetched = Fetched(1 << 20)
    file = fetched.open(MappedFile)
    assert isinstance(file, MappedFile)
    octets = file.read(500_000)
    address = np.frombuffer(octets, np.uint8).ctypes.data
    assert file.place_of(address + 7, 100) == 7
    assert octets == fetched.content[:500_000]
