"""Lists of directories and addresses of buckets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.datasets.files.addresses import is_address, split_roots


@pytest.mark.parametrize(
    ("text", "directories", "addresses"),
    [
        ("", [], []),
        (f"/a{os.pathsep}{os.pathsep}/b:", ["/a", "/b"], []),
        ("/data,s3://scans/2026", ["/data"], ["s3://scans/2026"]),
        ("/data:s3://scans/2026:/x", ["/data", "/x"], ["s3://scans/2026"]),
        ("s3://a,/b:/c", ["/b", "/c"], ["s3://a"]),
        ("s3://a, /b", ["/b"], ["s3://a"]),
        ("s3://a/b/,gs://c,az://d/e", [], ["s3://a/b", "gs://c", "az://d/e"]),
        ("/a,b:/x,y", ["/a,b", "/x,y"], []),
        ("s3://a,s3://b:/x,y", ["/x,y"], ["s3://a", "s3://b"]),
    ],
)
def test_a_list_is_split(text: str, directories: list[str], addresses: list[str]) -> None:
    assert split_roots(text) == ([Path(each) for each in directories], addresses)


@pytest.mark.parametrize("text", ["s3://key:secret@scans", "/a,s3://scans?token=secret"])
def test_an_address_has_no_credentials(text: str) -> None:
    with pytest.raises(ValueError, match="has credentials") as caught:
        split_roots(text)
    assert "secret" not in str(caught.value)


def test_addresses_are_no_paths() -> None:
    assert is_address("s3://a/b")
    assert not any(map(is_address, ["s3:/a", "/s3://a", "http://a", "a"]))
