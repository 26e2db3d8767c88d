"""Which files datasets may be made of: regular ones under the directories that are served.

A path is opened first, without reading rights or side effects, and then the kernel is
asked where what was opened really lies. So it does not matter how a path got there, by
``..``, links or a rename in the middle of it, nor what becomes of the path afterwards:
what was looked at is what is read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

from app.errors import BusyError, InvalidOptionError, ServiceError, TooLargeError

MAX_FILES = 100_000  # of one dataset, unless told otherwise
_MAX_ENTRIES = 2_000_000  # looked at for one pattern
_MAX_DEPTH = 100  # directories one in the other
_MAGIC = re.compile(r"[*?\[]")
_UNSPEAKABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_NUMBER = re.compile(r"([0-9]+)")
_ANY_DEPTH = "**"
_LOOK = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC
_SCAN = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class PathRefusedError(ServiceError):
    """A path that leads out of the directories that are served, or to no regular file."""

    code = "path-refused"


class FileMissingError(ServiceError):
    """A file of a dataset is not there."""

    code = "file-missing"


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is in a directory."""

    name: str
    is_link: bool
    is_directory: bool
    is_plain: bool

    @classmethod
    def of(cls, entry: os.DirEntry[str]) -> _Entry:
        directory = False
        with contextlib.suppress(OSError):
            directory = entry.is_dir()
        plain = entry.is_file(follow_symlinks=False)
        return cls(entry.name, entry.is_symlink(), directory, plain)


