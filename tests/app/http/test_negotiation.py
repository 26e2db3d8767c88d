"""What headers ask for."""

from __future__ import annotations

import pytest

from app.errors import NotAcceptableError
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import choose_coding, choose_format

ALL = tuple(MEDIA_TYPES)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "csv"),
        ("", "csv"),
        ("*/*", "csv"),
        ("text/html, */*;q=0.1", "csv"),
        ("text/*", "csv"),
        ("application/x-ndjson", "ndjson"),
        ("application/jsonl", "ndjson"),
        ("application/*", "ndjson"),
        ("text/csv;q=0.5, application/vnd.apache.arrow.stream", "arrow"),
        ("TEXT/CSV; header=present", "csv"),
        ("application/vnd.thalweg.frames", "frames"),
        ("application/octet-stream;q=0.9, text/csv;q=nonsense", "bin"),
    ],
)
def test_the_format_liked_best_is_made(accept: str | None, expected: str) -> None:
    assert choose_format(accept, ALL) == expected


@pytest.mark.parametrize("accept", ["text/html", "text/csv;q=0", "image/*", ","])
def test_what_cannot_be_made_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptableError, match=r".+"):
        choose_format(accept, ALL)


def test_several_reports_come_in_frames_only() -> None:
    assert choose_format("*/*", ("frames",)) == "frames"
    with pytest.raises(NotAcceptableError):
        choose_format("text/csv", ("frames",))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("gzip, deflate", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("br", None),
        ("*", "zstd"),
        ("*;q=0", None),
        ("gzip;q=0.1, identity;q=0.5", None),
        ("zstd;q=0, gzip", "gzip"),
    ],
)
def test_the_coding_liked_best_is_used(header: str | None, expected: str | None) -> None:
    assert choose_coding(header, ("zstd", "gzip")) == expected
