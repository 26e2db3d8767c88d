"""Ragged items padded into arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CastingError, OptionError, PipelineError, TransformError
from core.iterate.base import Block, Field, Ragged
from core.iterate.collate import Padding, collate, pad, ragged

ITEMS = [np.arange(3), np.arange(0), np.arange(5)]


@given(
    lengths=st.lists(st.integers(0, 9), max_size=8),
    multiple=st.integers(1, 5),
    width=st.integers(1, 3),
    value=st.integers(-3, 3),
)
def test_items_come_back_out(lengths: list[int], multiple: int, width: int, value: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.arange(offsets[-1] * width, dtype=np.int32).reshape(-1, width)
    column = Ragged(values, offsets)
    made, kept = pad(column, Padding(multiple=multiple, value=value))
    longest = max(lengths, default=0)
    assert made.shape == (len(lengths), -(-longest // multiple) * multiple, width)
    assert made.dtype == np.int32
    assert kept.tolist() == lengths
    for k, length in enumerate(lengths):
        assert np.array_equal(made[k, :length], column[k])
        assert (made[k, length:] == value).all()


def test_to_a_length() -> None:
    column = ragged(ITEMS)
    made, kept = pad(column, Padding(length=6, value=-1))
    assert made.tolist() == [[0, 1, 2, -1, -1, -1], [-1] * 6, [0, 1, 2, 3, 4, -1]]
    assert kept.tolist() == [3, 0, 5]
    with pytest.raises(TransformError) as caught:
        pad(column, Padding(length=4))
    assert caught.value.position == 2
    made, kept = pad(column, Padding(length=4, truncate=True))
    assert made.tolist() == [[0, 1, 2, 0], [0] * 4, [0, 1, 2, 3]]
    assert kept.tolist() == [3, 0, 4]


def test_blocks_get_lengths_beside_padded_fields() -> None:
    block: Block = {"a": ragged(ITEMS), "x": np.arange(3), "b": ragged(ITEMS)}
    both = collate(block, Padding())
    assert list(both) == ["a", "a_length", "x", "b", "b_length"]
    one = collate(block, Padding(fields=("b",)))
    assert list(one) == ["a", "x", "b", "b_length"]
    assert isinstance(one["a"], Ragged)


def test_the_schema_says_so() -> None:
    schema = (Field("a", np.dtype("i2"), (2,), ragged=True), Field("x", np.dtype("f4")))
    assert Padding(length=4).padded(schema) == (
        Field("a", np.dtype("i2"), (4, 2)),
        Field("a_length", np.dtype(np.int64)),
        schema[1],
    )
    assert Padding().padded(schema)[0].shape == (-1, 2)
    for wrong in (Padding(fields=("x",)), Padding(fields=("y",))):
        with pytest.raises(PipelineError):
            wrong.padded(schema)
    with pytest.raises(PipelineError):
        Padding().padded((*schema, Field("a_length", np.dtype("i8"))))
    for value in (0.5, 40_000, -40_000):
        with pytest.raises(CastingError):
            Padding(value=value).padded(schema)


@pytest.mark.parametrize(
    ("dtype", "value"), [("i8", 2**53 + 1), ("i8", -(2**63)), ("u8", 2**64 - 1), ("u8", 2.0**63)]
)
def test_an_integer_pads_as_it_is(dtype: str, value: float) -> None:
    column = ragged([np.zeros(n, dtype) for n in (1, 2)])
    assert pad(column, Padding(value=value))[0].tolist() == [[0, value], [0, 0]]
    for wrong in (2.0**64, 2**64, -(2**64)):
        with pytest.raises(CastingError):
            pad(column, Padding(value=wrong))
    with pytest.raises(CastingError):
        Padding(value=2.0**63).padded((Field("x", np.dtype("i8"), ragged=True),))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_a_number_never_becomes_an_infinite_padding(dtype: str) -> None:
    schema = (Field("a", np.dtype(dtype), ragged=True),)
    for value in (-1, 0.1, np.inf, -np.inf, np.nan):
        Padding(value=value).padded(schema)
    too_large = 10**400 if dtype == "f8" else 1e300
    for value in (too_large, -too_large):
        with pytest.raises(CastingError, match="cannot hold the padding value"):
            Padding(value=value).padded(schema)


def test_paddings_that_cannot_be() -> None:
    for options in (
        {"length": 0}, {"multiple": 0}, {"length": 3, "multiple": 2}, {"truncate": True},
    ):  # fmt: skip
        with pytest.raises(OptionError):
            Padding(**options)
    with pytest.raises(OptionError):
        ragged([])
    with pytest.raises(OptionError):
        ragged([np.zeros((1, 2)), np.zeros((1, 3))])
    text: list[Any] = [b"abc", b"de"]
    with pytest.raises(OptionError, match=r"of bytes, np\.frombuffer"):
        ragged(text)


def test_empty_items_do_not_decide_the_dtype() -> None:
    column = ragged([np.array([]), np.array([2**53 + 1])])
    assert column.values.dtype == np.int64
    assert column.values.tolist() == [2**53 + 1]
    assert column.offsets.tolist() == [0, 0, 1]
    assert ragged([np.array([])] * 2).values.dtype == np.float64
    assert ragged([np.zeros((3, 0))]).values.shape == (3, 0)


@pytest.mark.parametrize(
    ("one", "two", "common"),
    [("i4", "f8", "f8"), ("u2", "f4", "f4"), ("i4", "u4", "i8"), ("?", "f4", "f4")],
)
def test_dtypes_are_joined_where_one_holds_all_values(one: str, two: str, common: str) -> None:
    assert ragged([np.ones(1, one), np.ones(2, two)]).values.dtype == common


@pytest.mark.parametrize(
    ("one", "two"),
    [("i8", "f8"), ("i8", "u8"), ("f4", "u8"), ("i8", "c16"), ("i4", "U4"), ("m8[s]", "i8")],
)
def test_dtypes_that_none_holds_are_refused(one: str, two: str) -> None:
    first, second = (np.ones(2, "i8").astype(dtype) for dtype in (one, two))
    with pytest.raises(OptionError, match="does not hold every") as caught:
        ragged([first, second])
    assert str(first.dtype) in caught.value.message
    assert str(second.dtype) in caught.value.message
    assert "item.astype(dtype)" in str(caught.value.hint)


def test_a_field_that_cannot_be_padded_is_told_from_one_that_need_not() -> None:
    plain, words = Field("data", np.dtype("u1"), (2,)), Field("words", np.dtype("u1"), ragged=True)
    for name, schema, message, hint in (
        ("data", (plain,), "is not ragged and needs no pad", "No field is ragged: leave pad out."),
        ("data", (plain, words), "is not ragged and needs no pad", "Use words."),
        ("word", (plain, words), "does not exist", "Did you mean words? Use words."),
    ):
        with pytest.raises(PipelineError) as caught:
            Padding(fields=(name,)).padded(schema)
        assert caught.value.message == f"field {name!r} {message}"
        assert caught.value.hint == hint
