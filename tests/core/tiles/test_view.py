"""What a view is identified by."""

from __future__ import annotations

from typing import Any

import pytest

from core.tiles import view as view_module
from core.tiles.view import parse_view

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
