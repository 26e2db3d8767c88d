"""Discovery of datasets by scanning directories and buckets.

A scan runs while the service starts, and examines whatever lies under the roots: one directory
of slow files must not hold the start. So a scan has a budget for all files together, of number,
of time, and of files whose decoding fails, each of which may take the time limit of a read and
a new process. Where it ends early, everything found by then is served, the log names the file
at which it ended, and lists of datasets say so.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from app.decoding.base import Decoders
from app.errors import DatasetUnreadableError, ServiceError, TooLargeError
from core.errors import CoreError
from core.tiles.formats import FORMATS, detect
from core.tiles.formats.empad import Empad, data_name
from core.tiles.formats.files import File, read_xml
from core.tiles.formats.mib import RESTARTS, Mib
from core.tiles.recording import Hints

from .files.addresses import is_address
from .files.buckets import Bucket
from .files.file_set import FileSet
from .files.places import bucket_directory, open_files
from .files.roots import PathRefusedError, Roots
from .files.visits import Visits, numerically
from .opening import is_hdf5, open_recording
from .spec import DatasetSpec

MAX_FILES = 10_000
"""Maximum number of files to examine; larger collections need a catalogue file."""
MAX_FAILURES = 32
"""Maximum number of files whose decoding crashes, hangs or needs too much memory."""
SECONDS = 60.0
"""Time after which no further file is examined."""

_STORE = frozenset({"zarr.json", ".zarray", ".zgroup"})
"""A directory that contains one of these files is a zarr store."""
_DIGITS = re.compile(r"\d+")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan."""

    specs: dict[str, DatasetSpec]
    """Datasets by id."""
    clashes: dict[str, list[str]] = field(default_factory=dict)
    """Ids that several recordings would share, and the paths of these below their roots."""
    ended: str | None = None
    """Why it ended before all files were examined; None if it did not."""


class _SpentError(Exception):
    """The budget of a scan is spent."""


