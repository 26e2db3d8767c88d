"""What can be posted: files, memory, pipes, iterables, commands; all read in the same way.

A source is the whole stream, from its first byte. Whatever may have to be posted again can
be read again::

    a regular file       read by position                       FileSource
    bytes, arrays        posted from where they lie             MemorySource
    anything else        buffered until it was answered         BufferedSource
                         (a Reader fills a Window: memory, then a temporary file)

So posting knows one interface and never asks whether a stream can be rewound.
"""

from __future__ import annotations

import io
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from xxhash import xxh3_64, xxh3_64_hexdigest

from ..errors import ProducerFailed, SourceError
from ..transport.requests import BLOCK, Body
from .readers import CommandReader, DescriptorReader, FileReader, PiecesReader, Reader
from .window import Window

BytesLike: TypeAlias = bytes | bytearray | memoryview
SourceLike: TypeAlias = str | os.PathLike[str] | int | BytesLike | BinaryIO | Iterable[BytesLike]
"""A path, a file descriptor, memory, a file object, or an iterable of bytes."""

_HEAD = 1 << 16
"""Bytes at the beginning of a file that identify it."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What can be posted now.

    Attributes:
        stop: offset after the last byte that can be read without waiting.
        ended: whether no byte follows.
        failure: why the end is not a good one.
    """

    stop: int
    ended: bool
    failure: ProducerFailed | None = None


class Source(ABC):
    """A stream that can be read again from wherever it was not released.

    The defaults are those of a source that can be read at any offset, at any time.

    Attributes:
        name: for messages.
        size: bytes of the whole stream, if known in advance.
    """

    name = "the stream"
    size: int | None = None

    def identity(self) -> dict[str, Any] | None:
        """What distinguishes it from another stream, if anything does in advance."""
        return None

    def passed(self) -> str | None:
        """Digest of the bytes that were released, if they cannot be read again."""
        return None

    def skip(self, offset: int, passed: str | None = None) -> None:  # noqa: ARG002 - for others
        """Pass over the bytes before an offset.

        Args:
            offset: of the stream.
            passed: result of ``passed`` at this offset in another process, if known.

        Raises:
            SourceError: the stream ends before the offset, or its bytes are others.
        """
        size = self.size or 0
        if offset > size:
            raise SourceError(f"{self.name} has {size} bytes, but {offset} were read before")

    def fill(self, stop: int) -> Filled:
        """Wait until the bytes up to an offset can be read, or the end is reached."""
        size = self.size or 0
        return Filled(min(stop, size), stop >= size)

    @abstractmethod
    def views(self, start: int, stop: int | None) -> Iterator[memoryview]:
        """The bytes of a range, None for up to the end, in pieces of at most 1 MiB.

        A piece is valid until the next one is asked for. An open range waits for bytes and
        gives what is there; its end raises ProducerFailed if it is not a good one.
        """

    def release(self, offset: int) -> None:  # noqa: B027 - a default
        """Bytes before this offset will not be needed again."""

    def interrupt(self) -> None:  # noqa: B027 - a default
        """Make another thread that waits for bytes stop, where that is possible."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""


def body_of(source: Source, start: int, stop: int | None) -> Body:
    """A range of a source as the body of a request.

    Args:
        source: of the bytes.
        start: offset of the first one.
        stop: offset after the last one; None for the end of the source.
    """
    end = source.size if stop is None else stop
    length = None if end is None else end - start
    return Body(length, partial(source.views, start, stop), source.interrupt)


class MemorySource(Source):
    """Bytes in memory, posted from where they lie."""

    def __init__(self, data: BytesLike) -> None:
        self._view = memoryview(data).cast("B")
        self.size: int = len(self._view)

    def views(self, start: int, stop: int | None) -> Iterator[memoryview]:
        """Slices of the memory."""
        end = self.size if stop is None else stop
        for at in range(start, end, BLOCK):
            yield self._view[at : min(at + BLOCK, end)]

    def close(self) -> None:
        """Release the memory."""
        self._view.release()


class FileSource(Source):
    """A regular file, read by position; its size is taken when it is opened.

    Args:
        fd: open for reading; closed with the source.
        name: for messages.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self._stat = os.fstat(fd)
        self.size: int = self._stat.st_size

    def identity(self) -> dict[str, Any]:
        """Size, time of the last change, and a digest of the beginning."""
        head = os.pread(self._fd, _HEAD, 0)
        return {
            "size": self.size,
            "mtime_ns": self._stat.st_mtime_ns,
            "head": xxh3_64_hexdigest(head),
        }

    def views(self, start: int, stop: int | None) -> Iterator[memoryview]:
        """Pieces of the file, one after the other in the same memory.

        Raises:
            SourceError: the file has become shorter, or cannot be read.
        """
        end = self.size if stop is None else stop
        buffer = memoryview(bytearray(min(BLOCK, max(end - start, 0))))
        at = start
        while at < end:
            view = buffer[: end - at]
            try:
                count = os.preadv(self._fd, [view], at)
            except OSError as e:
                raise SourceError(f"{self.name} cannot be read: {e.strerror}") from e
            if not count:
                raise SourceError(f"{self.name} has become shorter while it was read")
            yield view[:count]
            at += count

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class BufferedSource(Source):
    """Bytes that come once, and are buffered until they are released.

    Args:
        reader: where they come from.
        window: holds them.
    """

    def __init__(self, reader: Reader, window: Window | None = None) -> None:
        self._reader = reader
        self._window = window or Window()
        self._passed = xxh3_64()
        self._ended = False
        self._broken = False
        self._failure: ProducerFailed | None = None

    def passed(self) -> str:
        """Digest of the bytes that were released."""
        return self._passed.hexdigest()

    def skip(self, offset: int, passed: str | None = None) -> None:
        """Read and drop the bytes before an offset.

        Raises:
            SourceError: the stream ends before it, or its bytes are others.
        """
        while self._window.stop < offset:
            self.fill(min(self._window.stop + BLOCK, offset))
            if self._ended and self._window.stop < offset:
                size = self._window.stop
                raise SourceError(f"{self.name} has {size} bytes, but {offset} were read before")
            self.release(offset)
        self.release(offset)
        if passed not in {None, self.passed()}:
            raise SourceError(f"{self.name} has changed: its first {offset} bytes differ")

    def fill(self, stop: int) -> Filled:
        """Read up to an offset, or to the end."""
        self._reader.settle()
        while self._window.stop < stop and self._read_some():
            pass
        return Filled(self._window.stop, self._ended, self._failure)

    def views(self, start: int, stop: int | None) -> Iterator[memoryview]:
        """The bytes buffered; then, if the range is open, those that arrive."""
        if stop is not None:
            yield from self._window.views(start, stop)
            return
        self._reader.settle()
        at = start
        while True:
            reached = self._window.stop
            yield from self._window.views(at, reached)
            at = reached
            if self._window.stop == at and not self._read_some():
                break
        if self._failure is not None:
            raise self._failure

    def release(self, offset: int) -> None:
        """Drop bytes, and add them to the digest."""
        for view in self._window.views(self._window.start, min(offset, self._window.stop)):
            self._passed.update(view)
        self._window.release(offset)

    def interrupt(self) -> None:
        """Make a thread that waits for bytes raise InterruptedError."""
        self._reader.interrupt()

    def close(self) -> None:
        """Stop reading and drop the buffer."""
        self._reader.close()
        self._window.close()

    def _read_some(self) -> bool:
        """Read at least a byte; False at the end."""
        if self._ended:
            return False
        if self._broken:
            # A generator that has raised looks like one that has ended.
            raise SourceError("the source has failed before: its end is unknown")
        self._broken = True
        try:
            count = self._reader.readinto(self._window.room())
        except InterruptedError:
            self._broken = False
            raise
        self._broken = False
        if count:
            self._window.added(count)
            return True
        self._failure = self._reader.failure()
        self._ended = True
        return False


