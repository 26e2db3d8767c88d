"""Operations that are timed, failed ones as such."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from app.state.base import HeadMissingError, StoreError
from app.state.timed import TimedHeads
from tests.app.state.memory import MemoryStateStore


def test_each_operation_is_noted_with_how_it_ended() -> None:
    noted: list[tuple[str, bool]] = []

    def note(operation: str, seconds: float, failed: bool) -> None:
        assert seconds >= 0
        noted.append((operation, failed))

    inner = MemoryStateStore()
    heads = TimedHeads(inner, note)
    head = heads.create("view", "a", b"1")
    assert heads.get("view", "a").value == b"1"
    head = heads.compare_and_swap(head, b"2")
    heads.touch("view", "a")
    assert heads.list("view").heads[0].value == b"2"
    heads.delete("view", "a", head)
    with pytest.raises(HeadMissingError):
        heads.get("view", "a")
    expected = ["create", "get", "swap", "touch", "list", "delete", "get"]
    assert noted == [(name, False) for name in expected]

    inner.touch = Mock(side_effect=StoreError("the disk is gone"))  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        heads.touch("view", "a")
    assert noted[-1] == ("touch", True)
    heads.close()
