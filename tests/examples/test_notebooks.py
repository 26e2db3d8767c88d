"""Notebooks and recipes run from their first line to their last, with the libraries they are for.

They want an environment of their own, which ``make interop`` makes: the client as users install
it, and ``deploy/requirements-doors.txt``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.client import Client
from app.command.main import main
from tests.client.running import ROOT
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

PYTHON = os.environ.get("THALWEG_DOORS_PYTHON")
EXAMPLES = ROOT / "deploy/examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
RECIPES = re.findall(r"```python\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
RUN = "import nbclient, nbformat, sys; book = nbformat.read(sys.argv[1], 4)\n"
RUN += "nbclient.NotebookClient(book, timeout=300).execute()\n"
RUN += "assert any('image/png' in str(cell.get('outputs')) for cell in book.cells)"

needs_libraries = pytest.mark.skipif(
    PYTHON is None or PURE_PYTHON, reason="no THALWEG_DOORS_PYTHON: run by make interop"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    place = tmp_path_factory.mktemp("files")
    assert main(["sample", "-o", str(place / "sample"), "--events", "200"]) == 0
    np.random.default_rng(1).integers(0, 99, (256, 32, 32), "u2").tofile(place / "scan.raw")
    process = ServerProcess(tmp_path_factory.mktemp("service"), dataset_roots=place)
    process.place = place / "sample"  # type: ignore[attr-defined]
    yield process
    process.stop()
    assert not process.failures()


def execute(server: ServerProcess, code: str, *args: object) -> None:
    done = subprocess.run(
        [Path(str(PYTHON)).absolute(), "-c", code, *map(str, args)],
        cwd=server.place,  # type: ignore[attr-defined]
        env={"PATH": os.environ["PATH"], "THALWEG_URL": server.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@needs_libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws(server: ServerProcess, path: Path) -> None:
    execute(server, RUN, path)


@needs_libraries
@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_a_recipe_runs(server: ServerProcess, number: int) -> None:
    with Client(server.url) as client:
        run = client.runs.create("gul", ["melt"], partitions=1)
        client.runs.upload(run, server.place / "summary.bin", partition=1)  # type: ignore[attr-defined]
        client.runs.seal(run)
    execute(server, f"url = {server.url!r}; run = {run.id!r}\n{RECIPES[number]}")


def test_notebooks_are_kept_without_their_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None
