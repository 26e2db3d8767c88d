"""The files that a command writes: none is replaced unasked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..files.state import StateFile

_MARKER = ".thalweg-begun"
"""Beside several files while a command writes them, so that the same command may go on."""


@contextmanager
def writing(
    paths: Sequence[Path], folder: Path | None, command: Mapping[str, Any], *, force: bool
) -> Iterator[None]:
    """Write files, of which none is there unless the same command has written it.

    Args:
        paths: of the files.
        folder: that they are in, which is made; None for a file by itself.
        command: what tells the command from others that write these files, JSON values.
        force: whether to replace files.

    Raises:
        ValueError: a file is there.
    """
    content = {"files": [path.name for path in paths], **command}
    is_new = folder is not None and not folder.exists()
    marker = begin(paths, folder, content, force=force)
    try:
        yield
    except BaseException:
        if not any(path.is_file() for path in paths):
            marker.remove()
            if folder is not None and is_new:
                with suppress(OSError):  # what another process can complete is in it
                    folder.rmdir()
        raise
    marker.remove()


def begin(
    paths: Iterable[Path], folder: Path | None, command: Mapping[str, Any], *, force: bool
) -> StateFile:
    """Make the folder, and mark it as the command's; the arguments are those of ``writing``.

    Raises:
        ValueError: a file is there.
    """
    marker = StateFile(None if folder is None else folder / _MARKER, "thalweg_begun")
    found = marker.load(dict) or {}
    begun = command.items() <= found.items()
    file = next((path for path in paths if path.is_file()), None)
    if file is not None and not (begun or force):
        names = {"pipeline", "rank", "world"} & found.keys() & command.keys()
        others = [f", of {name} {found[name]}" for name in names if found[name] != command[name]]
        other = min(others, default="")
        raise ValueError(f"{file} exists{other}: give --force to replace it, or another -o")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    marker.save(command)
    return marker
