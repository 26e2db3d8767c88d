"""What is in the files of a dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.errors import ServiceError
from core.errors import InputError
from core.tiles.recording import Hints

from .files.file_set import FileSet
from .files.roots import Roots
from .files.zarr_files import StoredArray, open_store
from .opening import understand_source


def _open(path: Path) -> int:
    # A fifo opened without O_NONBLOCK would wait for its writer.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _opened(paths: Sequence[Path], array: str | None) -> tuple[FileSet, StoredArray | None]:
    if len(paths) == 1 and paths[0].is_dir():
        top = paths[0].resolve()
        return open_store(Roots([top]), top, array)
    return FileSet([path.absolute() for path in paths], _open), None


def inspect_files(
    paths: Sequence[Path], hints: Hints, form: str | None, array: str | None = None
) -> dict[str, Any]:
    """What the headers say, as JSON values.

    Raises:
        FormatError, AmbiguousFormatError, ShapeError: what is wrong with the files.
        InputError: they cannot be read.
    """
    try:
        files, stored = _opened(paths, array)
        with files:
            found = understand_source(files, stored, hints, form=form, array=array).recording
    except (ServiceError, OSError, ValueError) as e:
        raise InputError(f"cannot be read: {e}", source=str(paths[0])) from e
    built_in = found.built_in
    corrections = {"dark": built_in.dark, "gain": built_in.gain, "excluded": built_in.excluded}
    return {
        "format": found.format,
        "frames": found.frames,
        "nav_shape": list(found.nav_shape),
        "sig_shape": list(found.sig_shape),
        "dtype": found.dtype.str,
        "stored": found.decoder or (found.stored.str if found.stored is not None else None),
        "sync_offset": found.sync_offset,
        "files": len(paths),
        "corrections": [name for name, image in corrections.items() if image is not None],
        "axes": [f"{axis.name} {axis.size} {axis.scale} {axis.unit}" for axis in found.axes],
        "metadata": dict(found.metadata),
        "notes": list(found.notes),
    }