class Roots:
    """The directories below which files may be read; each may be a link, and come late.

    Relative paths are relative to the first of them in which there is something.

    Args:
        roots: absolute paths, none of them ``/``.

    Raises:
        ValueError: one of them is not such a path, or /proc is not mounted.
    """

    def __init__(self, roots: Sequence[str | Path]) -> None:
        if not Path("/proc/self/fd").is_dir():
            raise ValueError("/proc must be mounted: it tells where a file lies")
        self.roots = tuple(_normal(os.fspath(root)) for root in roots)
        for root, given in zip(self.roots, roots, strict=True):
            if not root.startswith("/") or os.path.realpath(root) == "/":
                raise ValueError(f"a root must be an absolute path, and not /: {given}")

    @classmethod
    def parse(cls, text: str) -> Roots:
        """Roots from a list as in ``PATH``, whose empty parts do not count.

        Raises:
            ValueError: as for the class.
        """
        return cls([part for part in text.split(os.pathsep) if part])

    def open(self, path: str | Path) -> int:
        """A descriptor to read a regular file with; the caller closes it.

        Raises:
            PathRefusedError: it is not under a root, is no regular file, or may not be read.
            FileMissingError: it is not there.
            BusyError: too many files are open.
        """
        name = os.fspath(path)
        error: ServiceError = _outside(name)
        for candidate in self._candidates(name):
            try:
                return self._open(candidate, name, _READ)
            except FileMissingError as e:
                error = e
        raise error

    def expand(self, patterns: Sequence[str], limit: int = MAX_FILES) -> list[Path]:
        """The files some paths and patterns name, absolute, to be opened with ``open``.

        ``*``, ``?`` and ``[…]`` match within a name, a leading dot excepted, ``**`` any
        number of directories; a name that exists is taken as it is. What a pattern finds
        is sorted by its numbers, 2 before 10. Directories that match are passed over.

        Raises:
            PathRefusedError: what is named, or found, is refused, be it by where a link leads.
            FileMissingError: a path or pattern finds nothing.
            TooLargeError: there are more files than the limit, or too much to look through.
            InvalidOptionError: a file is found twice.
            BusyError: too many files are open.
        """
        found: dict[Path, None] = {}
        for pattern in patterns:
            before = len(found)
            matches = self._matches(pattern, limit - before)
            found |= dict.fromkeys(sorted(matches, key=numerically))
            if len(found) != before + len(matches):
                raise InvalidOptionError(f"{pattern!r} names a file that was named before")
        return list(found)

    def directory(self, path: str | Path) -> Path | None:
        """Where a directory is that a path names; None if that is something else, or nothing.

        Raises:
            PathRefusedError: it is not under a root.
            BusyError: too many files are open.
        """
        name = os.fspath(path)
        for candidate in self._candidates(name):
            with contextlib.suppress(FileMissingError), self._looking_at(candidate, name) as seen:
                return Path(candidate) if stat.S_ISDIR(seen[1]) else None
        return None

    def below(self, directory: Path, limit: int = MAX_FILES) -> tuple[list[Path], dict[Path, int]]:
        """All files below a directory, in order, and its directories with their times.

        The time of a directory, in nanoseconds, is when something in it was last added or
        removed. Names that begin with a dot are left out.

        Raises:
            PathRefusedError: it is not under a root, or a link leads to a directory, out of
                the roots or to nothing.
            FileMissingError: it is not there.
            TooLargeError: there are more files than the limit, or too much to look through.
            BusyError: too many files are open.
        """
        files: list[Path] = []
        directories: dict[Path, int] = {}
        budget = iter(range(_MAX_ENTRIES))
        waiting = [os.fspath(directory)]
        while waiting:
            path = waiting.pop()
            with self._looking_at(path, path) as (descriptor, _):
                directories[Path(path)] = os.fstat(descriptor).st_mtime_ns
            for entry in self._scan(path, budget):
                inner = f"{path}/{entry.name}"
                if entry.name.startswith("."):
                    continue
                _check_text(entry.name)
                if entry.is_directory and entry.is_link:
                    raise PathRefusedError(f"{inner!r} is a link to a directory", path=inner)
                if entry.is_directory:
                    waiting.append(inner)
                elif entry.is_plain or self._leads_to_file(inner):
                    files.append(Path(inner))
            if len(files) > limit:
                raise TooLargeError(f"{str(directory)!r} has more files than are allowed")
        return sorted(files, key=numerically), directories

    def _matches(self, pattern: str, limit: int) -> list[Path]:
        error: ServiceError = _outside(pattern)
        for candidate in self._candidates(pattern):
            found: set[Path] = set()
            budget = iter(range(_MAX_ENTRIES))
            root = next(root for root in self.roots if _is_below(candidate, root))
            parts = candidate[len(root) + 1 :].split("/")
            with contextlib.suppress(FileMissingError):
                for match in self._walk(root, parts, budget):
                    found.add(Path(match))
                    if len(found) > limit:
                        raise TooLargeError(f"{pattern!r} finds more files than are allowed")
            if found:
                return list(found)
            error = FileMissingError(f"{pattern!r} finds no file", path=pattern)
        raise error

    def _candidates(self, name: str) -> list[str]:
        """Absolute paths a name can mean, as far as its text tells."""
        _check_text(name)
        tops = [""] if name.startswith("/") else self.roots
        paths = [_normal(f"{top}/{name}") for top in tops]
        return [path for path in paths if any(_is_below(path, root) for root in self.roots)]

    def _walk(self, directory: str, parts: Sequence[str], budget: Iterator[int]) -> Iterator[str]:
        """Files that match the parts of a pattern below a directory that is inside."""
        part, rest = parts[0], parts[1:]
        if part == _ANY_DEPTH:
            with contextlib.suppress(FileMissingError):
                yield from self._walk(directory, rest or ["*"], budget)
            for entry in self._scan(directory, budget):
                # Links are not followed: they can lead around in circles.
                if entry.is_directory and not entry.is_link and not entry.name.startswith("."):
                    yield from self._walk(f"{directory}/{entry.name}", parts, budget)
        elif _MAGIC.search(part):
            for entry in _fitting(self._scan(directory, budget), part):
                yield from self._take(f"{directory}/{entry.name}", entry, rest, budget)
        elif rest:
            yield from self._walk(f"{directory}/{part}", rest, budget)
        elif self._is_file(f"{directory}/{part}"):
            yield f"{directory}/{part}"

    def _take(
        self, path: str, entry: _Entry, rest: Sequence[str], budget: Iterator[int]
    ) -> Iterator[str]:
        if rest and entry.is_directory:
            # Where the names behind a pattern are not, there is nothing to be found.
            with contextlib.suppress(FileMissingError):
                yield from self._walk(path, rest, budget)
        elif not rest and (entry.is_plain or self._leads_to_file(path)):
            _check_text(entry.name)
            yield path

    def _leads_to_file(self, path: str) -> bool:
        try:
            return self._is_file(path)
        except FileMissingError as e:
            raise PathRefusedError(f"{path!r} is a link to nowhere", path=path) from e

    def _scan(self, directory: str, budget: Iterator[int]) -> list[_Entry]:
        descriptor = self._open(directory, directory, _SCAN)
        try:
            with os.scandir(descriptor) as entries:
                found = [_Entry.of(entry) for entry, _ in zip(entries, budget, strict=False)]
        except OSError as e:
            self._raise(e, directory, directory)
        finally:
            os.close(descriptor)
        if next(budget, None) is None or directory.count("/") > _MAX_DEPTH:
            raise TooLargeError(f"{directory!r} has too much in it to look through")
        return found

    def _is_file(self, path: str) -> bool:
        """Whether a path leads to a file, not a directory; what else there is, is refused."""
        with self._looking_at(path, path) as (_, mode):
            if stat.S_ISDIR(mode):
                return False
            _check_regular(path, mode)
        return True

    def _open(self, path: str, name: str, flags: int) -> int:
        with self._looking_at(path, name) as (descriptor, mode):
            if flags & os.O_DIRECTORY == 0:
                _check_regular(name, mode)
            try:
                # The very same file, whatever became of its name.
                return os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError as e:
                self._raise(e, path, name)

    @contextlib.contextmanager
    def _looking_at(self, path: str, name: str) -> Iterator[tuple[int, int]]:
        """A descriptor that cannot read, of something that lies inside, and its mode."""
        try:
            descriptor = os.open(path, _LOOK)
        except OSError as e:
            self._raise(e, path, name)
        try:
            status = os.fstat(descriptor)
            if not self._contains(str(Path(f"/proc/self/fd/{descriptor}").readlink())):
                raise _outside(name)
            if not status.st_nlink:
                raise FileMissingError(f"{name!r} was removed", path=name)
            yield descriptor, status.st_mode
        finally:
            os.close(descriptor)

    def _contains(self, real: str) -> bool:
        return any(
            real == root or _is_below(real, root) for root in map(os.path.realpath, self.roots)
        )

    def _raise(self, error: OSError, path: str, name: str) -> NoReturn:
        """Say what is wrong, and nothing about what lies outside."""
        if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}:
            raise BusyError("too many files are open", retry_after=5) from error
        if not self._contains(os.path.realpath(path)):
            raise _outside(name) from error
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            raise FileMissingError(f"there is no file {name!r}", path=name) from error
        raise PathRefusedError(f"{name!r} cannot be read: {error.strerror}", path=name) from error