class _Budget:
    """How much of a scan is left."""

    def __init__(self, seconds: float, clock: Callable[[], float], entries: int) -> None:
        self._clock = clock
        self._visits = Visits(entries)
        self._end = clock() + seconds
        self._seconds = seconds
        self._files = self._failures = 0

    def examine(self, path: str) -> None:
        """Count a file that is about to be examined.

        Raises:
            _SpentError: it must not be.
        """
        self.check(path)
        self._files += 1

    def check(self, path: str) -> None:
        """Check that there is something left for a file or directory.

        Raises:
            _SpentError: there is not.
        """
        reason = None
        if self._files >= MAX_FILES:
            reason = f"after {MAX_FILES} files"
        elif self._failures >= MAX_FAILURES:
            reason = f"after {MAX_FAILURES} files that cannot be decoded"
        elif self._clock() >= self._end:
            reason = f"after {self._seconds:.3g} seconds and {self._files} files"
        if reason is not None:
            raise self.spent(reason, path)

    def visit(self, path: str, entries: Iterator[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        """List a directory.

        Raises:
            _SpentError: it has more entries than are left.
        """
        try:
            return self._visits.list(entries)
        except TooLargeError as e:
            raise self.spent(f"early: {e}", path) from e

    def spent(self, reason: str, path: str) -> _SpentError:
        """Return what ends the scan, and log it."""
        structlog.get_logger().warning("the scan ended early", reason=reason, at=path)
        return _SpentError(f"the scan of the roots ended {reason}; not all datasets are listed")

    def fail(self, path: str, error: DatasetUnreadableError) -> None:
        """Count a file that could not be decoded."""
        self._failures += 1
        _log_left_out(path, str(error))


def scan(
    roots: Roots,
    decoders: Decoders | None = None,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Scan:
    """Find the recordings under the roots whose format can be told from their content.

    Files whose names differ only in numbers form one dataset if their format spreads
    recordings over several files, and these go on from each other; a zarr store is one dataset.
    Ids are the paths relative to the root, with dots for separators and for what ids may not
    hold. Recordings that would share an id are left out: whichever kept it, another file could
    take its place. HDF5 files and stores with several candidate arrays are left out: only their
    owner can tell which array to serve. Without decoders, all of them are.

    Args:
        roots: the directories.
        decoders: examine HDF5 files and zarr stores.
        seconds: time after which no further file is examined.
        clock: seconds.
    """
    found: dict[str, dict[tuple[str, ...], str]] = defaultdict(dict)
    ended = None
    budget = _Budget(seconds, clock, roots.max_entries)
    examiner = _Examiner(roots, decoders, budget)
    try:
        for root, group in _all_groups(roots, budget):
            for files in examiner.recordings(group):
                name = files[0].removeprefix(f"{root}/")
                ident = _NOT_IN_ID.sub(".", name).strip(".-_")[:120]
                if ident:
                    found[ident][tuple(files)] = name
                else:
                    _log_left_out(files[0], "its name has nothing that an id may hold")
    except _SpentError as e:
        ended = str(e)
    return _sorted_out(found, ended)


def _sorted_out(found: Mapping[str, Mapping[tuple[str, ...], str]], ended: str | None) -> Scan:
    """Tell ids of one recording, given as its files and its name, from those of several."""
    specs, clashes = {}, {}
    for ident, recordings in found.items():
        if len(recordings) == 1:
            specs[ident] = DatasetSpec(id=ident, files=next(iter(recordings)))
            continue
        clashes[ident] = sorted(recordings.values())
        for files in recordings:
            _log_left_out(files[0], f"{len(recordings)} files would have the id {ident!r}")
    return Scan(specs, clashes, ended)


def _log_left_out(path: str, reason: str) -> None:
    structlog.get_logger().warning("a file was left out", path=path, reason=reason)


def _all_groups(roots: Roots, budget: _Budget) -> Iterator[tuple[str, list[str]]]:
    """Yield roots, and files in them whose names differ only in numbers; a store by itself."""
    for root in roots.roots:
        for group in _groups(Path(root), budget):
            yield root, list(map(str, group))
    for bucket in roots.buckets:
        for names in _object_groups(bucket, budget):
            yield bucket.address, [f"{bucket.address}/{name}" for name in names]


def _object_groups(bucket: Bucket, budget: _Budget) -> Iterator[list[str]]:
    """Yield what ``_groups`` does of a bucket; ends the scan if it cannot be listed."""
    budget.check(bucket.address)
    try:
        names = list(bucket.below(""))
    except ServiceError as e:
        raise budget.spent(f"early: {e}", bucket.address) from e
    tops = {top for top, _, name in (key.rpartition("/") for key in names) if name in _STORE}
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key in sorted(names, key=numerically):
        top, _, name = key.rpartition("/")
        store = next((each for each in _ancestors(top) if each in tops), None)
        if store is None:
            groups[top, _DIGITS.sub("#", name)].append(key)
        else:
            groups[store, ""] = [store]
    yield from (groups[key] for key in sorted(groups))


def _ancestors(top: str) -> Iterator[str]:
    """Yield the directories around a file, from the outermost on."""
    parts = top.split("/") if top else []
    return ("/".join(parts[: k + 1]) for k in range(len(parts)))


def _walk(root: Path, budget: _Budget) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield directories as ``os.walk`` does, within the budget."""
    pending = [os.fspath(root)]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                listed = budget.visit(directory, entries)
                names = [entry.name for entry in listed if entry.is_dir()]
        except OSError:
            continue
        files = [entry.name for entry in listed if not entry.is_dir()]
        links = {entry.name for entry in listed if entry.is_symlink()}
        yield directory, names, files
        pending += [f"{directory}/{name}" for name in reversed(names) if name not in links]


def _groups(root: Path, budget: _Budget) -> Iterator[list[Path]]:
    """Yield the files of a directory whose names differ only in numbers; a store by itself."""
    for directory, names, files in _walk(root, budget):
        budget.check(directory)
        if Path(directory) != root and not _STORE.isdisjoint(files):
            names.clear()
            yield [Path(directory)]
            continue
        names.sort()
        names[:] = [name for name in names if not name.startswith(".")]
        groups: dict[str, list[Path]] = defaultdict(list)
        for name in files:
            if not name.startswith("."):
                groups[_DIGITS.sub("#", name)].append(Path(directory, name))
        for key in sorted(groups):
            yield sorted(groups[key], key=numerically)


class _Examiner:
    """Tells recordings from other files within a budget.

    Args:
        roots: the directories that files may lie in.
        decoders: examine HDF5 files and zarr stores; None leaves them out.
        budget: of all files together.
    """

    def __init__(self, roots: Roots, decoders: Decoders | None, budget: _Budget) -> None:
        self._roots = roots
        self._decoders = decoders
        self._budget = budget

    def recordings(self, group: list[str]) -> Iterator[list[str]]:
        """Yield the group as one recording, or each file as one; nothing if no format fits."""
        form = self._format(group[0])
        if form is None:
            return
        is_series = form in FORMATS and FORMATS[form].series
        if is_series and (form != Mib.name or self._goes_on(group[:2])):
            yield group
            return
        for path in group:
            form = form if path is group[0] else self._format(path)
            if form == Empad.name:
                yield from self._with_data(path)
            elif form is not None:
                yield [path]

    def _goes_on(self, files: list[str]) -> bool:
        """Whether the second file goes on from the first, rather than being another recording.

        Only these are opened: there may be thousands more, each a request to a bucket.
        """
        for path in files[1:]:
            self._budget.examine(path)
        try:
            source = open_recording(self._roots, files, Hints())
        except (CoreError, ServiceError, OSError):
            return len(files) == 1
        source.files.close()
        return RESTARTS not in source.recording.notes

    def _with_data(self, path: str) -> Iterator[list[str]]:
        """Yield the file of frames that the .xml of an EMPAD names, and the .xml, if both exist."""
        try:
            with self._opened(path) as files:
                (info,) = files.infos
                name = data_name(read_xml(File(0, info.name, info.size, files, [])))
            data = f"{path.rpartition('/')[0]}/{name}"
            self._opened(data).close()
        except (CoreError, ServiceError, OSError):
            _log_left_out(path, "the .raw file that it names is not beside it")
        else:
            yield [data, path]

    def _format(self, path: str) -> str | None:
        self._budget.examine(path)
        try:
            if self._is_directory(path):
                return self._array_format(path)
            with self._opened(path) as files:
                if is_hdf5(files):
                    return self._array_format(path)
                return detect(files.infos, files).name
        except PathRefusedError as e:
            _log_left_out(path, str(e))
        except (CoreError, ServiceError, OSError):
            pass
        return None

    def _is_directory(self, path: str) -> bool:
        if is_address(path):
            return bucket_directory(self._roots, path) is not None
        return Path(path).is_dir()

    def _opened(self, path: str) -> FileSet:
        if is_address(path):
            return open_files(self._roots, [path])
        return FileSet([Path(path)], self._roots.open)

    def _array_format(self, path: str) -> str | None:
        """Return the format of a file or store of named arrays, if only one array can be meant."""
        if self._decoders is None:
            return None
        try:
            source = open_recording(self._roots, [path], Hints(), decoders=self._decoders)
        except DatasetUnreadableError as e:
            self._budget.fail(path, e)
            return None
        except ValueError:
            return None
        source.files.close()
        return source.recording.format
