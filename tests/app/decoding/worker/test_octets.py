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
