"""The processes that use a data directory, each present by a file that it locks.

The kernel releases the lock of a process that ends, however it ends. So a file that can be
locked is that of a dead process, and so is one that is gone: everybody sees a death at once,
whoever started the process, and also from another container of the same machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from .durable import as_store_errors, create_once, make_directories, opened
from .turns import Turns

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PARTS = 2
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Presence:
    """The presence of this process among others.

    Args:
        directory: of the files; None where this process is alone.

    Attributes:
        file: descriptor of its file, in which it may say what others have to know; None if
            there is none, or it is closed.
        name: of this process, by which others on this machine see whether it has ended.

    Raises:
        StoreError: the directory cannot be written.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.file: int | None = None
        ident = f"{os.getpid()}-{secrets.token_hex(8)}"  # of _PARTS
        # Only those of one directory see the ends of each other's processes.
        self._machine = _machine() if directory is None else f"{_machine()}.{node_of(directory)}"
        self.name = f"{self._machine} {ident}"
        self._directory = directory
        self._turns: Turns | None = None
        if directory is not None:
            with as_store_errors(directory):
                make_directories(directory, 0o700)
                self._turns = Turns(directory / "lock", 10.0)
                # Within a turn, or another process would take it for that of a dead one.
                with self._turns.turn():
                    self.file = os.open(_path(directory, ident), _CREATE, 0o600)
                    fcntl.flock(self.file, fcntl.LOCK_EX)
                    for _ in self.others():
                        # Those that have ended leave nothing.
                        pass

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Have a turn among all processes.

        Raises:
            StoreError: it did not come in time, or the directory cannot be used.
        """
        if self._turns is None or self._directory is None:
            yield
            return
        with as_store_errors(self._directory), self._turns.turn():
            yield

    def others(self) -> Iterator[int]:
        """Yield the file of each other process, and remove those of dead ones; within a turn."""
        if self._directory is None or self.file is None:
            return
        own = os.fstat(self.file).st_ino
        for path in self._directory.glob("*.json"):
            with contextlib.suppress(FileNotFoundError), opened(path) as file:
                if os.fstat(file).st_ino == own:
                    continue
                if _is_free(file):
                    path.unlink()
                else:
                    yield file

    def pids(self) -> list[int]:
        """Return the ids of all other processes, each in the namespace of its own."""
        if self._directory is None:
            return []
        idents = [path.stem for path in self._directory.glob("*.json")]
        running = [i for i in idents if not self.has_ended(f"{self._machine} {i}")]
        ids = [ident.split("-") for ident in running]
        pids = {int(parts[0]) for parts in ids if len(parts) == _PARTS}
        return sorted(pids - {os.getpid()})

    def is_near(self, name: str) -> bool:
        """Whether a process is on this machine, so that its end is seen from here."""
        return name.partition(" ")[0] == self._machine and _machine() != ""

    def has_ended(self, name: str) -> bool:
        """Whether a process on this machine has ended; False where that cannot be seen."""
        if not self.is_near(name) or name == self.name:
            return False
        if self._directory is None:
            return True
        try:
            with opened(_path(self._directory, name.partition(" ")[2])) as file:
                return _is_free(file)
        except (FileNotFoundError, ValueError):
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Be present no more; may be called twice."""
        file, self.file = self.file, None
        if file is not None:
            os.close(file)
        if self._turns is not None:
            self._turns.close()


def pids_beside(directory: Path) -> list[int]:
    """Return the ids of all processes that are present in a directory.

    Raises:
        StoreError: it cannot be written.
    """
    with contextlib.closing(Presence(directory)) as presence:
        return presence.pids()


def node_of(directory: Path) -> str:
    """Return the name of the node whose processes are present in a directory: 16 digits.

    Raises:
        StoreError: it cannot be written.
    """
    with as_store_errors(directory):
        make_directories(directory, 0o700)
        path = directory / "node"
        if not path.exists():
            create_once(path, secrets.token_hex(8).encode())
        return path.read_text("ascii")


def _path(directory: Path, ident: str) -> Path:
    return directory / f"{ident}.json"


def _is_free(file: int) -> bool:
    """Whether no process has locked a file; those that look do not keep each other from it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _machine() -> str:
    """Return the name of this machine since it was booted; empty if it has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
