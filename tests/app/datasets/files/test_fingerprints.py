"""What identifies the files of a dataset, frozen: tokens of an earlier server stay good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.datasets.files.file_set import FileSet
from app.datasets.files.fingerprints import (
    fingerprint,
    prefix_fingerprint,
    store_fingerprint,
)
from app.datasets.files.identity import SAMPLE
from app.datasets.files.roots import Roots

MODIFIED = 1_600_000_000_123_456_789


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileSet]:
    """A short file, one that is looked into at both ends, and an empty one of long ago."""
    contents = {"a.raw": b"abc", "größe.raw": bytes(range(256)) * 1024, "old.raw": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, ns=(MODIFIED, MODIFIED))
    os.utime(tmp_path / "old.raw", ns=(-1, -1))
    assert len(contents["größe.raw"]) > 2 * SAMPLE
    paths = [tmp_path / name for name in contents]
    with FileSet(paths, Roots([tmp_path]).open) as made:
        yield made


FROZEN: list[tuple[Callable[[FileSet], bytes], str]] = [
    (fingerprint, "a52c973d9ab85811"),
    (lambda files: store_fingerprint(files, ()), "27e09725196c76e0"),
    (lambda files: store_fingerprint(files, {1}), "0ca7c88445a45bc0"),
    (lambda files: prefix_fingerprint(files, ()), "3c02c750ad01542d"),
    (lambda files: prefix_fingerprint(files, (3,)), "d7bf428265d8a823"),
    (lambda files: prefix_fingerprint(files, (3, 200_000)), "0a164aa898e42f91"),
]


@pytest.mark.parametrize(("make", "frozen"), FROZEN)
def test_fingerprints_are_frozen(
    files: FileSet, make: Callable[[FileSet], bytes], frozen: str
) -> None:
    assert make(files).hex() == frozen


def test_every_kind_is_another(files: FileSet) -> None:
    made = [make(files) for make, _ in FROZEN]
    assert len(set(made)) == len(made)
    assert {len(each) for each in made} == {8}
    assert store_fingerprint(files, {0, 1, 2}) != fingerprint(files)


def test_a_name_is_told_from_what_follows_it(tmp_path: Path) -> None:
    """Two sets whose names, sizes and contents join to the same bytes."""
    found = []
    for name in ("ab", "a"):
        path = tmp_path / name
        path.write_bytes(b"c" if name == "ab" else b"bc")
        os.utime(path, ns=(1, 1))
        with FileSet([path], Roots([tmp_path]).open) as made:
            found.append((fingerprint(made), store_fingerprint(made, ())))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_a_time_may_lie_beyond_64_bits_of_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "far.raw"
    path.write_bytes(b"abc")
    made = set()
    for seconds in (10**10, 10**10 + 1):
        os.utime(path, (seconds, seconds))
        if path.stat().st_mtime != seconds:
            pytest.skip("the file system has no such times")
        with FileSet([path], Roots([tmp_path]).open) as files:
            made |= {fingerprint(files)} | {store_fingerprint(files, at) for at in ((), (0,))}
    assert len(made) == 6
