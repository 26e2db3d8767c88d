"""Sources: items, fingerprints, and columns that cannot be a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from core.errors import PipelineError
from core.iterate.base import Field, Ragged
from core.iterate.sources import ArraySource
from tests.core.iterate.drain import first, rows
from tests.core.iterate.items import WORDS, Counter, ragged


def test_a_source_gives_what_it_was_given() -> None:
    block = WORDS.at(np.array([3, 0, 0]))
    assert rows(block) == [(3, [6]), (0, [1, 2]), (0, [1, 2])]
    assert WORDS.schema == (
        Field("id", np.dtype(np.int64)),
        Field("words", np.dtype(np.int64), (), ragged=True),
    )
    assert rows(WORDS.at(np.array([], np.int64))) == []
    assert first(Counter(), 3) == [0, 1, 2]


def test_fingerprints_tell_data_apart() -> None:
    one = ArraySource({"a": np.arange(3)})
    assert one.fingerprint == ArraySource({"a": np.arange(3)}).fingerprint
    others = [
        ArraySource({"b": np.arange(3)}),
        ArraySource({"a": np.arange(3).astype(np.int32)}),
        ArraySource({"a": np.arange(3).astype(np.uint64)}),
        ArraySource({"a": np.array([0, 1, 3])}),
        ArraySource({"a": np.arange(3).reshape(3, 1)}),
        ArraySource({"a": ragged([0], [1], [2])}),
        ArraySource({"a": ragged([0, 1], [], [2])}),
        Counter(3),
        Counter(4),
        Counter(3, "x"),
        Counter(),
    ]
    prints = {source.fingerprint for source in (one, *others)}
    assert len(prints) == 1 + len(others)
    assert all(len(each) == 16 for each in prints)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"a": np.arange(3), "b": np.arange(2)},
        {"a": np.array(1)},
        {"a": np.array([None])},
        {"a": [1, 2, 3]},
        {"a": Ragged([1, 2, 3], np.array([0, 3]))},  # type: ignore[arg-type]
        {"a": Ragged(np.arange(3), np.array([1, 3]))},
        {"a": Ragged(np.arange(3), np.array([0, 4]))},
        {"a": Ragged(np.arange(3), np.array([0, 2, 1]))},
    ],
)
def test_columns_that_are_no_source(columns: Mapping[str, Any]) -> None:
    with pytest.raises(PipelineError) as caught:
        ArraySource(columns)
    assert caught.value.field in {"columns", "a"}


def test_names_are_text() -> None:
    columns: Any = {1: np.arange(3)}
    with pytest.raises(PipelineError, match="a field is named 1") as caught:
        ArraySource(columns)
    assert caught.value.hint == "Give its name as text."


@pytest.mark.parametrize("columns", [np.arange(3), [np.arange(3)], None])
def test_columns_without_names_are_refused_in_words(columns: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"name it, as in ArraySource\(\{'x': array\}\)"):
        ArraySource(columns)
