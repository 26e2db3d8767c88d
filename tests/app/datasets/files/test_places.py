"""Directories first, then buckets; and what is in neither."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore, S3Store

from app.datasets.files.file_set import ReadFailedError
from app.datasets.files.places import missing_roots, open_files, parse_roots, real_paths
from app.datasets.files.roots import FileMissingError, PathRefusedError, Roots
from app.errors import InvalidOptionError
from tests.app.datasets.files.bucket import ADDRESS, bucket_roots


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "both.raw").write_bytes(b"directory")
    (tmp_path / "here.raw").write_bytes(b"here")
    store = MemoryStore()
    for name, content in (("both.raw", b"bucket"), ("there.raw", b"there"), ("z/c/0", b"chunk")):
        obstore.put(store, name, content)
    return bucket_roots(store, [tmp_path])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("both.raw", b"directory"),
        ("here.raw", b"here"),
        ("there.raw", b"there"),
        ("th*.raw", b"there"),
        (f"{ADDRESS}/both.raw", b"bucket"),
    ],
)
def test_a_name_means_the_first_that_has_it(roots: Roots, name: str, content: bytes) -> None:
    with open_files(roots, [name]) as files:
        assert files.read(0, 0, 100) == content


@pytest.mark.parametrize("name", ["nowhere.raw", "no*", f"{ADDRESS}/here.raw"])
def test_what_is_nowhere(roots: Roots, name: str) -> None:
    with pytest.raises(FileMissingError):
        open_files(roots, [name])


@pytest.mark.parametrize(
    "names",
    [
        *(["/etc/passwd"], ["../x"], ["s3://scans/2025/there.raw"], ["gs://scans/2026/there.raw"]),
        *(["s3://scans"], [f"{ADDRESS}/../x"], ["here.raw", "s3://other/x"], ["s3:////etc/passwd"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("buckets", [True, False])
def test_what_is_outside_is_refused_alike(roots: Roots, names: list[str], buckets: bool) -> None:
    if not buckets:
        roots.buckets = ()
    with pytest.raises(PathRefusedError, match="is not below a served directory"):
        open_files(roots, names)


def test_files_of_a_dataset_lie_in_one_place(roots: Roots) -> None:
    with pytest.raises(FileMissingError):
        open_files(roots, ["here.raw", "there.raw"])


def test_objects_do_not_grow(roots: Roots) -> None:
    with pytest.raises(InvalidOptionError, match="does not grow"):
        open_files(roots, ["there.raw"], growing=True)
    open_files(roots, ["here.raw"], growing=True).close()


def test_where_names_lead(roots: Roots, tmp_path: Path) -> None:
    assert real_paths(roots, "both.raw") == [str(tmp_path / "both.raw")]
    assert real_paths(roots, "there.raw") == [f"{ADDRESS}/there.raw"]
    assert real_paths(roots, "z") == [f"{ADDRESS}/z"]
    with pytest.raises(PathRefusedError):
        real_paths(roots, "s3://other/there.raw")


@pytest.fixture
def away() -> S3Store:
    """A bucket of a store that is not there."""
    return S3Store(
        "scans",
        endpoint="http://127.0.0.1:1",
        skip_signature=True,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def test_roots_that_are_not_there(roots: Roots, away: S3Store, tmp_path: Path) -> None:
    assert list(missing_roots(roots)) == []
    both = parse_roots(f"{tmp_path / 'no'},s3://scans", None)
    assert [bucket.address for bucket in both.buckets] == ["s3://scans"]
    both.buckets = bucket_roots(away).buckets
    directory, bucket = missing_roots(both)
    assert directory == (str(tmp_path / "no"), "there is no such directory")
    assert bucket[0] == ADDRESS
    assert "its object store cannot be reached" in bucket[1]


def test_a_root_that_fails_is_not_taken_for_one_without_the_file(
    away: S3Store, tmp_path: Path
) -> None:
    with pytest.raises(ReadFailedError, match=r"'a.raw' cannot be read"):
        open_files(bucket_roots(away, [tmp_path]), ["a.raw"])
