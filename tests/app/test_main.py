"""The application in a process of each lane: what it starts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from app.main import create_app
from app.server.board import Board
from app.settings import Settings


@pytest.mark.parametrize(("lane", "works"), [("", True), ("front", False), ("long", True)])
def test_long_work_is_for_processes_of_its_lane(tmp_path: Path, lane: str, works: bool) -> None:
    board = Board(lanes=[lane])
    app = create_app(Settings(data_dir=tmp_path), board, board.workers[0])
    app.parts.warm_up.warms = dict

    async def names() -> set[str]:
        async with app.router.lifespan_context(app):
            return {thread.name for thread in threading.enumerate()}

    found = asyncio.run(names())
    assert "monitor" in found
    assert found & {"sealing", "sweeper"} == ({"sealing", "sweeper"} if works else set())


def test_processes_of_a_lane_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine.workers.count_cores", lambda: 8)
    board = Board(lanes=["front", "quick", "long", "long"])
    widths = []
    for slot in board.workers:
        app = create_app(Settings(data_dir=tmp_path), board, slot)
        widths.append(app.parts.width)
    assert widths == [8, 8, 4, 4]
