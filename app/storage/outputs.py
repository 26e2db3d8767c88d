"""Writing results: a file is there whole or not at all, a pipe as far as it is read."""

from __future__ import annotations

import os
import selectors
import stat
from pathlib import Path
from typing import Any, Protocol

from core.errors import InputError


class Output(Protocol):
    """Somewhere bytes can be written to."""

    def write(self, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
        """Write all of the bytes."""

    def commit(self) -> None:
        """Everything was written and is right."""

    def discard(self) -> None:
        """Something went wrong: leave nothing that looks whole."""


def _write_all(fd: int, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
    """Write all of the bytes, also to a descriptor that does not block.

    Raises:
        BrokenPipeError: the reader has gone.
    """
    view = memoryview(data).cast("B")
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            with selectors.DefaultSelector() as selector:
                selector.register(fd, selectors.EVENT_WRITE)
                selector.select()


class PipeOutput:
    """A pipe or fifo: bytes cannot be taken back, so an error just ends it."""

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned

    def write(self, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
        """Write all of the bytes; waits for the reader."""
        _write_all(self._fd, data)

    def commit(self) -> None:
        """Close it, if it was opened for this."""
        if self._owned:
            os.close(self._fd)

    def discard(self) -> None:
        """Close it, if it was opened for this."""
        self.commit()


class FileOutput:
    """A file that is written beside its place and moved there at the end.

    Raises:
        InputError: the directory cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("wb", buffering=0)
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=str(path)) from e

    def write(self, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
        """Write all of the bytes.

        Raises:
            InputError: the disk is full, or failed.
        """
        try:
            _write_all(self._file.fileno(), data)
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=str(self._path)) from e

    def commit(self) -> None:
        """Move the file to its place."""
        self._file.close()
        self._partial.replace(self._path)

    def discard(self) -> None:
        """Remove what was written."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def open_output(path: Path) -> Output:
    """A file, or what is there already if that is a pipe or device.

    Raises:
        InputError: it cannot be opened for writing.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return FileOutput(path)
    if stat.S_ISREG(mode):
        return FileOutput(path)
    try:
        return PipeOutput(os.open(path, os.O_WRONLY), owned=True)
    except OSError as e:
        raise InputError(f"cannot be written: {e.strerror}", source=str(path)) from e
