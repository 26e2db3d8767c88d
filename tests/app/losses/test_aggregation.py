from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from app.losses.aggregation import MappedStreams
from app.losses.sources import Source
from core.errors import InputError


def test_words_are_those_of_the_files(tmp_path: Path) -> None:
    contents = [b"", np.arange(5, dtype="<i4").tobytes(), b"\1\0\0\0\2\0\0"]
    for i, data in enumerate(contents):
        (tmp_path / str(i)).write_bytes(data)
    sources = [Source(str(tmp_path / str(i))) for i in range(3)]
    streams = MappedStreams(sources)
    assert [streams.words(i).tolist() for i in range(3)] == [[], [0, 1, 2, 3, 4], [1]]
    assert streams.name(1) == str(tmp_path / "1")


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(b"\1" * (5 * mmap.PAGESIZE))
    streams = MappedStreams([Source(str(path))])
    words = streams.words(0)
    os.truncate(path, mmap.PAGESIZE)
    assert words[: mmap.PAGESIZE // 4].all()
    streams.check(0)
    assert words[mmap.PAGESIZE] == 0
    with pytest.raises(InputError, match=f"from {4 * mmap.PAGESIZE} on were missing") as caught:
        streams.check(0)
    assert caught.value.source == str(path)


@pytest.mark.parametrize("size", [4, 12])
def test_a_file_of_another_length_is_refused_before_it_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "stream"
    path.write_bytes(bytes(8))
    streams = MappedStreams([Source(str(path))])
    with path.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(InputError, match="changed") as caught:
        streams.words(0)
    assert caught.value.source == str(path)
