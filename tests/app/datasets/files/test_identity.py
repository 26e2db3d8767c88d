"""What identifies a file: numbers that must stay, and both ends of its contents."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from app.datasets.files.identity import (
    CLOCK_STEP,
    SAMPLE,
    Identity,
    is_young,
    read_ends,
    spans,
)

KNOWN = Identity(device=1, inode=2, size=100, modified=3, changed=4)


@pytest.mark.parametrize(
    ("change", "plain", "growing"),
    [
        ({}, None, None),
        ({"changed": 5}, None, None),
        ({"modified": 5}, "was modified", None),
        ({"modified": 2}, "was modified", None),
        ({"size": 101}, "grew", None),
        ({"size": 101, "modified": 5}, "grew", None),
        ({"size": 99}, "shrank", "shrank"),
        ({"inode": 5}, "was replaced", "was replaced"),
        ({"device": 5, "size": 99}, "was replaced", "was replaced"),
    ],
)
def test_what_became_of_a_file(
    change: dict[str, int], plain: str | None, growing: str | None
) -> None:
    now = KNOWN._replace(**change)
    assert KNOWN.difference(now, growing=False) == plain
    assert KNOWN.difference(now, growing=True) == growing


def test_an_identity_is_what_stat_says(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    os.utime(path, ns=(1, 7))
    status = path.stat()
    assert Identity.of(status) == (status.st_dev, status.st_ino, 3, 7, status.st_ctime_ns)


@pytest.mark.parametrize("size", [0, 1, 2 * SAMPLE, 2 * SAMPLE + 1, 5 * SAMPLE])
def test_the_ends_are_those_of_a_prefix(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    octets = bytearray(np.random.default_rng(1).bytes(size))
    covered = np.zeros(size, np.bool_)
    for start, stop in spans(size):
        assert stop - start <= 2 * SAMPLE
        covered[start:stop] = True

    def ends(longer: bytes) -> object:
        path.write_bytes(octets + longer)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return read_ends(descriptor, size)
        finally:
            os.close(descriptor)

    first = ends(b"")
    assert ends(b"more") == first
    for at in {0, SAMPLE - 1, SAMPLE, size // 2, size - SAMPLE - 1, size - SAMPLE, size - 1}:
        if 0 <= at < size:
            octets[at] ^= 1
            assert (ends(b"") != first) == covered[at]
            octets[at] ^= 1


def test_a_file_without_the_prefix_has_no_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    with path.open("rb") as file, pytest.raises(EOFError):
        read_ends(file.fileno(), 4)


def test_short_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(np.random.default_rng(2).bytes(1000))
    whole = os.pread
    with path.open("rb") as file:
        expected = read_ends(file.fileno(), 1000)
        monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 7), at))
        assert read_ends(file.fileno(), 1000) == expected


def test_stamps_are_young_for_a_step_of_the_clock() -> None:
    now = time.time_ns()
    assert is_young(now)
    assert not is_young(now - int(2 * CLOCK_STEP * 1e9))
    assert not is_young(now + 10**12)
    assert not is_young(0)
