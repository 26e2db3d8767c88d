"""Description of files that are not in the catalogue, for the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.decoding.base import Decoders
from app.errors import ServiceError
from core.errors import InputError
from core.tiles.recording import Hints

from .files.file_set import FileSet
from .files.roots import Roots
from .files.zarr_files import StoredArray, open_store
from .opening import understand_source


def _open(path: Path) -> int:
    # Without O_NONBLOCK, opening a fifo would wait for a writer.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _opened(paths: Sequence[Path], array: str | None) -> tuple[FileSet, StoredArray | None]:
    if len(paths) == 1 and paths[0].is_dir():
        top = paths[0].resolve()
        return open_store(Roots([top]), top, array)
    return FileSet([path.absolute() for path in paths], _open), None


def inspect_files(
    paths: Sequence[Path],
    hints: Hints,
    form: str | None,
    array: str | None = None,
    decoders: Decoders | None = None,
) -> dict[str, Any]:
    """Describe the array in some files by their headers, as JSON values.

    Args:
        paths: the files of one dataset, or one directory that is a zarr store.
        hints: what the caller knows of the data.
        form: name of the format; None to detect it.
        array: path of the array, in formats that hold several.
        decoders: read HDF5 and zarr; None refuses them.

    Raises:
        FormatError, AmbiguousFormatError, ShapeError: the files cannot be understood.
        InputError: the files cannot be read.
    """
    try:
        files, stored = _opened(paths, array)
        with files:
            source = understand_source(
                files, stored, hints, decoders=decoders, form=form, array=array
            )
            recording = source.recording
    except (ServiceError, OSError, ValueError) as e:
        raise InputError(f"cannot be read: {e}", source=str(paths[0])) from e
    built_in = recording.built_in
    corrections = {"dark": built_in.dark, "gain": built_in.gain, "excluded": built_in.excluded}
    return {
        "format": recording.format,
        "frames": recording.frames,
        "nav_shape": list(recording.nav_shape),
        "sig_shape": list(recording.sig_shape),
        "dtype": recording.dtype.str,
        "stored": recording.decoder
        or (recording.stored.str if recording.stored is not None else None),
        "sync_offset": recording.sync_offset,
        "files": len(paths),
        "corrections": [name for name, image in corrections.items() if image is not None],
        "axes": [f"{axis.name} {axis.size} {axis.scale} {axis.unit}" for axis in recording.axes],
        "metadata": dict(recording.metadata),
        "notes": list(recording.notes),
    }
