"""Named transforms and predicates."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import orjson
import pytest

from core.errors import PipelineError, TransformError
from core.iterate.base import Field
from core.iterate.mapping import named_filter, named_map
from core.iterate.sources import ArraySource
from core.iterate.transforms import PREDICATES, RANDOM_TRANSFORMS, TRANSFORMS
from tests.core.iterate.items import MIXED, one

NAMED: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("absolute", {"field": "i"}, "i", [1, 2, 3]),
    ("cast", {"field": "i", "dtype": "f4"}, "i", [1.0, -2.0, 3.0]),
    ("cast", {"field": "w", "dtype": "u1"}, "w", [[1], [2, 3], []]),
    ("clip", {"field": "i", "low": -1, "high": 2}, "i", [1, -1, 2]),
    ("clip", {"field": "m", "low": 1.6, "high": 9, "dtype": "f4"}, "m",
     np.clip(np.arange(12), np.float32(1.6), 9).reshape(3, 2, 2).tolist()),
    ("flatten", {"field": "m"}, "m", np.arange(12).reshape(3, 4).tolist()),
    ("length", {"field": "w"}, "length", [1, 2, 0]),
    ("rename", {"field": "i", "to": "j"}, "j", [1, -2, 3]),
    ("scale", {"field": "i", "factor": 0.5, "offset": 1}, "i", [1.5, 0.0, 2.5]),
    ("scale", {"field": "i", "mean": 1, "std": 2}, "i", [0.0, -1.5, 1.0]),
    ("scale", {"field": "i", "std": 3, "dtype": "<f4"}, "i",
     (np.array([1, -2, 3], "f4") / np.float32(3)).tolist()),
    ("scale", {"field": "m", "mean": [1, 2], "std": [4, 0.5]}, "m",
     ((np.arange(12.0).reshape(3, 2, 2) - [1, 2]) / [4, 0.5]).tolist()),
    ("scale", {"field": "i", "factor": 0.1, "dtype": ">f2"}, "i",
     (np.array([1, -2, 3], "f2") * np.float16(0.1)).tolist()),
    ("select", {"fields": ["i"]}, "i", [1, -2, 3]),
    ("sqrt", {"field": "m"}, "m", np.sqrt(np.arange(12)).reshape(3, 2, 2).tolist()),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "args", "field", "expected"), NAMED)
def test_named_transforms(fn: str, args: dict[str, Any], field: str, expected: list[Any]) -> None:
    stage = named_map(MIXED, fn, args)
    assert one(stage, field) == expected
    assert field in {each.name for each in stage.schema}


def test_every_transform_is_tested() -> None:
    assert {fn for fn, *_ in NAMED} == set(TRANSFORMS)
    assert set(RANDOM_TRANSFORMS) == {"flip", "jitter", "uniform"}


def test_named_random_transforms() -> None:
    numbers = one(named_map(MIXED, "uniform", {}, seed=1), "random")
    assert all(0 <= x < 1 for x in numbers)
    moved = np.array(one(named_map(MIXED, "jitter", {"field": "m", "amount": 2}, seed=1), "m"))
    shift = moved - np.arange(12).reshape(3, 2, 2)
    assert np.allclose(shift, shift[:, :1, :1])
    assert len(set(shift[:, 0, 0])) == 3
    flipped = one(named_map(MIXED, "flip", {"field": "m", "probability": 1}), "m")
    assert flipped == np.arange(12).reshape(3, 2, 2)[:, :, ::-1].tolist()
    kept = one(named_map(MIXED, "flip", {"field": "m", "axis": 0, "probability": 0}), "m")
    assert kept == np.arange(12).reshape(3, 2, 2).tolist()
    ragged_too = one(named_map(MIXED, "jitter", {"field": "w", "amount": 1}), "w")
    assert [len(item) for item in ragged_too] == [1, 2, 0]


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        ("scale", {"field": "none"}),
        ("scale", {"field": "i", "std": 0}),
        ("scale", {"field": "i", "std": -1}),
        ("scale", {"field": "i", "std": 1e-60, "dtype": "<f4"}),
        ("scale", {"field": "i", "std": 1e60, "dtype": "<f4"}),
        ("scale", {"field": "i", "mean": 1e60, "dtype": "<f4"}),
        ("scale", {"field": "i", "mean": [1]}),
        ("scale", {"field": "w", "mean": [1, 2]}),
        ("scale", {"field": "m", "mean": [1, 2, 3]}),
        ("scale", {"field": "m", "std": [1, 0]}),
        ("scale", {"field": "m", "mean": [1, None]}),
        ("scale", {"field": "m", "mean": []}),
        ("scale", {"field": "i", "mean": 1, "factor": 2}),
        ("scale", {"field": "i", "mean": 1, "dtype": "<i4"}),
        ("scale", {"field": "i", "factor": "2"}),
        ("scale", {"field": "i", "factor": float("inf")}),
        ("scale", {"field": "i", "factor": 10**400}),
        ("scale", {"field": "i", "fctor": 2}),
        ("cast", {"field": "i"}),
        ("cast", {"field": "i", "dtype": "O"}),
        ("cast", {"field": "i", "dtype": "nonsense"}),
        ("cast", {"field": "f", "dtype": "i4"}),
        ("clip", {"field": "i", "low": 2, "high": 1}),
        ("clip", {"field": "i", "low": 0, "high": 300, "dtype": "u1"}),
        ("flatten", {"field": "i"}),
        ("length", {"field": "i"}),
        ("rename", {"field": "i", "to": "f"}),
        ("rename", {"field": "i", "to": ""}),
        ("rename", {"field": "i", "to": "j" * 201}),
        ("length", {"field": "w", "to": "a\0b"}),
        ("select", {"fields": []}),
        ("select", {"fields": ["i", "i"]}),
        ("select", {"fields": ["none"]}),
        ("uniform", {"to": "i"}),
        ("flip", {"field": "i"}),
        ("flip", {"field": "m", "axis": 2}),
        ("jitter", {"field": "m", "amount": -1}),
        ("flip", {"field": "m", "probability": 2}),
    ],
)
def test_arguments_that_do_not_fit(fn: str, args: dict[str, Any]) -> None:
    with pytest.raises(PipelineError) as caught:
        named_map(MIXED, fn, args)
    assert caught.value.field == "args"


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        ({"field": "ii"}, "field is 'ii'", "Did you mean i?"),
        ({}, "field is missing", "Use i, f, m, w"),
        (
            {"field": "m", "mean": [1]},
            "mean has 1 numbers",
            "Give one, or 2 for the last axis of m.",
        ),
        ({"field": "i", "mean": [1]}, "mean has 1 numbers", "Give one of i."),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(PipelineError) as caught:
        named_map(MIXED, "scale", args)
    assert caught.value.message == message
    assert str(caught.value.hint).startswith(hint)


@pytest.mark.parametrize(
    ("pred", "args", "expected"),
    [
        ("between", {"field": "i", "low": -2, "high": 3}, [1, -2]),
        ("equal", {"field": "i", "value": 3}, [3]),
        ("finite", {"field": "f"}, [1, -2]),
        ("greater", {"field": "i", "value": 1}, [3]),
        ("greater_equal", {"field": "i", "value": 1}, [1, 3]),
        ("length_between", {"field": "w", "low": 1, "high": 3}, [1, -2]),
        ("less", {"field": "f", "value": 0}, [-2]),
        ("less_equal", {"field": "f", "value": 1.5}, [1, -2]),
        ("not_equal", {"field": "i", "value": 3}, [1, -2]),
    ],
)
def test_named_predicates(pred: str, args: dict[str, Any], expected: list[int]) -> None:
    assert one(named_filter(MIXED, pred, args), "i") == expected
    assert pred in PREDICATES


@pytest.mark.parametrize(
    ("name", "args", "hint"),
    [
        ("between", {"low": 5, "high": 1}, "high is excluded"),
        ("between", {"low": 5, "high": 5}, "high is excluded"),
        ("equal", {"value": 3.5}, "label is uint8: none equals that."),
        ("equal", {"value": 300}, "label is uint8: none equals that."),
        ("equal", {"value": -1}, "label is uint8: none equals that."),
        ("between", {"low": 3.2, "high": 3.7}, "label has whole numbers, 0 to 255: none passes."),
        ("between", {"low": 255.5, "high": 1e300}, "label has whole numbers, 0 to 255"),
        ("between", {"low": -9, "high": 0}, "label has whole numbers, 0 to 255: none passes."),
        ("greater", {"value": 255}, "label is uint8, 0 to 255: none passes."),
        ("greater_equal", {"value": 1e300}, "label is uint8, 0 to 255: none passes."),
        ("less", {"value": 0}, "label is uint8, 0 to 255: none passes."),
        ("less_equal", {"value": -1}, "label is uint8, 0 to 255: none passes."),
    ],
)
def test_tests_that_nothing_passes_are_refused(
    name: str, args: dict[str, float], hint: str
) -> None:
    schema = (Field("label", np.dtype("u1")),)
    with pytest.raises(PipelineError) as caught:
        PREDICATES[name]({"field": "label", **args}, schema)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)
    for value in (0, 255, 3.0):
        PREDICATES["equal"]({"field": "label", "value": value}, schema)
    PREDICATES["not_equal"]({"field": "label", "value": 3.5}, schema)
    for low, high in ((-9, 0.5), (255, 1e300), (3.2, 4.1)):
        PREDICATES["between"]({"field": "label", "low": low, "high": high}, schema)
    for test, last in (("greater", 254), ("greater_equal", 255), ("less", 1), ("less_equal", 0)):
        PREDICATES[test]({"field": "label", "value": last}, schema)
    PREDICATES["greater"]({"field": "f", "value": 1e300}, (Field("f", np.dtype("f4")),))


def test_an_integer_below_all_of_json_is_no_integer_of_a_field() -> None:
    stage = ArraySource({"x": np.array([-(2**63), 0], "i8")})
    value = orjson.loads(str(-(2**63) - 1))
    with pytest.raises(PipelineError, match="value is -9223372036854775809"):
        named_filter(stage, "equal", {"field": "x", "value": value})
    with pytest.raises(PipelineError):
        named_filter(stage, "less_equal", {"field": "x", "value": value})
    for test in ("greater", "not_equal"):
        assert one(named_filter(stage, test, {"field": "x", "value": value}), "x") == [-(2**63), 0]


SIGNED = [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63), 2**63 - 2, 0, 3]
UNSIGNED = [2**64 - 1, 0, 2**63, 5, 2**63 - 1, 1, 3, 2]


@pytest.mark.parametrize(("dtype", "values"), [("i8", SIGNED), ("u8", UNSIGNED), (">i8", SIGNED)])
def test_integers_compare_exactly(dtype: str, values: list[int]) -> None:
    stage = ArraySource({"x": np.array(values, dtype)})
    tests = {
        "equal": operator.eq,
        "not_equal": operator.ne,
        "greater": operator.gt,
        "greater_equal": operator.ge,
        "less": operator.lt,
        "less_equal": operator.le,
    }
    for limit in (*values, 2.5, float(2**53), 2.0**63, 2**53 - 1, 2**63 - 3, -0.5):
        for name, test in tests.items():
            expected = [x for x in values if test(x, limit)]
            try:
                passed = named_filter(stage, name, {"field": "x", "value": limit})
            except PipelineError:
                assert not expected, (name, limit)
                continue
            assert one(passed, "x") == expected, (name, limit)
        for low in (low for low in values if low < limit):
            passed = named_filter(stage, "between", {"field": "x", "low": low, "high": limit})
            assert one(passed, "x") == [x for x in values if low <= x < limit]


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 2**62, "<i8"),
        (2**53 + 1, 2**63 - 2, "<i8"),
        (0.6, 2.5, ">i8"),
        (0, 255, "u1"),
        (-(2**63), 2**53 + 1, "<i8"),
        (2**63 - 1, 2**64 - 1, "<u8"),
    ],
)
@pytest.mark.parametrize(("field", "values"), [("i8", SIGNED), ("u8", UNSIGNED)])
def test_integers_are_clipped_exactly(
    field: str, values: list[int], low: float, high: float, dtype: str
) -> None:
    stage = ArraySource({"x": np.array(values, field)})
    clipped = named_map(stage, "clip", {"field": "x", "low": low, "high": high, "dtype": dtype})
    assert one(clipped, "x") == [min(max(x, round(low)), round(high)) for x in values]
    assert clipped.schema[0].dtype == np.dtype(dtype)


def test_a_least_integer_has_no_absolute_value() -> None:
    stage = ArraySource({"x": np.array([-127, 127, -128], np.int8)})
    with pytest.raises(TransformError, match="item at position 2: int8 has no absolute value"):
        one(named_map(stage, "absolute", {"field": "x"}), "x")
    with pytest.raises(PipelineError, match="field 'x' has no axes to flip"):
        named_map(stage, "flip", {"field": "x"})


def test_floats_are_clipped_to_integers_or_refused() -> None:
    values = np.array([np.inf, -1.5, 2.5, 1e300, np.nan])
    stage = ArraySource({"x": values})
    args = {"field": "x", "low": -1, "high": 2**62, "dtype": "i8"}
    numbers = ArraySource({"x": values[:4]})
    assert one(named_map(numbers, "clip", args), "x") == [2**62, -1, 2, 2**62]
    with pytest.raises(TransformError, match="item at position 4: NaN is no number of int64"):
        one(named_map(stage, "clip", args), "x")
    i8 = np.iinfo("i8")
    for low, high, bound, nearest in (
        (0, 2**53 + 1, f"high is {2**53 + 1}", 2**53),
        (i8.min, i8.max, f"high is {i8.max}", 2**63 - 1024),
        (2**53 + 1, 2**60, f"low is {2**53 + 1}", 2**53 + 2),
        (i8.min + 1, 0, f"low is {i8.min + 1}", -(2**63) + 1024),
    ):
        with pytest.raises(
            PipelineError, match=f"^clip: {bound}, which float64|^{bound}, "
        ) as caught:
            named_map(stage, "clip", {**args, "low": int(low), "high": int(high)})
        assert f"give {nearest}." in str(caught.value.hint)
        given = {"low": int(low), "high": int(high), bound.split()[0]: nearest}
        named_map(stage, "clip", {**args, **given})


@pytest.mark.parametrize("name", ["data", "none"])
def test_what_has_no_number_is_told_how_to_get_one(name: str) -> None:
    schema = (Field("data", np.dtype("u1"), (2, 2)),)
    with pytest.raises(PipelineError) as caught:
        PREDICATES["greater"]({"field": name, "value": 1}, schema)
    assert "reduce them by mean over pixels" in str(caught.value.hint)
