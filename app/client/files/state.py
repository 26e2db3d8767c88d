"""State files: what another process needs to resume where this one stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from ..errors import OtherFileError
from .outputs import rename_durably, sync_directory, write_all

T = TypeVar("T")

PathLike: TypeAlias = str | os.PathLike[str]

INTERVAL = 0.1
"""Seconds between writes of a state file; what is done meanwhile is repeated after a kill."""
_CHEAP = INTERVAL / 20
"""Seconds that a write may take. Where it takes longer, pauses grow with it, so that on a slow
disk, too, writing states takes at most a twentieth of the time."""

_GROUP_INTERVAL = 1.0
"""Seconds between two groups of files that are synced; a power failure takes as much."""
_SYNCS = 8

_VERSION = 1


class StateFile:
    """A JSON file that is replaced as a whole, and not too often.

    Args:
        path: of the file; None to store no state.
        member: name of the member that holds the version; it tells kinds of states apart.
        clock: seconds.
    """

    def __init__(
        self, path: PathLike | None, member: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = None if path is None else Path(path)
        self._member = member
        self._clock = clock
        self._written = float("-inf")
        self._took = 0.0

    def load(self, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        """Read the state; None if there is no file.

        Args:
            parse: builds the state; it may raise KeyError, TypeError or ValueError.

        Raises:
            OtherFileError: the file is not a state file, or of another version.
        """
        if self.path is None:
            return None
        try:
            content = json.loads(self.path.read_bytes())
            if content[self._member] != _VERSION:
                raise OtherFileError(f"{self.path} is of another version")
            return parse(content)
        except FileNotFoundError:
            return None
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise OtherFileError(f"{self.path} is not a state file") from e

    @property
    def is_due(self) -> bool:
        """Whether the last write is long enough ago for another one."""
        pause = INTERVAL * (1 + self._took / _CHEAP)
        return self.path is not None and self._clock() - self._written > pause

    def save(self, content: Mapping[str, Any], sync: Callable[[], None] = lambda: None) -> None:
        """Replace the file, durably.

        Args:
            content: members of the file, JSON values.
            sync: makes durable what the content names; called first.
        """
        if self.path is not None:
            begun = self._clock()
            sync()
            text = json.dumps({self._member: _VERSION, **content})
            replace_file(self.path, text.encode())
            self._written = self._clock()
            self._took = self._written - begun

    def exists(self) -> bool:
        """Whether another process would find the file."""
        return self.path is not None and self.path.exists()

    def remove(self) -> None:
        """Remove the file, and what a killed process left of it: everything is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            _beside(self.path).unlink(missing_ok=True)


class FileGroups:
    """Small files and the token after the last of them, made durable in groups.

    To sync each file takes far longer than to receive it. So files are whole at once, whatever
    is killed, and durable about once a second, before the token that follows them is stored: what
    a power failure takes comes again after that token.

    Args:
        path: of the file with the token; None for none.
        clock: seconds.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._new: list[Path] = []
        self._token: str | None = None
        self._synced = float("-inf")

    def write(self, path: Path, data: bytes | memoryview) -> None:
        """Replace a file; readers see the old content or the new, never a part."""
        replace_file(path, data, durably=False)
        self._new.append(path)

    def follow(self, token: str) -> None:
        """The token follows what was written."""
        self._token = token
        if self._clock() - self._synced > _GROUP_INTERVAL:
            self.sync()

    def sync(self) -> None:
        """Make all durable."""
        # Side by side: a file system writes its journal once for several.
        with ThreadPoolExecutor(_SYNCS, "thalweg-sync") as executor:
            list(executor.map(_sync, self._new))
        for folder in {path.parent for path in self._new}:
            sync_directory(folder)
        self._new.clear()
        token, self._token = self._token, None
        if self._path is not None and token is not None:
            replace_file(self._path, f"{token}\n".encode())
        self._synced = self._clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sync()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes | memoryview, *, durably: bool = True) -> None:
    """Replace a small file; readers see the old content or the new, never a part.

    Raises:
        OSError: it cannot be written; the old file remains, or the new one is there.
    """
    beside = _beside(path)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(fd, data)
        rename_durably(fd, beside, path) if durably else beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _beside(path: Path) -> Path:
    """The file that becomes ``path``; one name, so that the next process overwrites it."""
    return path.with_name(f"{path.name}.new")
