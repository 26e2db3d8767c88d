"""The digest of a content is the same wherever its stream was cut."""

from __future__ import annotations

import random

import pytest

from app.runs.uploads import content
from app.runs.uploads.content import ContentHasher


def digest(data: bytes, cuts: list[int]) -> object:
    hasher, at = ContentHasher(), 0
    for cut in [*cuts, len(data)]:
        hasher.update(memoryview(data[at:cut]))
        at = cut
        state = hasher.digest()
        hasher = ContentHasher(state, at)
        hasher.update(memoryview(data[hasher.start : at]))
        assert hasher.digest() == state
    return hasher.digest()


def test_any_cuts_give_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "GROUP", 64)
    chance = random.Random(1)  # noqa: S311 - the places of cuts
    for size in (0, 1, 63, 64, 65, 128, 1000):
        data = chance.randbytes(size)
        whole = digest(data, [])
        for _ in range(20):
            cuts = sorted(chance.randrange(size + 1) for _ in range(chance.randrange(4)))
            assert digest(data, cuts) == whole
        if size:
            assert digest(bytes([data[0] ^ 1]) + data[1:], []) != whole
            assert digest(data[:-1], []) != whole
