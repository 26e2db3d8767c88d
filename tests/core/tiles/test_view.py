"""Views out of JSON: identified, read back, and refused."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from core.arrays import Integers
from core.errors import CoreError, OptionError, SelectionError, ShapeError
from core.tiles import view as view_module
from core.tiles.view import View, parse_view

FROZEN: list[tuple[dict[str, Any], str]] = [
    ({}, "49d46dbf435a59c0"),
    ({"select": {"frames": [3, 1]}}, "83124121a3e7b317"),
    (
        {"select": {"shuffle": {"seed": 7}}, "dtype": "<f4", "missing": "nan", "sync_offset": -2},
        "74e6da55918a4a11",
    ),
    (
        {"select": {"mask": "gA=="}, "bin": {"nav": 1, "sig": 2}, "corrections": False},
        "cf82517585db5771",
    ),
    (
        {
            "select": {"nav": [[0, 4, 2]]},
            "sig": [[1, 3]],
            "tile_shape": [2, 2],
            "casting": "clip",
        },
        "a3578072c6e38064",
    ),
]


@pytest.mark.parametrize(("spec", "digest"), FROZEN)
def test_identities_are_frozen(spec: dict[str, Any], digest: str) -> None:
    assert parse_view(spec).digest().hex() == digest


def test_another_algorithm_is_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    before = parse_view({}).digest()
    monkeypatch.setattr(view_module, "ALGORITHM", view_module.ALGORITHM + 1)
    assert parse_view({}).digest() != before


@pytest.mark.parametrize("spec", [spec for spec, _ in FROZEN])
def test_a_view_reads_back_from_what_it_says(spec: dict[str, Any]) -> None:
    view = parse_view(spec)
    assert view.to_json() == spec
    assert parse_view(view.to_json()) == view
    assert (view == View()) == (spec == {})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"nav": [[0, 2]]},
            'nav is a member of select, not of a view. Give {"select": {"nav": …}}',
        ),
        ({"frames": [3]}, 'Give {"select": {"frames": …}}'),
        ({"select": "all"}, 'select is not an object. Such as {"all": true}'),
        ({"select": {"frame": [3]}}, "Did you mean frames?"),
    ],
)
def test_what_is_selected_is_said_in_select(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_view(spec)
    assert said in str(caught.value)


LONG = 200_000
"""Longer than what is turned into text at a time."""


@pytest.mark.parametrize("form", ["frames", "mask"])
def test_a_long_selection_is_identified_as_a_short_one(form: str) -> None:
    indices = np.arange(LONG)[::-1].tolist()
    mask = base64.b64encode(bytes(range(256)) * 1500).decode()
    spec = {"select": {form: indices if form == "frames" else mask}, "dtype": "<f4"}
    view = parse_view(spec)
    text = json.dumps([view_module.ALGORITHM, spec], sort_keys=True, separators=(",", ":"))
    assert view.digest() == hashlib.blake2b(text.encode(), digest_size=8).digest()
    assert view.to_json() == spec
    assert parse_view(view.to_json()) == view


def test_packed_indices_are_those_of_a_list() -> None:
    values = np.arange(1000)[::-1].copy()
    packed = parse_view({"select": {"frames": Integers(values)}})
    assert packed == parse_view({"select": {"frames": values.tolist()}})
    for index in (-1, 2**62 + 1):
        with pytest.raises(OptionError, match=f"is {index}, but must be at least 0"):
            parse_view({"select": {"frames": Integers(np.array([3, index, 5]))}})


@pytest.mark.parametrize("cut", [4, 1 << 18, (1 << 18) + 4])
def test_base64_has_no_padding_before_its_end(cut: int) -> None:
    text = base64.b64encode(bytes(300_000)).decode()
    with pytest.raises(OptionError, match="not base64"):
        parse_view({"select": {"mask": text[: cut - 1] + "=" + text[cut:]}})


GOOD: list[dict[str, Any]] = [
    {"select": {"all": True}},
    {"select": {"frames": [0, 0]}},
    {"select": {"nav": []}},
    {"select": {"nav": [[0, 1], [3, 9, 2]]}},
    {"select": {"shuffle": {"seed": 0}}},
    {"select": {"shuffle": {"seed": 2**64 - 1}}},
    {"sig": []},
    {"bin": {}},
    {"tile_shape": [1] * 8},
    {"tile_shape": None, "target_bytes": 1},
    {"tile_shape": [1], "target_bytes": None},
    {"sync_offset": -(2**62)},
    {"sync_offset": 2**62},
    {"dtype": "c16", "casting": "wrap", "missing": "zero"},
]

BAD: list[tuple[dict[str, Any], type[CoreError]]] = [
    ({"selects": {}}, OptionError),
    ({"select": {}}, OptionError),
    ({"select": None}, OptionError),
    ({"select": {"all": True, "frames": [0]}}, OptionError),
    ({"select": {"all": 1}}, OptionError),
    ({"select": {"every": True}}, OptionError),
    ({"select": {"frames": []}}, SelectionError),
    ({"select": {"frames": "12"}}, OptionError),
    ({"select": {"frames": [True]}}, OptionError),
    ({"select": {"frames": [1.0]}}, OptionError),
    ({"select": {"frames": [-1]}}, OptionError),
    ({"select": {"frames": [2**62 + 1]}}, OptionError),
    ({"select": {"mask": 5}}, OptionError),
    ({"select": {"mask": "gA="}}, OptionError),
    ({"select": {"mask": "gA==!"}}, OptionError),
    ({"select": {"nav": 5}}, OptionError),
    ({"select": {"nav": [5]}}, OptionError),
    ({"select": {"nav": [[1]]}}, OptionError),
    ({"select": {"nav": [[0, 1, 1, 1]]}}, OptionError),
    ({"select": {"nav": [[1, 1]]}}, SelectionError),
    ({"select": {"nav": [[2, 1]]}}, SelectionError),
    ({"select": {"nav": [[-1, 1]]}}, OptionError),
    ({"select": {"nav": [[0, 1, 0]]}}, OptionError),
    ({"select": {"shuffle": {}}}, OptionError),
    ({"select": {"shuffle": {"seed": -1}}}, OptionError),
    ({"select": {"shuffle": {"seed": 2**64}}}, OptionError),
    ({"select": {"shuffle": {"seed": 1, "seeds": 2}}}, OptionError),
    ({"sig": [[1]]}, OptionError),
    ({"sig": [[0, 1, 1]]}, OptionError),
    ({"sig": [[1, 1]]}, SelectionError),
    ({"sig": [[-1, 1]]}, OptionError),
    ({"sig": "01"}, OptionError),
    ({"bin": {"nav": 0}}, OptionError),
    ({"bin": {"sig": 0}}, OptionError),
    ({"bin": {"x": 1}}, OptionError),
    ({"bin": 2}, OptionError),
    ({"tile_shape": []}, ShapeError),
    ({"tile_shape": [1] * 9}, ShapeError),
    ({"tile_shape": [0]}, OptionError),
    ({"tile_shape": [1], "target_bytes": 1}, OptionError),
    ({"target_bytes": 0}, OptionError),
    ({"dtype": "nonsense"}, OptionError),
    ({"dtype": "U4"}, OptionError),
    ({"dtype": "(2,)f4"}, OptionError),
    ({"dtype": 4}, OptionError),
    ({"casting": "none"}, OptionError),
    ({"missing": None}, OptionError),
    ({"corrections": 1}, OptionError),
    ({"corrections": None}, OptionError),
    ({"sync_offset": -(2**62) - 1}, OptionError),
    ({"sync_offset": 2**62 + 1}, OptionError),
    ({"sync_offset": 0.0}, OptionError),
]


@pytest.mark.parametrize("spec", GOOD)
def test_views_that_can_be(spec: dict[str, Any]) -> None:
    view = parse_view(spec)
    assert parse_view(view.to_json()) == view


@pytest.mark.parametrize(("spec", "error"), BAD)
def test_views_that_cannot_be(spec: dict[str, Any], error: type[CoreError]) -> None:
    with pytest.raises(error) as caught:
        parse_view(spec)
    assert type(caught.value) is error


def test_a_list_of_positions_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "MAX_SELECTED", 16)
    parse_view({"select": {"frames": [0] * 16}})
    parse_view({"select": {"mask": "gAA="}})
    for select in ({"frames": [0] * 17}, {"mask": "gAAA"}):
        with pytest.raises(SelectionError, match="more than 16"):
            parse_view({"select": select})


@pytest.mark.parametrize("nav", [[5, 7], [[1]], [[0, 1, 1, 1]]])
def test_a_selection_in_the_scan_says_what_an_axis_takes(nav: list[Any]) -> None:
    with pytest.raises(OptionError, match=r"needs \[start, stop\] or \[start") as caught:
        parse_view({"select": {"nav": nav}})
    assert caught.value.hint == "Such as [[5, 6], [0, 64, 2]]"
