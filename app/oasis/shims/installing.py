"""Writes the executables.

Each is a script of a few lines for the interpreter that runs this, by its absolute path, in
isolated mode: neither PYTHONPATH nor the run directory, which may have modules of any name, has a
say in what it imports. Beside the scripts is a copy of the compiled kernels, because a worker often
runs as another user than the one who installed them, whose cache it cannot read.
"""

from __future__ import annotations

import os
import shutil
import site
import sys
from pathlib import Path
from typing import Final

from app.oasis.files import failing_as
from core._jit import CACHE_VARIABLE, is_build_published, publish
from core.errors import OptionError

from .options import PARSERS

_MARK: Final = "# Written by thalweg-server oasis shims."
_LONGEST: Final = 127
"""Characters of a first line that every Linux kernel reads."""
_ROOT: Final = Path(__file__).parents[3]
_KERNELS: Final = ".kernels"
"""Folder of the copy."""

_SCRIPT: Final = """\
{first}
{mark}
import gc
import os
import sys

gc.disable()  # imports make no garbage worth a search
{lines}from app.oasis.shims.starting import main

sys.exit(main({tool!r}))
"""


def write_shims(directory: Path, interpreter: str = sys.executable) -> list[Path]:
    """Write all executables; return their paths.

    Args:
        directory: made if it does not exist.
        interpreter: that runs them.

    Raises:
        OptionError: it has a file of one of their names that is not ours, such as the peer's.
        InputError: it cannot be written.
    """
    directory = directory.absolute()
    paths = [directory / tool for tool in PARSERS]
    with failing_as("cannot be written", directory):
        for path in paths:
            if path.is_symlink() or path.exists():
                text = path.read_text("utf-8", "replace") if path.is_file() else ""
                if _MARK not in text:
                    raise OptionError(
                        f"{path} exists, and is not one of Thalweg's",
                        hint="Name a directory of their own, and put it before the other on PATH",
                    )
        directory.mkdir(parents=True, exist_ok=True)
        kernels = _copy_kernels(directory / _KERNELS)
        for path in paths:
            temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
            temporary.write_text(_script(path.name, interpreter, kernels), encoding="utf-8")
            temporary.chmod(0o755)
            temporary.replace(path)
    return paths


def _copy_kernels(folder: Path) -> Path | None:
    """Copy the build of this process, for everyone to read; return where, None without a build."""
    build = publish() if is_build_published() else None
    if build is None:
        return None
    target = folder / Path(build).name
    if not target.is_dir():
        temporary = folder / f".{target.name}.{os.getpid()}"
        folder.mkdir(exist_ok=True)
        try:
            temporary.mkdir()
            for file in Path(build).iterdir():
                copy = temporary / file.name
                shutil.copyfile(file, copy)
                copy.chmod(0o644)
            # Whatever the mask says: only what nobody else can write is loaded.
            folder.chmod(0o755)
            temporary.chmod(0o755)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _script(tool: str, interpreter: str, kernels: Path | None) -> str:
    lines = []
    if str(_ROOT) not in site.getsitepackages():
        lines.append(f"sys.path.insert(0, {str(_ROOT)!r})\n")
    if kernels is not None:
        lines.append(f"os.environ.setdefault({CACHE_VARIABLE!r}, {str(kernels)!r})\n")
    first = _first_lines(interpreter)
    return _SCRIPT.format(first=first, mark=_MARK, lines="".join(lines), tool=tool)


def _first_lines(interpreter: str) -> str:
    line = f"#!{interpreter} -I"
    if len(line) <= _LONGEST and not any(c.isspace() for c in interpreter):
        return line
    # To the shell the second line is a command; to Python it is a string.
    return f"#!/bin/sh\n'''exec' '{interpreter}' -I \"$0\" \"$@\" #'''"
