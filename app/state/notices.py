"""Notices among processes: something with this name has changed.

Whoever has changed something opens an empty file for writing, and closes it: the kernel tells all
who watch its directory (inotify), in whatever process of this machine, and nothing is written to
the disk. Names share 64 files, so a notice may be for another name: whoever gets it has a look.

    announce("run-7f3c…") ──▶ open and close notices/2b ──▶ inotify ──▶ all who wait for 2b

Between nodes their database passes notices on: each process has a thread that tells it, so that
nobody waits for that, and one process of each node listens, and gives what it hears to the others
of its node.

    announce ──▶ notices of the node
           └───▶ thread ──▶ NOTIFY ──▶ relay of another node ──▶ its notices

A notice that is lost, as one given while a relay connects again, delays those who wait for it: a
relay that has connected gives all notices, and whoever follows looks once in a while.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from .base import StoreError
from .durable import as_store_errors, make_directories

if TYPE_CHECKING:
    from .postgres import PostgresStateStore

FILES = tuple(f"{number:02x}" for number in range(64))
"""Names of all files."""
_CLOSED = 0x8
"""IN_CLOSE_WRITE: a file that was open for writing has been closed."""
_EVENT = struct.Struct("iIII")
"""Watch, mask, cookie, and length of the name that follows."""
_ROOM = 1 << 16
_CHANNEL = "thalweg_notices"
_PAUSE = 1.0
"""Seconds before a relay connects again, and in which it notices that it is to stop."""
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


class NodeNotices(Notices):
    """Notices to the processes of all nodes.

    Args:
        directory: of the notices of this node.
        database: of all.
        node: name of this one.

    Raises:
        StoreError: the directory cannot be made.
    """

    def __init__(self, directory: Path, database: PostgresStateStore, node: str) -> None:
        super().__init__(directory)
        self._database = database
        self._node = node
        self._waiting: set[str] = set()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._threads: dict[Callable[[], None], threading.Thread] = {}

    def give(self, name: str) -> None:
        """See Notices; other nodes are told a moment later."""
        super().give(name)
        with self._changed:
            self._waiting.add(file_of(name))
            self._changed.notify()
            self._start(self._tell)

    def relay(self) -> None:
        """Give the notices of other nodes to the processes of this one, from now on."""
        with self._changed:
            self._start(self._relay)

    def _start(self, function: Callable[[], None]) -> None:
        if function not in self._threads and not self._stopped.is_set():
            thread = threading.Thread(target=function, name="notices", daemon=True)
            self._threads[function] = thread
            thread.start()

    def _tell(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped.is_set())
                files, self._waiting = self._waiting, set()
            if not files:
                return
            # Who is not told looks after a while.
            with contextlib.suppress(StoreError):
                self._database.notify(_CHANNEL, " ".join([self._node, *files]))

    def _relay(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._database.listening(_CHANNEL) as listener:
                    # Some may have been given while nobody listened.
                    self._give_files(FILES)
                    while not self._stopped.is_set():
                        for text in listener(_PAUSE):
                            node, *files = text.split()
                            if node != self._node:
                                self._give_files(files)
            except StoreError as e:
                structlog.get_logger().warning("notices of other nodes are late", reason=str(e))
                self._stopped.wait(_PAUSE)

    def close(self) -> None:
        """End the threads; may be called twice."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads.values():
            thread.join()


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
