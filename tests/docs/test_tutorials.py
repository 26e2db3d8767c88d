"""The tutorials of the documentation do what they say."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from pathlib import Path

import pytest

from deploy.docs.tutorials import PAGES, Tutorial
from tests.scale import PURE_PYTHON
from tests.server_process import HOST

TORCH = os.environ.get("THALWEG_TORCH_PYTHON")
if TORCH is None and importlib.util.find_spec("torch") is not None:
    TORCH = sys.executable
NEEDS_TORCH = pytest.mark.skipif(
    TORCH is None, reason="no THALWEG_TORCH_PYTHON, nor torch: run by make interop"
)


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.skipif(PURE_PYTHON, reason="commands are processes of their own")
@pytest.mark.parametrize(
    ("name", "torch"),
    [
        ("losses", None),
        ("portfolio", None),
        ("scan", None),
        ("batches", None),
        pytest.param("batches", TORCH, marks=NEEDS_TORCH, id="batches-torch"),
    ],
)
def test_a_tutorial_runs_as_it_is_written(name: str, torch: str | None, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    tutorial = Tutorial(PAGES / f"{name}.md", torch=torch)
    tutorial.run(folder, THALWEG_PORT=str(free_port()))


def test_there_is_no_other_tutorial() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {"losses", "portfolio", "scan", "batches"}
