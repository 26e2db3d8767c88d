"""Write results: to files, which appear whole or not at all, or to pipes."""

from __future__ import annotations

import os
import selectors
import stat
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from app.state.durable import sync_directory
from core.errors import InputError

_BATCH = 1 << 20
"""Bytes of a file that are handed to its writer at a time. Waking a thread costs as much as
writing some 30 KB, which is more than many callers write at once."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Output(Protocol):
    """A destination for bytes."""

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Write all bytes."""

    def commit(self) -> None:
        """Complete the output, after the last write."""

    def discard(self) -> None:
        """Give up after an error; leave nothing that looks complete."""


def _write_all(fd: int, data: Any) -> None:  # noqa: ANN401 - a buffer
    """Write all bytes, even to a non-blocking descriptor.

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
    """A pipe or fifo. Bytes cannot be taken back, so an error merely ends it.

    Args:
        fd: the descriptor.
        owned: whether to close it at the end.
    """

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Write all bytes; block while the pipe is full."""
        _write_all(self._fd, data)

    def commit(self) -> None:
        """Close the descriptor if it is owned."""
        if self._owned:
            os.close(self._fd)

    def discard(self) -> None:
        """Close the descriptor if it is owned."""
        self.commit()


class FileOutput:
    """A file that is written under a temporary name beside its own, then renamed.

    Raises:
        InputError: the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        # Before the file exists: an interrupt may come before the caller can discard it.
        self._leave_nothing = weakref.finalize(self, self._partial.unlink, missing_ok=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._partial, _CREATE, 0o666)
        except OSError as e:
            self._leave_nothing.detach()
            raise InputError(f"cannot be written: {e.strerror}", source=str(path)) from e
        self._writer = ThreadPoolExecutor(1, "writer")
        self._written: Future[None] | None = None
        self._filling = memoryview(bytearray(_BATCH))
        self._full = memoryview(bytearray(_BATCH))
        self._filled = 0

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Copy the bytes, and write the copy while the caller prepares the next bytes.

        Writing rows into the page cache takes as long as formatting them; side by side
        they take half the time. A caller with more bytes at a time prepares the next ones in
        threads of its own: they are written at once.

        Raises:
            InputError: the disk was full, or failed, during an earlier write.
        """
        view = memoryview(data).cast("B")
        if len(view) > _BATCH:
            self._hand_over()
            self._wait()
            with self._naming():
                _write_all(self._fd, view)
            return
        at = 0
        while at < len(view):
            if self._filled == _BATCH:
                self._hand_over()
            count = min(len(view) - at, _BATCH - self._filled)
            self._filling[self._filled : self._filled + count] = view[at : at + count]
            self._filled += count
            at += count

    def _hand_over(self) -> None:
        """Have the writer write what is filled, after the batch before."""
        self._wait()
        self._full, self._filling = self._filling, self._full
        batch, self._filled = self._full[: self._filled], 0
        self._written = self._writer.submit(_write_all, self._fd, batch)

    def _wait(self) -> None:
        if self._written is None:
            return
        written, self._written = self._written, None
        with self._naming():
            written.result()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Raise an error of the system as one that names the file."""
        try:
            yield
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=str(self._path)) from e

    def save(self) -> None:
        """Have all bytes on the disk, under the temporary name.

        Raises:
            InputError: the disk was full, or failed.
        """
        self._hand_over()
        self._wait()
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=str(self._path)) from e

    def commit(self) -> None:
        """Give the file its name, durably.

        Raises:
            InputError: the disk was full, or failed.
        """
        self.save()
        self._writer.shutdown()
        try:
            self._partial.replace(self._path)
            self._leave_nothing.detach()
            sync_directory(self._path.parent)
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=str(self._path)) from e
        self._close()

    def discard(self) -> None:
        """Remove the temporary file."""
        self._writer.shutdown()
        self._close()
        self._leave_nothing()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def open_output(path: Path) -> Output:
    """Return an output for a path: a new file, or the pipe or device that exists there.

    Raises:
        InputError: the path cannot be opened for writing.
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
