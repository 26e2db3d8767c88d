"""What names and patterns find in a bucket is what they find in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from app.datasets.files.buckets import Bucket
from app.datasets.files.fetching import Fetching
from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.errors import InvalidOptionError, TooLargeError
from tests.app.datasets.files.bucket import ADDRESS, bucket_over, upload

NAMES = (
    *("a_2.raw", "a_10.raw", "b.raw", ".hidden.raw", "x[1].raw", "x1.raw"),
    *("d/a_1.raw", "d/e/a_1.raw", "d/e/f/a_1.raw", "d/.h/a_1.raw", "é/ü.raw"),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


@pytest.fixture
def bucket(tree: Path) -> Bucket:
    store = MemoryStore()
    upload(tree, store)
    return bucket_over(store)


@pytest.mark.parametrize(
    "patterns",
    [
        *(["b.raw"], ["./b.raw"], ["d/../b.raw"], ["d//a_1.raw"], ["é/*"]),
        *(["*.raw"], ["a_*.raw"], ["a_?.raw"], ["**/a_1.raw"], ["d/**"], ["**"], ["d/**/f/*"]),
        *(["*/a_1.raw"], ["d/*/a_1.raw"], [".h*"], ["x[1].raw"], ["x[12].raw"], ["d/.*/*"]),
        *(["**/**/**/a_1.raw"], ["b.raw", "a_*"], ["a_10.raw", "a_2.raw"]),
    ],
    ids=" ".join,
)
def test_the_same_is_found_as_in_a_directory(
    tree: Path, bucket: Bucket, patterns: Sequence[str]
) -> None:
    wanted = [path.relative_to(tree).as_posix() for path in Roots([tree]).expand(patterns)]
    found = bucket.find(patterns, 100)
    assert [each.key for each in found] == wanted
    assert [each.size for each in found] == [len(name.encode()) for name in wanted]
    addresses = [f"{ADDRESS}/{pattern}" for pattern in patterns]
    assert bucket.find(addresses, 100) == found


@pytest.mark.parametrize("name", ["c.raw", "d", "d/", "c*", "d/*.npy", "b.raw/*", "b.raw/x"])
def test_what_is_not_there(bucket: Bucket, name: str) -> None:
    with pytest.raises(FileMissingError):
        bucket.find([name], 100)


@pytest.mark.parametrize(
    "name",
    [
        *("/b.raw", "../b.raw", "..", ".", "s3://scans/2025/b.raw", "s3://scans/20260/b.raw"),
        *(f"{ADDRESS}/../b.raw", f"{ADDRESS}", "gs://scans/2026/b.raw", "s3://other/b.raw"),
    ],
)
def test_what_is_outside_is_refused_alike(bucket: Bucket, name: str) -> None:
    with pytest.raises(PathRefusedError, match="is not below a served directory"):
        bucket.find([name], 100)


def test_names_that_are_none(bucket: Bucket) -> None:
    with pytest.raises(PathRefusedError, match="control characters"):
        bucket.find(["a\nb"], 100)
    with pytest.raises(PathRefusedError, match="more than 100"):
        bucket.find(["a/" * 101 + "*"], 100)
    with pytest.raises(InvalidOptionError, match="is named before"):
        bucket.find(["b.raw", "*.raw"], 100)


def test_there_are_bounds(bucket: Bucket) -> None:
    with pytest.raises(TooLargeError, match="more than 2"):
        bucket.find(["a_*.raw", "b.raw"], 2)
    store = MemoryStore()
    for number in range(30):
        obstore.put(store, f"many/{number}", b"")
    few = bucket_over(store, max_entries=20)
    with pytest.raises(TooLargeError) as caught:
        few.find(["many/*"], 100)
    assert caught.value.members["setting"] == "THALWEG_MAX_ENTRIES"
    assert few.find(["many/7"], 100)[0].key == "many/7"


def test_directories(bucket: Bucket) -> None:
    assert bucket.is_directory("d")
    assert bucket.is_directory("d/e")
    assert not bucket.is_directory("b.raw")
    assert not bucket.is_directory("d/e/a")
    assert sorted(bucket.below("d")) == ["d/a_1.raw", "d/e/a_1.raw", "d/e/f/a_1.raw"]


def test_a_name_that_ends_in_a_slash_is_no_file(bucket: Bucket) -> None:
    found = bucket.find(["**"], 100)
    assert not any(each.key.endswith("/") for each in found)


def test_an_address_that_is_none() -> None:
    with pytest.raises(ValueError, match="is not the address of a bucket"):
        Bucket("s3://", Fetching())
