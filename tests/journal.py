"""A journal of file operations, and the disks that a power failure in between could leave.

While a journal records, every operation of ``os`` on files below its directory is noted. A
crash after any of them leaves what was synced, and of the rest an arbitrary part:

* of the writes to a file since it was synced, each is there, or not, or up to a sector;
* of the changes of names in a directory since *it* was synced, each is there or not. A
  rename is there as a whole or not at all.

``crashes`` makes such disks: for every prefix of the journal one that has nothing but what
was synced, one that has everything, and some at random. A test opens each, as the program
does after a failure, and checks that what was acknowledged by then is there, and what was
begun is there whole or not at all.

What bypasses ``os``, such as a file opened with ``open``, would make any test pass; so the
last disk is compared with the directory itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECTOR = 512
"""Bytes that a disk writes as a whole."""
_ROOT = 0


@dataclass(frozen=True)
class Write:
    """Bytes written to a file, or its size changed if there are none."""

    file: int
    at: int
    data: bytes | None = None


@dataclass(frozen=True)
class Names:
    """Changes of names that happen together: (directory, name) to a file, or None."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Sync:
    """A file or directory was synced."""

    target: int


@dataclass(frozen=True)
class Said:
    """The program began something, or acknowledged it."""

    what: Any


Entry = Write | Names | Sync | Said


@dataclass
class Crash:
    """A disk after a crash.

    Attributes:
        path: the directory as it was left.
        said: what the program had said by then, in order.
        how: for messages.
    """

    path: Path
    said: list[Any]
    how: str


@dataclass
class _Disk:
    """Files and directories, as far as they were synced, and what may be there too."""

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=lambda: {_ROOT: {}})
    writes: list[Write] = field(default_factory=list)
    changes: list[Names] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Write):
            self.writes.append(entry)
        elif isinstance(entry, Names):
            self.changes.append(entry)
        elif isinstance(entry, Sync):
            self._sync(entry.target)

    def _sync(self, target: int) -> None:
        for write in [w for w in self.writes if w.file == target]:
            self._write(self.files, write)
            self.writes.remove(write)
        for change in [c for c in self.changes if any(d == target for d, _, _ in c.changes)]:
            if change in self.changes:
                self._settle(change)

    def _settle(self, change: Names) -> None:
        """Make a change durable, with all earlier ones of the same names."""
        names = {(directory, name) for directory, name, _ in change.changes}
        for other in self.changes[: self.changes.index(change) + 1]:
            if names & {(directory, name) for directory, name, _ in other.changes}:
                self._change(self.names, other)
                self.changes.remove(other)

    @staticmethod
    def _write(files: dict[int, bytes], write: Write) -> None:
        known = files.get(write.file, b"")
        if write.data is None:
            files[write.file] = known[: write.at].ljust(write.at, b"\0")
        else:
            end = write.at + len(write.data)
            files[write.file] = known[: write.at].ljust(write.at, b"\0") + write.data + known[end:]

    @staticmethod
    def _change(names: dict[int, dict[str, int]], change: Names) -> None:
        for directory, name, target in change.changes:
            entries = names.setdefault(directory, {})
            if target is None:
                entries.pop(name, None)
            else:
                entries[name] = target

    def left(self, keep: Callable[[int], float]) -> _Disk:
        """What a crash leaves; ``keep`` draws the part of an operation that is there."""
        disk = _Disk(dict(self.files), {d: dict(n) for d, n in self.names.items()})
        for write in self.writes:
            part = keep(0)
            if write.data is None:
                if part >= 0.5:
                    disk._write(disk.files, write)
                continue
            length = len(write.data)
            if part < 1:
                # Up to the end of a sector, or not at all.
                length = int(part * (write.at + length)) // SECTOR * SECTOR - write.at
            if length > 0:
                disk._write(disk.files, Write(write.file, write.at, write.data[:length]))
        for change in self.changes:
            if keep(1) >= 0.5:
                disk._change(disk.names, change)
        return disk

    def lay_out(self, path: Path, directory: int = _ROOT) -> None:
        """Make the files and directories."""
        path.mkdir()
        for name, target in self.names.get(directory, {}).items():
            if target < 0:
                self.lay_out(path / name, target)
            else:
                (path / name).write_bytes(self.files.get(target, b""))
                (path / name).chmod(0o600)


