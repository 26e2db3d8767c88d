"""The client as people install it: a wheel that needs nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import app.client

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "app" / "client"

PUBLIC = [
    "Answer",
    "AsyncAnswer",
    "AsyncBatches",
    "AsyncClient",
    "AsyncDataset",
    "AsyncEventAnswer",
    "AsyncPipeline",
    "AsyncRowAnswer",
    "AsyncTiles",
    "AsyncView",
    "Batch",
    "Batches",
    "Box",
    "Client",
    "ConnectionFailed",
    "Dataset",
    "EPCalc",
    "EPType",
    "End",
    "EventAnswer",
    "Field",
    "LossOptions",
    "LossSet",
    "Part",
    "Pipeline",
    "Plan",
    "PortfolioAnswer",
    "ProblemError",
    "ProducerFailed",
    "Progress",
    "ProtocolError",
    "Ragged",
    "ReportTable",
    "RowAnswer",
    "Run",
    "RunEvent",
    "RunRows",
    "SourceError",
    "StateError",
    "Stream",
    "ThalwegError",
    "Tile",
    "TileProgress",
    "Tiles",
    "Uploaded",
    "Uploading",
    "View",
    "ViewOptions",
    "__version__",
]

PROBE = """
import json, pkgutil, sys
import thalweg
plain = sorted(sys.modules)
thalweg.AsyncClient
for module in pkgutil.walk_packages(thalweg.__path__, "thalweg.", onerror=lambda name: None):
    if module.name.startswith(("thalweg.doors.", "thalweg.torch", "thalweg.__main__")):
        continue  # want libraries that may not be installed
    __import__(module.name)
print(json.dumps({
    "file": thalweg.__file__,
    "version": thalweg.__version__,
    "public": thalweg.__all__,
    "there": [name for name in thalweg.__all__ if hasattr(thalweg, name)],
    "plain": plain,
    "all": sorted(sys.modules),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--wheel-dir", str(directory)]
    subprocess.run([*command, str(CLIENT)], check=True, timeout=300)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, timeout=300)
    return target


def run(installed: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *args],
        env={"PYTHONPATH": str(installed), "PATH": ""},
        cwd=installed,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture(scope="module")
def probed(installed: Path) -> Any:  # noqa: ANN401
    return json.loads(run(installed, "-c", PROBE))


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {f"thalweg/{path.relative_to(CLIENT)}" for path in CLIENT.rglob("*.py")}
    assert {name for name in names if not name.startswith("thalweg-")} == {
        *modules,
        "thalweg/doors/napari.yaml",
        "thalweg/py.typed",
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.name == f"thalweg-{app.client.__version__}-py3-none-any.whl"


def test_it_imports_nothing_of_ours(installed: Path, probed: Any) -> None:  # noqa: ANN401
    assert Path(probed["file"]).is_relative_to(installed)
    ours = {"app", "core", "numba", "fastapi", "pyarrow"}
    assert not ours & {name.split(".")[0] for name in probed["all"]}


def test_httpx_is_imported_where_it_is_needed(probed: Any) -> None:  # noqa: ANN401
    assert "httpx" not in probed["plain"]
    assert "httpx" in probed["all"]


def test_the_public_names(probed: Any) -> None:  # noqa: ANN401
    assert sorted(app.client.__all__) == PUBLIC
    assert probed["public"] == app.client.__all__
    assert probed["there"] == app.client.__all__
    assert probed["version"] == app.client.__version__


def test_the_command(installed: Path) -> None:
    assert run(installed, "-m", "thalweg", "--version").startswith("thalweg ")
    script = (installed / "bin" / "thalweg").read_text()
    assert "from thalweg.command.main import main" in script


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute"):
        _ = app.client.nothing
