"""Notices among processes: something with this name has changed.

Whoever has changed something opens an empty file for writing, and closes it: the kernel tells all
who watch its directory (inotify), in whatever process of this machine, and nothing is written to
the disk. Names share 64 files, so a notice may be for another name: whoever gets it has a look.

    announce("run-7f3c…") ──▶ open and close notices/2b ──▶ inotify ──▶ all who wait for 2b
"""

from __future__ import annotations

import ctypes
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from .durable import as_store_errors, make_directories

FILES = tuple(f"{number:02x}" for number in range(64))
"""Names of all files."""
_CLOSED = 0x8
"""IN_CLOSE_WRITE: a file that was open for writing has been closed."""
_EVENT = struct.Struct("iIII")
"""Watch, mask, cookie, and length of the name that follows."""
_ROOM = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True)


class Notices:
    """Notices in a directory, which is made if it does not exist.

    Args:
        directory: of the files.

    Raises:
        StoreError: it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with as_store_errors(directory):
            make_directories(directory, 0o700)

    def give(self, name: str) -> None:
        """Tell all who listen that something with this name has changed.

        Raises:
            OSError: nobody was told.
        """
        self._give_files([file_of(name)])

    def _give_files(self, files: Iterable[str]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        for file in files:
            os.close(os.open(self._directory / file, flags, 0o600))

    def relay(self) -> None:
        """Pass on what other nodes tell; there are none here."""

    def close(self) -> None:
        """End what passes notices on; may be called twice."""

    def listen(self) -> Listener:
        """Return what hears all notices from now on.

        Raises:
            OSError: the system has no room for it.
        """
        return Listener(self._directory)


class Listener:
    """Hears notices.

    Args:
        directory: of the files.

    Attributes:
        file: a descriptor that is readable when there are notices.

    Raises:
        OSError: the system has no room for it.
    """

    def __init__(self, directory: Path) -> None:
        self.file = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _checked(_libc.inotify_add_watch(self.file, os.fsencode(directory), _CLOSED))
        except OSError:
            self.close()
            raise

    def hear(self) -> set[str] | None:
        """Return the files of the names that have changed; None if it may be all of them."""
        heard: set[str] = set()
        try:
            events = os.read(self.file, _ROOM)
        except BlockingIOError:
            return heard
        while events:
            _, mask, _, length = _EVENT.unpack_from(events)
            if not mask & _CLOSED:
                # More than the kernel had room for, or the directory is gone.
                return None
            name, events = events[_EVENT.size :][:length], events[_EVENT.size + length :]
            heard.add(name.rstrip(b"\0").decode("ascii", "replace"))
        return heard

    def close(self) -> None:
        """Hear nothing any more."""
        os.close(self.file)


def file_of(name: str) -> str:
    """Return the file of a name."""
    return FILES[zlib.crc32(name.encode()) % len(FILES)]


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