def open_source(source: SourceLike | None, command: Sequence[str] | None = None) -> Source:
    """Open whatever can be posted.

    Args:
        source: a path, a file descriptor, memory, a file object or an iterable.
        command: to run instead; its standard output is posted.

    Raises:
        SourceError: it cannot be opened.
        TypeError: it cannot be posted, or not exactly one of both is given.
    """
    if (source is None) is (command is None):
        raise TypeError("give either a source or a command")
    if command is not None:
        words: Any = command
        if isinstance(words, str) or not isinstance(words, Sequence) or not words:
            raise TypeError(f'exec must be a list such as ["cat", "FILE"], not {command!r}')
        return BufferedSource(CommandReader(command))
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(source))
    if isinstance(source, int):
        return _open_descriptor(os.dup(source), f"descriptor {source}", at_start=False)
    return _open_other(source)


def _open_other(source: Any) -> Source:  # noqa: ANN401 - told apart here
    if hasattr(source, "read"):
        if isinstance(source, io.TextIOBase):
            raise TypeError("a stream is bytes, and the file is open as text: open it with 'rb'")
        return BufferedSource(FileReader(source))
    try:
        return MemorySource(source)
    except TypeError:
        pass
    if isinstance(source, AsyncIterable):
        raise TypeError("asynchronous iterables are for AsyncClient")
    if isinstance(source, list | tuple) and any(map(_is_file, source)):
        raise TypeError("a post is one stream: the streams of partitions make a run, client.runs")
    if not isinstance(source, Iterable):
        raise TypeError(f"{type(source).__name__} cannot be posted")
    return BufferedSource(PiecesReader(source))


def _is_file(item: object) -> bool:
    return isinstance(item, str | os.PathLike) and Path(item).is_file()


def _open_path(path: Path) -> Source:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as e:
        raise SourceError(f"{path} cannot be read: {e.strerror}") from e
    return _open_descriptor(fd, str(path), at_start=True)


def _open_descriptor(fd: int, name: str, *, at_start: bool) -> Source:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        os.close(fd)
        raise SourceError(f"{name} is a directory")
    if stat.S_ISREG(mode) and (at_start or os.lseek(fd, 0, os.SEEK_CUR) == 0):
        return FileSource(fd, name)
    return BufferedSource(DescriptorReader(fd, owned=True))
