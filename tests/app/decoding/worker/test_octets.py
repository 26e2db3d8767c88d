"""File objects over descriptors."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from app.decoding.worker.octets import DescriptorFile


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
