"""The program that computes one job: what it may take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from app.server.memory import bound_memory
from tests.forked import ForkedProcess

_ALLOWED = 128 << 20


def take_more_than_allowed(_arguments: Sequence[str]) -> int:
    bound_memory(_ALLOWED)
    within = bytearray(_ALLOWED // 2)
    try:
        bytearray(_ALLOWED)
    except MemoryError:
        return 10 if within else 0
    return 0


def test_a_process_has_so_much_memory(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        process = ForkedProcess(
            take_more_than_allowed, [], log=log, environment=os.environ, directory=tmp_path
        )
    assert process.wait(60) == 10
