"""The tutorials of the documentation do what they say."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from deploy.docs.tutorials import PAGES, Tutorial
from tests.scale import PURE_PYTHON
from tests.server_process import HOST

NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed: the tutorial's program for it is not run",
)


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.skipif(PURE_PYTHON, reason="commands are processes of their own")
@pytest.mark.parametrize(
    ("name", "has_torch"),
    [
        ("losses", False),
        ("portfolio", False),
        ("scan", False),
        ("batches", False),
        pytest.param("batches", True, marks=NEEDS_TORCH),
    ],
)
def test_a_tutorial_runs_as_it_is_written(name: str, tmp_path: Path, *, has_torch: bool) -> None:
    folder = tmp_path / name
    folder.mkdir()
    tutorial = Tutorial(PAGES / f"{name}.md", has_torch=has_torch)
    tutorial.run(folder, THALWEG_PORT=str(free_port()))


def test_there_is_no_other_tutorial() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {"losses", "portfolio", "scan", "batches"}
