"""Write the model runner: files that a model of Oasis has in its package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from core.errors import InputError

from .files import failing_as

RUNNER = "supplier_model_runner.py"
"""Name that Oasis looks for."""
_SOURCES = Path(__file__).with_name("model_package")
_MARK = "Runs an Oasis model whose losses Thalweg aggregates."
_SERVER = 'SERVER = "thalweg-server"'
_CLIENT = "CLIENT = None"


def server_path() -> Path:
    """Absolute path of ``thalweg-server`` in the environment of this process.

    Raises:
        InputError: there is none.
    """
    found = _command_path("thalweg-server")
    if found is None:
        raise InputError("thalweg-server is not installed beside this interpreter")
    return found


def _command_path(name: str) -> Path | None:
    """Absolute path of a command in the environment of this process, else on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    return None if found is None else Path(found).absolute()


def write_runner(
    folder: Path, *, server: Path | None = None, client: Path | None = None, force: bool = False
) -> Path:
    """Write ``supplier_model_runner.py`` and the modules that it imports; return its path.

    Args:
        folder: the package of the model, its ``model_package_dir``; made if it is missing.
        server: command to call, by default that of this environment.
        client: command that talks to a service, by default that of this environment, if any.
        force: whether to replace a runner that is not ours.

    Raises:
        InputError: the folder has a runner of the model's own, or cannot be written.
    """
    path = folder / RUNNER
    sources = {path.name: path.read_text(encoding="utf-8") for path in _sources()}
    text = sources.pop(RUNNER).replace(_SERVER, f"SERVER = {str(server or server_path())!r}")
    client = client or _command_path("thalweg")
    if client is not None:
        text = text.replace(_CLIENT, f"CLIENT = {str(client)!r}")
    with failing_as("cannot be written", path):
        if path.exists() and _MARK not in path.read_text(encoding="utf-8") and not force:
            raise InputError(
                "is a runner of the model's own",
                hint="Call its functions from there, or replace it with --force",
                source=str(path),
            )
        folder.mkdir(parents=True, exist_ok=True)
        # Oasis imports it as a module of this package.
        (folder / "__init__.py").touch()
        for name, source in sources.items():
            (folder / name).write_text(source, encoding="utf-8")
        path.write_text(text, encoding="utf-8")
    return path.absolute()


def _sources() -> list[Path]:
    return [path for path in _SOURCES.glob("*.py") if path.name != "__init__.py"]
