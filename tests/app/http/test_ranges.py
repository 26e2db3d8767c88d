"""Range and conditional requests."""

from __future__ import annotations

import pytest

from app.errors import DataChangedError, RangeError
from app.http.ranges import not_modified, requested_range

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
        (f"bytes=5-{'9' * 30}", (5, 100)),
    ],
)
def test_a_range_of_a_hundred_bytes(text: str, expected: tuple[int, int]) -> None:
    assert requested_range({"range": text}, 100, ETAG) == expected


@pytest.mark.parametrize("text", ["bytes=100-", "bytes=100-200", "bytes=-0", f"bytes={'9' * 30}-"])
def test_a_range_after_the_end(text: str) -> None:
    with pytest.raises(RangeError) as caught:
        requested_range({"range": text}, 100, ETAG)
    assert caught.value.members == {"length": 100}


@pytest.mark.parametrize(
    "text",
    ["", "bytes", "bytes=", "bytes=-", "bytes=5-3", "bytes=0-1,5-6", "rows=0-1", "bytes=a-b",
     "bytes=1-2-3", "bytes=\u0663-\u0665", "Bytes=0-1"],
)  # fmt: skip
def test_a_range_that_is_malformed_selects_everything(text: str) -> None:
    assert requested_range({"range": text}, 100, ETAG) is None


def test_a_range_of_another_version_selects_everything() -> None:
    assert requested_range({"range": "bytes=0-1", "if-range": ETAG}, 100, ETAG) == (0, 2)
    for other in ('"abd"', f"W/{ETAG}", "Wed, 21 Oct 2015 07:28:00 GMT"):
        assert requested_range({"range": "bytes=0-1", "if-range": other}, 100, ETAG) is None
    assert requested_range({}, 100, ETAG) is None


@pytest.mark.parametrize(
    "text", [ETAG, f"W/{ETAG}", f'"x", {ETAG}', "*", f'"x",{ETAG},"y"', f'"x,y", W/{ETAG}']
)
def test_a_copy_that_is_current(text: str) -> None:
    assert not_modified({"if-none-match": text}, ETAG)


@pytest.mark.parametrize("text", ["", '"x"', "abc", '"abcd"', '"x,*"'])
def test_a_copy_that_is_not(text: str) -> None:
    assert not not_modified({"if-none-match": text}, ETAG)
    assert not not_modified({}, ETAG)


@pytest.mark.parametrize(
    "text", [ETAG, "*", " * ", f'"x", {ETAG}', f'W/"x",{ETAG}', f'"x,y",{ETAG}']
)
def test_a_version_that_if_match_allows(text: str) -> None:
    assert not not_modified({"if-match": text}, ETAG)
    assert not_modified({"if-match": text, "if-none-match": ETAG}, ETAG)


@pytest.mark.parametrize("text", ["", '"x"', "abc", f"W/{ETAG}", '"x,*"', '"x", "abcd"'])
def test_a_version_that_if_match_does_not_allow(text: str) -> None:
    for others in ({}, {"if-none-match": ETAG}, {"range": "bytes=900-"}):
        with pytest.raises(DataChangedError) as caught:
            not_modified({"if-match": text, **others}, ETAG)
        assert caught.value.members == {"etag": ETAG}
