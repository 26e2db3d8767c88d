"""Where the bytes of a stream that cannot be rewound come from."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from ..errors import ProducerFailed, SourceError
from ..transport.requests import BLOCK

_PIPE_SIZE = 1 << 20
"""Bytes; what an unprivileged process may ask for. Pipes have 64 KiB by default."""
_TERMINATION_SECONDS = 5.0
"""Time that a command gets to end before it is killed."""


class Reader(ABC):
    """Gives bytes, once."""

    @abstractmethod
    def readinto(self, view: memoryview) -> int:
        """Read some bytes into a view that is not empty; 0 at the end.

        Raises:
            InterruptedError: ``interrupt`` was called meanwhile.
            SourceError: the bytes cannot be read.
        """

    def failure(self) -> ProducerFailed | None:
        """After the end: why it is not a good one, if so."""
        return None

    def interrupt(self) -> None:  # noqa: B027 - a default
        """Make ``readinto`` of another thread raise InterruptedError, where that is possible."""

    def settle(self) -> None:  # noqa: B027 - a default
        """Forget an interrupt that came too late for its thread."""

    def close(self) -> None:  # noqa: B027 - a default
        """Stop reading."""


class DescriptorReader(Reader):
    """A pipe, terminal or socket.

    Args:
        fd: open for reading.
        owned: whether to close it.
    """

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned
        self._wake_read, self._wake_write = os.pipe()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # Not a pipe, or the user has no more pages for pipes: slower, not wrong.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def readinto(self, view: memoryview) -> int:
        """Wait for bytes and read those that are there."""
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            if self._wake_read in ready:
                os.read(self._wake_read, 1)
                raise InterruptedError
            try:
                return os.readv(self._fd, [view])
            except BlockingIOError:
                continue
            except OSError as e:
                raise SourceError(f"the stream cannot be read: {e.strerror}") from e

    def interrupt(self) -> None:
        """Make ``readinto`` raise InterruptedError, now or when it is called next."""
        os.write(self._wake_write, b"\0")

    def settle(self) -> None:
        """Forget interrupts that nobody noticed."""
        while select.select([self._wake_read], [], [], 0)[0]:
            os.read(self._wake_read, 64)

    def close(self) -> None:
        """Close the descriptors opened here."""
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self._owned:
            os.close(self._fd)


class CommandReader(DescriptorReader):
    """The standard output of a command, which is started."""

    def __init__(self, command: Sequence[str]) -> None:
        self._name = str(command[0])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                [os.fspath(word) for word in command], stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as e:
            raise SourceError(f"{self._name} cannot be started: {e.strerror}") from e
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        self._pipe = self._process.stdout
        super().__init__(self._pipe.fileno(), owned=False)

    def failure(self) -> ProducerFailed | None:
        """Wait for the command; its exit code, unless 0."""
        code = self._process.wait()
        return ProducerFailed(self._name, code) if code else None

    def close(self) -> None:
        """End the command, if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_TERMINATION_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        super().close()
        self._pipe.close()


class FileReader(Reader):
    """A file object open for reading bytes; it is the caller's, and not closed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file: Any = file
        self._readinto = getattr(file, "readinto1", None) or getattr(file, "readinto", None)

    def readinto(self, view: memoryview) -> int:
        """Read what one call of the file gives."""
        try:
            if self._readinto is not None:
                return int(self._readinto(view) or 0)
            data = self._file.read(min(len(view), BLOCK))
        except OSError as e:
            raise SourceError(f"the stream cannot be read: {e}") from e
        view[: len(data)] = data
        return len(data)


class PiecesReader(Reader):
    """Bytes of an iterable."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        """Read from the current piece, or the next one that is not empty."""
        while not len(self._rest):
            try:
                piece = self._following()
            except InterruptedError:
                raise
            except OSError as e:
                raise SourceError(f"the stream cannot be read: {e}") from e
            if piece is None:
                return 0
            try:
                self._rest = memoryview(piece).cast("B")
            except TypeError as e:
                raise TypeError(f"a stream is of bytes, and {piece!r:.80} is none") from e
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _following(self) -> Any:  # noqa: ANN401 - bytes of some kind, or None at the end
        return next(self._pieces, None)

    def close(self) -> None:
        """Close the iterable, if it is a generator."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
