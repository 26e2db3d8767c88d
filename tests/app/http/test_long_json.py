"""Long JSON in bounded steps."""

from __future__ import annotations

import json
import secrets
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadRequestError, TooLargeError
from app.http import long_json
from app.http.json_bodies import parse_object
from app.http.long_json import MAX_REST, parse_long
from core.arrays import Integers


def parse(text: bytes, grow: Any = lambda _: None) -> Any:  # noqa: ANN401 - JSON
    what = "the body"
    return parse_long(bytearray(text), what, grow, lambda rest: parse_object(rest, what))


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with lists for packed integers."""
    if isinstance(value, Integers):
        return list(value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)
TEXT = st.text(max_size=60) | st.text('\\"ab', max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXT | INTEGERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans())
def test_any_object_is_what_a_usual_parser_says(value: dict[str, Any], spaced: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_LONG", "_PIECE", "_WINDOW"):
            patch.setattr(long_json, name, 200)
        text = json.dumps(value, indent=1 if spaced else None).encode()
        assert plain(parse(text)) == orjson.loads(text)


def test_millions_of_numbers_are_packed_and_paid_for() -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 30, 300_000)
    text = json.dumps({"select": {"frames": numbers.tolist()}, "dtype": "<f4"}).encode()
    held: list[int] = []
    value = parse(text, held.append)
    assert np.array_equal(value["select"]["frames"].values, numbers)
    assert value["dtype"] == "<f4"
    assert sum(held) >= 8 * len(numbers)


def test_a_long_string_is_taken_as_it_is() -> None:
    value = parse(b'{"mask": "' + b"QUJD" * 500_000 + b'", "b": [1]}')
    assert value == {"mask": "QUJD" * 500_000, "b": [1]}


@pytest.mark.parametrize("size", [4096, 21_848, 43_691])
def test_as_many_strings_as_there_may_be_detectors_are_taken(size: int) -> None:
    strings = ["QUJD" * (size // 4)] * 64
    assert parse(json.dumps({"detectors": strings}).encode()) == {"detectors": strings}


NUMBERS = b",".join(b"%d" % k for k in range(100_000))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": [' + NUMBERS + b",]}",
        b'{"a": [,' + NUMBERS + b"]}",
        b'{"a": [' + NUMBERS + b",,1]}",
        b'{"a": [' + NUMBERS + b" 7]}",
        b'{"a": [' + NUMBERS + b",01]}",
        b'{"a": [' + NUMBERS + b"]",
        b'{"a": [' + NUMBERS,
        b"{[" + NUMBERS + b"]: 1}",
        b'{"a": [' + b"1" * 200_000 + b"]}",
        b'{"a": [' + b" " * 200_000 + b"]x}",
        b'{"a": "' + b"x" * 200_000,
        b'{"a": "' + b"x" * 200_000 + b'" "b"}',
        b"[" + NUMBERS + b"]",
        b'"' + b"x" * 200_000 + b'"',
    ],
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(BadRequestError, match=r"the body (is|has a number)"):
        parse(text)


@pytest.mark.parametrize("number", ["1.5", "9223372036854775808", "1e3"])
def test_a_list_with_another_number_shows_it(number: str) -> None:
    value = parse(b'{"a": [' + NUMBERS + b"," + number.encode() + b"," + NUMBERS + b"]}")
    assert float(number) in map(float, value["a"])
    assert len(value["a"]) < 200_000


@pytest.mark.parametrize("unit", [b"[],", b'{"a":1},', b'"x",', b"true,", b" ", b'"\\"",'])
def test_what_is_long_for_no_reason_is_too_large(unit: bytes) -> None:
    with pytest.raises(TooLargeError, match=f"more than {MAX_REST} bytes besides"):
        parse(b'{"a": [' + unit * (MAX_REST // len(unit) + 1) + b"1]}")


def test_a_mark_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def draw(count: int) -> str:
        seen.append(count)
        return "0" * 2 * count

    assert parse(b'{"a": "' + b"0" * 32 + b':0", "b": [' + NUMBERS + b"]}")["a"] != 0
    monkeypatch.setattr(secrets, "token_hex", draw)
    parse(b'{"b": [' + NUMBERS + b"]}")
    assert seen == [16]


def test_no_memory_is_taken_that_was_not_granted() -> None:
    def refuse(_: int) -> None:
        raise TooLargeError("no", limit="json", allowed=0, setting=None)

    with pytest.raises(TooLargeError, match="no"):
        parse(b'{"b": [' + NUMBERS + b"]}", refuse)


def test_no_call_of_the_parser_takes_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser holds the interpreter's lock: while it runs, nobody else is answered."""
    sizes: list[int] = []
    load = orjson.loads

    def measured(text: bytes) -> Any:  # noqa: ANN401 - JSON
        sizes.append(len(text))
        return load(text)

    monkeypatch.setattr(orjson, "loads", measured)
    parse(b'{"a": [' + b",".join([NUMBERS] * 3) + b'], "mask": "' + b"QUJD" * 500_000 + b'"}')
    assert len(sizes) > 10
    assert max(sizes) <= long_json._PIECE + 2
