"""What workers answer is checked value by value."""

from __future__ import annotations

import pytest

from app.datasets.files.foreign import number, sequence, text


def test_texts_are_short() -> None:
    assert text("x" * 4096) == "x" * 4096
    assert text("abc", 3) == "abc"
    for long, limit in (("x" * 4097, 4096), ("abcd", 3)):
        with pytest.raises(ValueError, match="too long"):
            text(long, limit)
    with pytest.raises(TypeError):
        text(b"abc")


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_numbers_are_integers(value: object) -> None:
    with pytest.raises(TypeError):
        number(value)


def test_numbers_are_in_range() -> None:
    assert [number(0), number((1 << 63) - 1), number(4, 5)] == [0, (1 << 63) - 1, 4]
    for value, limit in ((-1, 5), (5, 5), (1 << 63, 1 << 63)):
        with pytest.raises(ValueError, match="out of range"):
            number(value, limit)


def test_sequences_are_lists() -> None:
    assert sequence([1]) == [1]
    for value in ("ab", {"a": 1}, None, (1,)):
        with pytest.raises(TypeError):
            sequence(value)