class Journal:
    """Records what ``os`` does below a directory.

    Args:
        monkeypatch: undoes the recording.
        root: the directory; empty.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.root = root
        self.entries: list[Entry] = []
        self._objects: dict[int, int] = {root.stat().st_ino: _ROOT}
        self._made = 0
        self._real = {name: getattr(os, name) for name in _RECORDED}
        for name in _RECORDED:
            monkeypatch.setattr(os, name, getattr(self, name))

    def say(self, what: Any) -> None:  # noqa: ANN401 - what the test understands
        """Note that the program began something, or acknowledged it."""
        self.entries.append(Said(what))

    def _is_below(self, path: Any) -> bool:  # noqa: ANN401 - as os takes it
        return not isinstance(path, int) and Path(path).is_relative_to(self.root)

    def _object(self, target: Any) -> int | None:  # noqa: ANN401 - a path or descriptor
        try:
            return self._objects.get(os.stat(target).st_ino)  # noqa: PTH116 - or a descriptor
        except FileNotFoundError:
            return None

    def _place(self, path: Any) -> tuple[int, str]:  # noqa: ANN401 - as os takes it
        directory = self._object(Path(path).parent)
        assert directory is not None, path
        return directory, Path(path).name

    def _add(self, path: Any, *, directory: bool = False) -> None:  # noqa: ANN401 - as os takes it
        """Note a new file or directory; directories have negative numbers."""
        self._made += 1
        number = -self._made if directory else self._made
        self._objects[os.stat(path).st_ino] = number  # noqa: PTH116 - the path's type is open
        self.entries.append(Names(((*self._place(path), number),)))

    # -- what os does -------------------------------------------------------------------

    def open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:  # noqa: ANN401
        known = self._is_below(path)
        existed = known and Path(path).exists()
        descriptor: int = self._real["open"](path, flags, *rest, **more)
        if known and not existed:
            self._add(path)
        elif known and flags & os.O_TRUNC:
            self._write(descriptor, 0, None)
        return descriptor

    def _write(self, descriptor: int, at: int, data: bytes | None) -> None:
        file = self._object(descriptor)
        if file is not None:
            self.entries.append(Write(file, at, data))

    def write(self, descriptor: int, data: Any) -> int:  # noqa: ANN401 - a buffer
        at = 0
        if self._object(descriptor) is not None:
            at = os.lseek(descriptor, 0, os.SEEK_CUR)
        count: int = self._real["write"](descriptor, data)
        self._write(descriptor, at, bytes(memoryview(data).cast("B")[:count]))
        return count

    def pwrite(self, descriptor: int, data: Any, at: int) -> int:  # noqa: ANN401 - a buffer
        count: int = self._real["pwrite"](descriptor, data, at)
        self._write(descriptor, at, bytes(memoryview(data).cast("B")[:count]))
        return count

    def pwritev(self, descriptor: int, buffers: Any, at: int) -> int:  # noqa: ANN401 - buffers
        count: int = self._real["pwritev"](descriptor, buffers, at)
        self._write(descriptor, at, b"".join(map(bytes, buffers))[:count])
        return count

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._real["ftruncate"](descriptor, size)
        self._write(descriptor, size, None)

    def fsync(self, descriptor: int) -> None:
        self._real["fsync"](descriptor)
        target = self._object(descriptor)
        if target is not None:
            self.entries.append(Sync(target))

    def fdatasync(self, descriptor: int) -> None:
        # Of a file's size, too, it syncs what is needed to read the data.
        self.fsync(descriptor)

    def mkdir(self, path: Any, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        self._real["mkdir"](path, *rest, **more)
        if self._is_below(path):
            self._add(path, directory=True)

    def link(self, source: Any, target: Any, **more: Any) -> None:  # noqa: ANN401
        self._real["link"](source, target, **more)
        if self._is_below(target):
            self.entries.append(Names(((*self._place(target), self._known(target)),)))

    def _known(self, path: Any) -> int:  # noqa: ANN401 - as os takes it
        number = self._object(path)
        assert number is not None, path
        return number

    def unlink(self, path: Any, **more: Any) -> None:  # noqa: ANN401
        place = self._place(path) if self._is_below(path) and Path(path).exists() else None
        self._real["unlink"](path, **more)
        if place is not None:
            self.entries.append(Names(((*place, None),)))

    remove = unlink

    def replace(self, source: Any, target: Any, **more: Any) -> None:  # noqa: ANN401
        below = self._is_below(source)
        number = self._known(source) if below else 0
        self._real["replace"](source, target, **more)
        if below:
            gone, new = (*self._place(source), None), (*self._place(target), number)
            self.entries.append(Names((gone, new)))

    rename = replace

    # -- crashes --------------------------------------------------------------------------

    def crashes(self, where: Path, tries: int) -> Iterator[Crash]:
        """Yield the disks that a crash can leave, one after the other.

        Args:
            where: an empty directory, in which they are made.
            tries: number of disks at random for each prefix of the journal.
        """
        disk = _Disk()
        said: list[Any] = []
        self._compare(where)
        for k, entry in enumerate([None, *self.entries]):
            if isinstance(entry, Said):
                said.append(entry.what)
            elif entry is not None:
                disk.add(entry)
            for name, keep in self._ways(k, tries):
                path = where / f"{k}-{name}"
                disk.left(keep).lay_out(path)
                yield Crash(path, list(said), f"after {k} operations, {name}: {entry}"[:300])
                shutil.rmtree(path)

    @staticmethod
    def _ways(k: int, tries: int) -> Iterator[tuple[str, Callable[[int], float]]]:
        yield "synced", lambda _: 0.0
        yield "all", lambda _: 1.0
        yield "data", lambda names: 1.0 - names
        yield "names", float
        for n in range(tries):
            yield f"random{n}", _at_random(np.random.default_rng([k, n]))

    def _compare(self, where: Path) -> None:
        """Check that nothing escaped the journal."""
        disk = _Disk()
        for entry in self.entries:
            disk.add(entry)
        path = where / "whole"
        disk.left(lambda _: 1.0).lay_out(path)
        found, recorded = contents(self.root), contents(path)
        escaped = {name for name in found | recorded if found.get(name) != recorded.get(name)}
        assert not escaped, f"something was not recorded: {escaped}"
        shutil.rmtree(path)


_RECORDED = (
    "open",
    "write",
    "pwrite",
    "pwritev",
    "ftruncate",
    "fsync",
    "fdatasync",
    "mkdir",
    "link",
    "unlink",
    "remove",
    "replace",
    "rename",
)


def _at_random(rng: np.random.Generator) -> Callable[[int], float]:
    """Draw parts: mostly the whole or nothing, as most are."""
    return lambda _: float(np.clip(rng.uniform(-1, 2), 0, 1))


def contents(root: Path) -> dict[str, bytes | None]:
    """Everything below a directory: the content of files, None for directories."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }
