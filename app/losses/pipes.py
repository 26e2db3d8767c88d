"""Pipes, fifos and devices as outputs: their bytes cannot be taken back.

A live one gets its bytes at once. Its reader is often ``tee``, which opens its own outputs before
it reads: where it reads nothing at all for a time, a reader of these has died, and it waits for
ever.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile, gettempdir
from typing import Any

from core.errors import InputError

SPOOL_MEMORY = 8 << 20
"""Bytes for a pipe that wait in memory; those beyond wait on disk."""

_PIECE = 1 << 20
_POLL_SECONDS = 0.02


def write_all(fd: int, data: Any) -> None:  # noqa: ANN401 - a buffer
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
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Raise an error of the system as one that names the output; not that its reader has gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        raise InputError(f"cannot be written: {e.strerror}", source=name) from e


class PipeOutput:
    """A pipe or fifo that gets its bytes at once. They cannot be taken back.

    Args:
        fd: the descriptor.
        owned: whether to close it at the end.
        name: of the output, for messages.
        seconds: how long its reader may take to read the first byte; None for ever. It has to take
            the last one, too, before the output is safe.
    """

    def __init__(
        self, fd: int, *, owned: bool, name: str = "standard output", seconds: float | None = None
    ) -> None:
        self._fd = fd
        self._owned = owned
        self._name = name
        self._seconds = seconds
        self._written = 0
        if seconds is not None:
            os.set_blocking(fd, False)

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Write all bytes; wait while the pipe is full.

        Raises:
            InputError: nobody reads it.
            BrokenPipeError: the reader has gone.
        """
        with naming(self._name):
            if self._seconds is None:
                write_all(self._fd, data)
                return
            view = memoryview(data).cast("B")
            while len(view):
                try:
                    count = os.write(self._fd, view)
                except BlockingIOError:
                    self._wait(select.POLLOUT)
                    continue
                self._written += count
                view = view[count:]

    def _wait(self, event: int) -> None:
        """Wait for an event; give up if the reader does not begin to read."""
        begun = self._unread() < self._written
        poll = select.poll()
        poll.register(self._fd, event)
        if not poll.poll(None if begun else 1000 * (self._seconds or 0)) and (
            self._unread() == self._written
        ):
            raise InputError(f"nobody has read it for {self._seconds:.0f} s", source=self._name)

    def _unread(self) -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))
        return int(count)

    def save(self) -> None:
        """Wait until its reader has taken all bytes, if it has to.

        Raises:
            InputError: nobody reads it.
            BrokenPipeError: the reader has gone.
        """
        if self._seconds is None or not stat.S_ISFIFO(os.fstat(self._fd).st_mode):
            return
        poll = select.poll()
        poll.register(self._fd, 0)
        until = time.monotonic() + self._seconds
        while unread := self._unread():
            if poll.poll(1000 * _POLL_SECONDS):
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if unread == self._written and time.monotonic() > until:
                raise InputError(f"nobody has read it for {self._seconds:.0f} s", source=self._name)

    def publish(self) -> None:
        """Do nothing: its reader has all bytes."""

    def close(self) -> None:
        """Close the descriptor if it is owned."""
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def discard(self) -> None:
        """Close the descriptor if it is owned."""
        self.close()


class SpooledOutput(PipeOutput):
    """A pipe, fifo or device, or a file as standard output, that gets all bytes or none.

    Args:
        fd: the descriptor.
        owned: whether to close it at the end.
        name: of the output, for messages.
        folder: of the file for what does not fit in memory; by default that of temporary files.
    """

    def __init__(
        self, fd: int, *, owned: bool, name: str = "standard output", folder: Path | None = None
    ) -> None:
        super().__init__(fd, owned=owned, name=name)
        self._folder = str(folder or gettempdir())
        self._spool = SpooledTemporaryFile(SPOOL_MEMORY, dir=self._folder)  # noqa: SIM115 - closed with the output

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Keep all bytes.

        Raises:
            InputError: the disk for temporary files is full, or failed.
        """
        with naming(self._folder):
            self._spool.write(data)

    def save(self) -> None:
        """Have the last bytes in the file, if there is one."""
        with naming(self._folder):
            self._spool.flush()

    def publish(self) -> None:
        """Write all bytes to the descriptor.

        Raises:
            InputError: it cannot take them.
            BrokenPipeError: its reader has gone.
        """
        self._spool.seek(0)
        status = os.fstat(self._fd)
        try:
            with naming(self._name):
                while piece := self._spool.read(_PIECE):
                    write_all(self._fd, piece)
        except InputError:
            if stat.S_ISREG(status.st_mode):
                os.ftruncate(self._fd, status.st_size)
            raise

    def close(self) -> None:
        """Close the descriptor if it is owned."""
        self._spool.close()
        super().close()


def open_pipe(path: Path, seconds: float | None) -> int:
    """Open a fifo or device; the reader of a fifo may be on its way."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            if e.errno != errno.ENXIO or not path.is_fifo():
                raise InputError(f"cannot be written: {e.strerror}", source=str(path)) from e
        else:
            os.set_blocking(fd, True)
            return fd
        if until is not None and time.monotonic() > until:
            raise InputError(f"nobody has read it for {seconds:.0f} s", source=str(path))
        time.sleep(_POLL_SECONDS)
