"""Formats and codings of answers, conditions and ranges."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from app.errors import DataChangedError, NotAcceptableError, RangeError
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import choose_coding, choose_format, not_modified, requested_range

ALL = tuple(MEDIA_TYPES)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "csv"),
        ("", "csv"),
        ("*/*", "csv"),
        ("text/html, */*;q=0.1", "csv"),
        ("text/*", "csv"),
        ("text/csv;q=0, */*", ALL[1]),
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


ETAG = '"abc"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-99", (0, 100)),
        ("bytes=0-100", (0, 100)),
        ("bytes=99-99", (99, 100)),
        ("bytes=10-", (10, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=-1000", (0, 100)),
        (" bytes=3-5 ", (3, 6)),
        ("BYTES=3-5", (3, 6)),
        (f"bytes=5-{'9' * 30}", (5, 100)),
    ],
)
def test_a_range_of_a_hundred_bytes(text: str, expected: tuple[int, int]) -> None:
    assert requested_range(Headers({"range": text}), 100, ETAG) == expected


@pytest.mark.parametrize("text", ["bytes=100-", "bytes=100-200", "bytes=-0", f"bytes={'9' * 30}-"])
def test_a_range_after_the_end(text: str) -> None:
    with pytest.raises(RangeError) as caught:
        requested_range(Headers({"range": text}), 100, ETAG)
    assert caught.value.members == {"length": 100}


@pytest.mark.parametrize(
    "text",
    ["", "bytes", "bytes=", "bytes=-", "bytes=5-3", "bytes=0-1,5-6", "rows=0-1", "bytes=a-b",
     "bytes=1-2-3", "bytes=\xb2-\xb3", "bite=0-1"],
)  # fmt: skip
def test_a_range_that_is_malformed_selects_everything(text: str) -> None:
    assert requested_range(Headers({"range": text}), 100, ETAG) is None


def test_an_answer_without_a_body_has_no_range() -> None:
    assert requested_range(Headers({"range": "bytes=200-"}), 100, ETAG, body=False) is None


def test_a_range_of_another_version_selects_everything() -> None:
    assert requested_range(Headers({"range": "bytes=0-1", "if-range": ETAG}), 100, ETAG) == (0, 2)
    for other in ('"abd"', f"W/{ETAG}", "Wed, 21 Oct 2015 07:28:00 GMT"):
        assert (
            requested_range(Headers({"range": "bytes=0-1", "if-range": other}), 100, ETAG) is None
        )
    assert requested_range(Headers({}), 100, ETAG) is None


@pytest.mark.parametrize(
    "text", [ETAG, f"W/{ETAG}", f'"x", {ETAG}', "*", f'"x",{ETAG},"y"', f'"x,y", W/{ETAG}']
)
def test_a_copy_that_is_current(text: str) -> None:
    assert not_modified(Headers({"if-none-match": text}), ETAG)


@pytest.mark.parametrize("text", ["", '"x"', "abc", '"abcd"', '"x,*"'])
def test_a_copy_that_is_not(text: str) -> None:
    assert not not_modified(Headers({"if-none-match": text}), ETAG)
    assert not not_modified(Headers({}), ETAG)


@pytest.mark.parametrize(
    "text", [ETAG, "*", " * ", f'"x", {ETAG}', f'W/"x",{ETAG}', f'"x,y",{ETAG}']
)
def test_a_version_that_if_match_allows(text: str) -> None:
    assert not not_modified(Headers({"if-match": text}), ETAG)
    assert not_modified(Headers({"if-match": text, "if-none-match": ETAG}), ETAG)


@pytest.mark.parametrize("text", ["", '"x"', "abc", f"W/{ETAG}", '"x,*"', '"x", "abcd"'])
def test_a_version_that_if_match_does_not_allow(text: str) -> None:
    for others in ({}, {"if-none-match": ETAG}, {"range": "bytes=900-"}):
        with pytest.raises(DataChangedError) as caught:
            not_modified(Headers({"if-match": text, **others}), ETAG)
        assert caught.value.members == {"etag": ETAG}


def lines(name: str, *values: str) -> Headers:
    return Headers(raw=[(name.encode(), value.encode()) for value in values])


@pytest.mark.parametrize(
    "values",
    [('"x"', ETAG), (ETAG, '"x"'), ('"x"', f'"y", W/{ETAG}'), ('"x"', "*"), ("", f",, {ETAG} ,")],
)
def test_the_lines_of_a_condition_are_one_list(values: tuple[str, ...]) -> None:
    assert not_modified(lines("if-none-match", *values), ETAG)
    strong = lines("if-match", *(value.replace("W/", "") for value in values))
    assert not not_modified(strong, ETAG)


@pytest.mark.parametrize(
    "values", [('"x"', '"y"'), ("", ""), (f"x{ETAG}", "y*"), ('"*"', f'"{ETAG}"')]
)
def test_no_line_of_a_condition_names_the_version(values: tuple[str, ...]) -> None:
    assert not not_modified(lines("if-none-match", *values), ETAG)
    with pytest.raises(DataChangedError):
        not_modified(lines("if-match", *values), ETAG)


def test_a_weak_tag_matches_if_none_match_alone() -> None:
    assert not_modified(lines("if-none-match", '"x"', f"W/{ETAG}"), ETAG)
    with pytest.raises(DataChangedError):
        not_modified(lines("if-match", '"x"', f"W/{ETAG}"), ETAG)


def test_several_lines_of_a_range_select_everything() -> None:
    assert requested_range(lines("range", "bytes=0-1", "bytes=5-6"), 100, ETAG) is None
    both = Headers(raw=[(b"range", b"bytes=0-1"), (b"if-range", b'"x"'), (b"if-range", b'"abc"')])
    assert requested_range(both, 100, ETAG) is None
