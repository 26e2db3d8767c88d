"""Read several files, pipes and fifos at once, in the order in which bytes arrive."""

from __future__ import annotations

import os
import selectors
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from core.errors import InputError, StarvedError

if TYPE_CHECKING:
    from core.losses.merge import Partitions
    from core.losses.summaries import JoinedSummaries, SetReports

    Receiver = Partitions | SetReports | JoinedSummaries

CHUNK = 1 << 20
"""Bytes per read: about a second-level cache, and the largest buffer a pipe can have."""

STDIN = "-"


class Source:
    """One open input.

    Raises:
        InputError: the input cannot be opened, or is a directory.
    """

    def __init__(self, name: str) -> None:
        self.name = "standard input" if name == STDIN else name
        self._owned = name != STDIN
        try:
            # Without O_NONBLOCK, opening a fifo waits for its writer; if the writer of
            # another fifo has to come first, neither would ever be opened.
            self.fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK) if self._owned else 0
            status = os.fstat(self.fd)
        except OSError as e:
            raise InputError(f"cannot be opened: {e.strerror}", source=self.name) from e
        if stat.S_ISDIR(status.st_mode):
            os.close(self.fd)
            raise InputError("is a directory, not a stream", source=self.name)
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        """Size in bytes of a regular file; None for other inputs."""

    def read(self, buffer: memoryview) -> int | None:
        """Read into the buffer; return the number of bytes, 0 at the end, None if none yet.

        Raises:
            InputError: the input cannot be read.
        """
        try:
            return os.readv(self.fd, [buffer])
        except BlockingIOError:
            return None
        except OSError as e:
            raise InputError(f"cannot be read: {e.strerror}", source=self.name) from e

    def close(self) -> None:
        """Close the input, unless it is standard input."""
        if self._owned:
            os.close(self.fd)


class Sources:
    """Several inputs, read as they become ready; a context manager.

    Args:
        names: paths, ``-`` for standard input.
        idle_timeout: seconds without a byte from any input before giving up; None to wait.

    Raises:
        InputError: an input cannot be opened, or standard input is named twice.
    """

    def __init__(self, names: Sequence[str], idle_timeout: float | None = None) -> None:
        if list(names).count(STDIN) > 1:
            raise InputError("standard input can be read only once", source=STDIN)
        self._idle_timeout = idle_timeout
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, Source] = {}
        self._always_ready: list[int] = []
        self._held: set[int] = set()
        self._buffer = memoryview(bytearray(CHUNK))
        self.sources: list[Source] = []
        try:
            for index, name in enumerate(names):
                source = Source(name)
                self.sources.append(source)
                self._open[index] = source
                self._watch(index)
        except InputError:
            self.close()
            raise

    def _watch(self, index: int) -> None:
        try:
            self._selector.register(self._open[index].fd, selectors.EVENT_READ, index)
        except PermissionError:
            # epoll refuses regular files, which never block.
            self._always_ready.append(index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all open inputs."""
        self._held.clear()
        self._selector.close()
        for source in self._open.values():
            source.close()
        self._open.clear()

    @property
    def total(self) -> int | None:
        """Bytes to read from all inputs, None if unknown."""
        sizes = [source.size for source in self.sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def read(self, preferred: int | None = None) -> tuple[int, memoryview] | None:
        """Read the next bytes of one input.

        Args:
            preferred: index of the input to read if it is ready.

        Returns:
            Index of the input and its bytes, empty at its end and valid until the next
            call; None when all inputs have ended.

        Raises:
            StarvedError: no input had a byte for ``idle_timeout`` seconds.
            InputError: an input cannot be read.
        """
        while self._open:
            index = self._choose(preferred)
            count = self._open[index].read(self._buffer)
            if count is None:
                continue
            if count == 0:
                self._leave(index)
                self._open.pop(index).close()
            return index, self._buffer[:count]
        return None

    def feed(
        self,
        receiver: Receiver,
        observe: Callable[[int], None] = lambda _count: None,
        preferred: Callable[[], int | None] | None = None,
    ) -> None:
        """Read all streams to their ends.

        Args:
            receiver: gets their bytes, each of them by its number.
            observe: called with the number of bytes of each piece.
            preferred: says which stream to read next, if it has bytes.

        Raises:
            CoreError: a stream is faulty, starved or cannot be read.
        """
        while (piece := self.read(None if preferred is None else preferred())) is not None:
            index, data = piece
            if len(data):
                receiver.receive(index, data)
            else:
                receiver.close(index)
            observe(len(data))

    def hold(self, index: int, *, held: bool) -> None:
        """Stop reading an input for now, or go on with it.

        Nothing happens if it has ended.
        """
        if index not in self._open or held == (index in self._held):
            return
        if held:
            self._leave(index)
            self._held.add(index)
        else:
            self._held.remove(index)
            self._watch(index)

    def _choose(self, preferred: int | None) -> int:
        if preferred is not None and preferred in self._always_ready:
            return preferred
        wait = 0.0 if self._always_ready else self._idle_timeout
        ready = []
        if len(self._open) > len(self._always_ready) + len(self._held):
            # Some stream may have to be waited for.
            ready = [int(key.data) for key, _ in self._selector.select(wait)]
        if preferred is not None and preferred in ready:
            return preferred
        if ready or self._always_ready:
            return (ready or self._always_ready)[0]
        raise StarvedError(
            f"no bytes arrived for {self._idle_timeout:g} seconds",
            hint="Check the writer: it is stuck, or was never started",
            source=", ".join(s.name for i, s in self._open.items() if i not in self._held),
        )

    def _leave(self, index: int) -> None:
        if index in self._always_ready:
            self._always_ready.remove(index)
        else:
            self._selector.unregister(self._open[index].fd)


def read_file(path: str) -> bytes:
    """Return the content of a small file, or of standard input for ``-``.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", source=path) from e
