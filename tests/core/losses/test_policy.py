"""Limits that a caller sets."""

from __future__ import annotations

import pytest

from core.losses.policy import Policy
from tests.streams import Block, Stream, feed


@pytest.mark.parametrize(("blocks", "code"), [(64, None), (65, "limit")])
def test_an_event_has_so_many_blocks(blocks: int, code: str | None) -> None:
    idents = range(1, blocks + 1)
    stream = Stream("summary", 10, 4, tuple(Block(7, ident) for ident in idents))
    error = feed([stream.encode()], ["events"], policy=Policy(max_blocks=64)).error
    assert (None if error is None else error[1]) == code
