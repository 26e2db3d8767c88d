"""Write the model runner: a file that a model of Oasis has in its package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from core.errors import InputError

RUNNER = "supplier_model_runner.py"
"""Name that Oasis looks for."""
_SOURCE = Path(__file__).with_name(RUNNER)
_MARK = "Runs an Oasis model whose losses Thalweg aggregates."
_SERVER = 'SERVER = "thalweg-server"'


def server_path() -> Path:
    """Absolute path of ``thalweg-server`` in the environment of this process.

    Raises:
        InputError: there is none.
    """
    beside = Path(sys.executable).with_name("thalweg-server")
    found = str(beside) if beside.is_file() else shutil.which("thalweg-server")
    if found is None:
        raise InputError("thalweg-server is not installed beside this interpreter")
    return Path(found).absolute()


def write_runner(folder: Path, *, server: Path | None = None, force: bool = False) -> Path:
    """Write ``supplier_model_runner.py``; return its path.

    Args:
        folder: the package of the model, its ``model_package_dir``; made if it is missing.
        server: command to call, by default that of this environment.
        force: whether to replace a runner that is not ours.

    Raises:
        InputError: the folder has a runner of the model's own, or cannot be written.
    """
    path = folder / RUNNER
    text = _SOURCE.read_text(encoding="utf-8")
    text = text.replace(_SERVER, f"SERVER = {str(server or server_path())!r}")
    try:
        if path.exists() and _MARK not in path.read_text(encoding="utf-8") and not force:
            raise InputError(
                "is a runner of the model's own",
                hint="Call its functions from there, or replace it with --force",
                source=str(path),
            )
        folder.mkdir(parents=True, exist_ok=True)
        # Oasis imports it as a module of this package.
        (folder / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot be written: {e.strerror}", source=str(path)) from e
    return path.absolute()