def numerically(path: Path) -> tuple[list[str | int], str]:
    """A key that sorts paths by the numbers in them: 2 before 10."""
    parts: list[str | int] = list(_NUMBER.split(str(path)))
    parts[1::2] = [int(digits) for digits in parts[1::2]]
    return parts, str(path)


def _normal(path: str) -> str:
    return os.path.normpath(re.sub("^/+", "/", path))


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root}/")


def _fitting(entries: Sequence[_Entry], part: str) -> list[_Entry]:
    literal = [entry for entry in entries if entry.name == part]
    return literal or [
        entry
        for entry in entries
        if fnmatchcase(entry.name, part) and (part[0] == "." or entry.name[0] != ".")
    ]


def _check_text(name: str) -> None:
    if _UNSPEAKABLE.search(name):
        raise PathRefusedError("a path may have no control characters, and must be UTF-8")
    if name.count("/") > _MAX_DEPTH:
        raise PathRefusedError(f"a path of more than {_MAX_DEPTH} directories")


def _check_regular(name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise PathRefusedError(f"{name!r} is not a regular file", path=name)


def _outside(name: str) -> PathRefusedError:
    return PathRefusedError(
        f"{name!r} is not under a directory that is served",
        hint="The operator of the server says which directories are",
        path=name,
    )
