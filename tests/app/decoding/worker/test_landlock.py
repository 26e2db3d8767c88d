"""Rulesets of every version of the interface deny all that it can deny."""

from __future__ import annotations

import struct

import pytest

from app.decoding.worker.landlock import ruleset


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (1, [0x1FFF]),
        (2, [0x3FFF]),
        (3, [0x7FFF]),
        (4, [0x7FFF, 3]),
        (5, [0xFFFF, 3]),
        (6, [0xFFFF, 3, 3]),
        (7, [0xFFFF, 3, 3]),
        (99, [0xFFFF, 3, 3]),
    ],
)
def test_rulesets(version: int, words: list[int]) -> None:
    assert ruleset(version) == struct.pack(f"={len(words)}Q", *words)
