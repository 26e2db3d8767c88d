"""Writing results: a file is there whole or not at all, a pipe as far as it is read."""

from __future__ import annotations

import os
import selectors
import stat
from concurrent.futures import Future, ThreadPoolExecutor
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
    at = 0
    while at < len(view):
        try:
            at += os.write(fd, view[at:])
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
        self._writer = ThreadPoolExecutor(1, "writer")
        self._written: Future[None] | None = None
        self._copy = bytearray()

    def write(self, data: Any) -> None:  # noqa: ANN401 - whatever has the buffer protocol
        """Take a copy of the bytes, to be written while the caller makes the next ones.

        Copying into pages costs as long as formatting what is copied: side by side
        they take half the time.

        Raises:
            InputError: the disk is full, or failed, by now.
        """
        self._wait()
        view = memoryview(data).cast("B")
        if len(view) > len(self._copy):
            self._copy = bytearray(len(view))
        self._copy[: len(view)] = view
        self._written = self._writer.submit(self._write, memoryview(self._copy)[: len(view)])

    def _write(self, view: memoryview) -> None:
        with view:
            _write_all(self._file.fileno(), view)

    def _wait(self) -> None:
        if self._written is None:
            return
        written, self._written = self._written, None
        try:
            written.result()
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=str(self._path)) from e

    def commit(self) -> None:
        """Move the file to its place.

        Raises:
            InputError: the disk is full, or failed.
        """
        self._wait()
        self._writer.shutdown()
        self._file.close()
        self._partial.replace(self._path)

    def discard(self) -> None:
        """Remove what was written."""
        self._writer.shutdown()
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
