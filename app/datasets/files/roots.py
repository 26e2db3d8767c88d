"""Roots: the directories whose files may be served, and safe opening of paths below them.

Clients name files of datasets, and must never reach a file outside of the roots: not with
``..``, not through a symbolic link, not by swapping a directory for a link between a check
and the open that follows it. Checking the text of a path, or its ``realpath``, before
opening it leaves that window open, so the order is reversed: open first, then ask the
kernel what was opened.

    path ──open(O_PATH)──▶ descriptor      neither reads nor has side effects: safe even for
                               │           fifos, devices and files outside
                               ├─ readlink /proc/self/fd/N   where does the object lie?
                               │      outside of all roots ──▶ refused
                               ├─ fstat                      is it a regular file?
                               │      no ──▶ refused
                               ▼
                           open(/proc/self/fd/N, O_RDONLY)   the very same object, whatever
                                                             the path names by now

Everything a client names passes through ``_look_at``, which is this picture, directories
that patterns expand to included. Refusals of paths that lead outside are all alike: they
do not tell whether anything exists there.

The service's own data directory, with its keys, is outside whatever the roots are: a
configuration in which one contains the other is refused, and so is a path that a root, made
a link later, leads there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from app.errors import BusyError, InvalidOptionError, ServiceError, TooLargeError

from .identity import Identity
from .visits import Entry, Visits, matching, numerically, watched

if TYPE_CHECKING:
    from .buckets import Bucket

MAX_FILES = 100_000
"""Default maximum number of files of one dataset."""
MAX_ENTRIES = 200_000
"""Default maximum number of directory entries to look at for one dataset: about 2 s of work."""
_MAX_DEPTH = 100
"""Maximum nesting of directories."""
MAGIC = re.compile(r"[*?\[]")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
ANY_DEPTH = "**"
_TRIES = 5
"""Looks at a path whose links somebody replaces meanwhile."""
_LOOK = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC
_SCAN = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class PathRefusedError(ServiceError, code="path-refused"):
    """A path leads outside of the served directories, or not to a regular file."""


class FileMissingError(ServiceError, code="file-missing"):
    """A file of a dataset does not exist."""


class Roots:
    """The directories below which files may be read.

    A root may be a link, and may be created later. Relative paths refer to the first root
    where they exist.

    Args:
        roots: absolute paths, none of them ``/``.
        private: directory whose files are never served, the data directory; None if there
            is none.
        max_entries: maximum number of directory entries to look at for one dataset.

    Raises:
        ValueError: a path is relative or ``/``, a root is inside the private directory or
            contains it, or /proc is not mounted.

    Attributes:
        buckets: roots that are no directories (:mod:`.buckets`).
    """

    def __init__(
        self,
        roots: Sequence[str | Path],
        private: Path | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self.max_entries = max_entries
        self.buckets: tuple[Bucket, ...] = ()
        if not Path("/proc/self/fd").is_dir():
            raise ValueError("/proc must be mounted: it tells where an open file lies")
        self.roots = tuple(_normal(os.fspath(root)) for root in roots)
        for root, original in zip(self.roots, roots, strict=True):
            if not root.startswith("/") or os.path.realpath(root) == "/":
                raise ValueError(f"a root must be an absolute path other than /: {original}")
        self._private = None if private is None else os.path.realpath(private)
        for root in map(os.path.realpath, self.roots):
            if self._is_private(root) or _is_below(self._private or "", root):
                raise ValueError(
                    f"the dataset root {root} and the data directory {self._private} contain "
                    "one another: its keys would be served. Set THALWEG_DATA_DIR to a directory "
                    "elsewhere"
                )

    def open(self, path: str | Path) -> int:
        """Open a regular file for reading; the caller closes the descriptor.

        Raises:
            PathRefusedError: the path is not below a root, not a regular file, or unreadable.
            FileMissingError: there is no such file.
            BusyError: too many files are open.
        """
        name = os.fspath(path)
        error: ServiceError = outside(self._shown(name))
        for candidate in self._candidates(name):
            try:
                return self._open(candidate, name, _READ)
            except FileMissingError as e:
                error = e
        raise error

    def expand(self, patterns: Sequence[str], limit: int = MAX_FILES) -> list[Path]:
        """Expand paths and patterns to absolute paths of files, to be opened with ``open``.

        ``*``, ``?`` and ``[…]`` match within a name, except for a leading dot, and ``**``
        matches any number of directories; a name that exists literally is taken literally.
        The matches of a pattern are sorted by the numbers in them, 2 before 10. Matching
        directories are ignored.

        Args:
            patterns: paths and patterns, absolute or relative to a root.
            limit: maximum number of files.

        Raises:
            PathRefusedError: a path, match or target of a link is refused.
            FileMissingError: a path or pattern matches nothing.
            TooLargeError: there are more files than the limit, or too many entries to search.
            InvalidOptionError: a file is named twice.
            BusyError: too many files are open.
        """
        paths: dict[Path, None] = {}
        visits = Visits(self.max_entries)
        for pattern in patterns:
            count = len(paths)
            matches = self._matches(pattern, count, limit, visits)
            paths |= dict.fromkeys(sorted(matches, key=numerically))
            if len(paths) != count + len(matches):
                raise InvalidOptionError(
                    f"{pattern!r} names a file that is named before", hint="Name each file once"
                )
        return list(paths)

    def directory(self, path: str | Path) -> Path | None:
        """Return the absolute path of a directory; None if there is none of this name.

        Raises:
            PathRefusedError: the path is not below a root.
            BusyError: too many files are open.
        """
        name = os.fspath(path)
        for candidate in self._candidates(name):
            with contextlib.suppress(FileMissingError), self._look_at(candidate, name) as seen:
                return Path(candidate) if stat.S_ISDIR(seen[1]) else None
        return None

    def listing(self, path: str) -> dict[str, bool]:
        """List a directory, or of "" the roots: names, and whether each is a directory.

        Links to directories, and names that are hidden or cannot be typed, are left out.
        """
        visits, found = Visits(self.max_entries), dict[str, bool]()
        for directory in self._candidates(path) if path else self.roots:
            with contextlib.suppress(FileMissingError):
                for entry in watched(self._scan(directory, visits)):
                    is_hidden = entry.name.startswith(".") or _FORBIDDEN.search(entry.name)
                    if not (is_hidden or (entry.is_link and entry.is_directory)):
                        found[entry.name] = entry.is_directory
        return found

    def below(
        self, directory: Path, limit: int = MAX_FILES
    ) -> tuple[list[Path], dict[Path, Identity]]:
        """List all files below a directory, and the identities of its directories.

        The modification time of a directory is when an entry was last added or removed.
        Names that begin with a dot are left out.

        Returns:
            The files sorted by the numbers in their paths, and the identities, which are of
            before the listing.

        Raises:
            PathRefusedError: the directory is not below a root, or a link in it leads to a
                directory, out of the roots or nowhere.
            FileMissingError: there is no such directory.
            TooLargeError: there are more files than the limit, or too many entries to search.
            BusyError: too many files are open.
        """
        files: list[Path] = []
        directories: dict[Path, Identity] = {}
        visits = Visits(self.max_entries)
        pending = [os.fspath(directory)]
        while pending:
            path = pending.pop()
            with self._look_at(path, path) as (descriptor, _):
                directories[Path(path)] = Identity.of(os.fstat(descriptor))
            for entry in self._scan(path, visits):
                inner = f"{path}/{entry.name}"
                if entry.name.startswith("."):
                    continue
                check_text(entry.name)
                if entry.is_directory and entry.is_link:
                    name = self._shown(inner)
                    raise PathRefusedError(f"{name!r} is a link to a directory", path=name)
                if entry.is_directory:
                    pending.append(inner)
                elif entry.is_plain or self._leads_to_file(inner):
                    files.append(Path(inner))
            if len(files) > limit:
                name = self._shown(str(directory))
                raise _too_large(f"{name!r} has more than {limit} files", "files", limit)
        return sorted(files, key=numerically), directories

    def _matches(self, pattern: str, known: int, limit: int, visits: Visits) -> list[Path]:
        shown = self._shown(pattern)
        error: ServiceError = outside(shown)
        for candidate in self._candidates(pattern):
            matches: set[Path] = set()
            root = next(root for root in self.roots if _is_below(candidate, root))
            parts = candidate[len(root) + 1 :].split("/")
            with contextlib.suppress(FileMissingError):
                for match in self._walk(root, parts, visits):
                    matches.add(Path(match))
                    if known + len(matches) > limit:
                        raise too_many_files(shown, limit)
            if matches:
                return list(matches)
            error = FileMissingError(
                f"{shown!r} matches no file", hint=self._hint(shown), path=shown
            )
        raise error

    def _hint(self, shown: str) -> str:
        top, slash, rest = shown.partition("/")
        is_root = slash and top in {root.rpartition("/")[2] for root in self.roots}
        todo = f": here, {rest!r}" if is_root else ", and ~ stands for no directory"
        return f"Names are relative to the dataset roots of the service{todo}"

    def _candidates(self, name: str) -> list[str]:
        """Return the absolute paths below roots that a name can mean, judged by its text."""
        check_text(name)
        tops = [""] if name.startswith("/") else self.roots
        paths = [_normal(f"{top}/{name}") for top in tops]
        return [path for path in paths if any(_is_below(path, root) for root in self.roots)]

    def _walk(self, directory: str, parts: Sequence[str], visits: Visits) -> Iterator[str]:
        """Yield the files below a directory that match the parts of a pattern."""
        part, rest = parts[0], parts[1:]
        if part == ANY_DEPTH:
            with contextlib.suppress(FileMissingError):
                yield from self._walk(directory, rest or ["*"], visits)
            for entry in self._scan(directory, visits):
                # Links are not followed: they can form circles.
                if entry.is_directory and not entry.is_link and not entry.name.startswith("."):
                    yield from self._walk(f"{directory}/{entry.name}", parts, visits)
        elif MAGIC.search(part):
            for entry in matching(self._scan(directory, visits), part):
                yield from self._take(f"{directory}/{entry.name}", entry, rest, visits)
        elif rest:
            yield from self._walk(f"{directory}/{part}", rest, visits)
        elif self._is_file(f"{directory}/{part}"):
            yield f"{directory}/{part}"

    def _take(self, path: str, entry: Entry, rest: Sequence[str], visits: Visits) -> Iterator[str]:
        if rest and entry.is_directory:
            # A directory may lack the names that the rest of the pattern asks for.
            with contextlib.suppress(FileMissingError):
                yield from self._walk(path, rest, visits)
        elif not rest and (entry.is_plain or self._leads_to_file(path)):
            check_text(entry.name)
            yield path

    def _leads_to_file(self, path: str) -> bool:
        try:
            return self._is_file(path)
        except FileMissingError as e:
            name = self._shown(path)
            raise PathRefusedError(f"{name!r} is a broken link", path=name) from e

    def _scan(self, directory: str, visits: Visits) -> list[Entry]:
        descriptor = self._open(directory, directory, _SCAN)
        try:
            with os.scandir(descriptor) as entries:
                listed = [Entry.of(entry) for entry in watched(visits.list(entries))]
        except OSError as e:
            self._raise(e, directory, directory)
        finally:
            os.close(descriptor)
        if directory.count("/") > _MAX_DEPTH:
            shown = self._shown(directory)
            raise _too_large(f"{shown!r} is too deep to search", "depth", _MAX_DEPTH)
        return listed

    def _is_file(self, path: str) -> bool:
        """Whether a path leads to a regular file; False for a directory.

        Raises:
            PathRefusedError: it leads outside, or to anything else.
        """
        with self._look_at(path, path) as (_, mode):
            if stat.S_ISDIR(mode):
                return False
            _check_regular(self._shown(path), mode)
        return True

    def _open(self, path: str, name: str, flags: int) -> int:
        with self._look_at(path, name) as (descriptor, mode):
            if flags & os.O_DIRECTORY == 0:
                _check_regular(self._shown(name), mode)
            try:
                # The very same file, whatever its path names by now.
                return os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError as e:
                self._raise(e, path, name)

    @contextlib.contextmanager
    def _look_at(self, path: str, name: str) -> Iterator[tuple[int, int]]:
        """Open a path below the roots with O_PATH; provide the descriptor and its mode."""
        name = self._shown(name)
        try:
            descriptor = os.open(path, _LOOK)
        except OSError as e:
            self._raise(e, path, name)
        try:
            status = os.fstat(descriptor)
            if not self._contains(str(Path(f"/proc/self/fd/{descriptor}").readlink())):
                raise self._led_out(path, name)
            if not status.st_nlink:
                raise FileMissingError(f"{name!r} was removed", path=name)
            yield descriptor, status.st_mode
        finally:
            os.close(descriptor)

    def _shown(self, path: str) -> str:
        """Return a path as problems show it: clients need not know where the roots lie."""
        tops = (f"{root}/" for root in self.roots if _is_below(path, root))
        return path.removeprefix(next(tops, ""))

    def _is_private(self, real: str) -> bool:
        return self._private is not None and (
            real == self._private or _is_below(real, self._private)
        )

    def _contains(self, real: str) -> bool:
        return not self._is_private(real) and any(
            real == root or _is_below(real, root) for root in map(os.path.realpath, self.roots)
        )

    def _led_out(self, path: str, name: str) -> PathRefusedError:
        """Return the error for a path below the roots that leads out, whatever is there."""
        if self._is_private(_real(path)):
            return outside(name)
        return outside(name, "leads through a link to outside of the served directories")

    def _raise(self, error: OSError, path: str, name: str) -> NoReturn:
        """Raise the error of a failed call, without revealing what lies outside."""
        name = self._shown(name)
        if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}:
            raise BusyError("too many files are open", retry_after=5) from error
        if not self._contains(_real(path)):
            raise self._led_out(path, name) from error
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            raise FileMissingError(f"there is no file {name!r}", path=name) from error
        raise PathRefusedError(f"{name!r} cannot be read: {error.strerror}", path=name) from error


def _normal(path: str) -> str:
    return os.path.normpath(re.sub("^/+", "/", path))


def _real(path: str) -> str:
    """Follow links, again if one is replaced meanwhile; where it always is, out of all roots."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return os.path.realpath(path)
    return "/"


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root}/")


def check_text(name: str) -> None:
    """Check the text of a path.

    Raises:
        PathRefusedError: it has control characters, or is too deep.
    """
    if _FORBIDDEN.search(name):
        raise PathRefusedError("the path has control characters, or is not UTF-8")
    if name.count("/") > _MAX_DEPTH:
        raise PathRefusedError(f"the path has more than {_MAX_DEPTH} directories")


def _check_regular(name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise PathRefusedError(f"{name!r} is not a regular file", path=name)


def too_many_files(name: str, limit: int) -> TooLargeError:
    """Return the error for a dataset of more files than it may have."""
    return _too_large(f"the files are more than {limit} with those of {name!r}", "files", limit)


def _too_large(detail: str, limit: str, allowed: int) -> TooLargeError:
    return TooLargeError(detail, limit=limit, allowed=allowed, setting=None)


def outside(name: str, why: str = "is not below a served directory") -> PathRefusedError:
    """Return the error for a path outside of the roots, whether anything is there or not."""
    return PathRefusedError(
        f"{name!r} {why}",
        hint="Name a file below one of those that the server was started with, by --dataset-roots"
        " DIR or THALWEG_DATASET_ROOTS",
        path=name,
    )
