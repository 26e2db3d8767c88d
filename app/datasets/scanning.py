"""Discovery of datasets by scanning directories."""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import structlog

from app.decoding.base import Decoders
from app.errors import DatasetUnreadableError, ServiceError, TooLargeError
from core.errors import CoreError
from core.tiles.formats import FORMATS
from core.tiles.formats.detect import detect
from core.tiles.recording import Hints

from .files.file_set import FileSet
from .files.roots import Roots, Visits, numerically
from .opening import is_hdf5, open_recording
from .spec import DatasetSpec

MAX_FILES = 10_000
"""Maximum number of files to examine; larger collections need a catalogue file."""

_STORE = frozenset({"zarr.json", ".zarray", ".zgroup"})
"""A directory that contains one of these files is a zarr store."""
_DIGITS = re.compile(r"\d+")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")


def scan(roots: Roots, decoders: Decoders | None = None) -> dict[str, DatasetSpec]:
    """Find the recordings under the roots whose format can be told from their content.

    Files whose names differ only in numbers form one dataset if their format spreads
    recordings over several files; a zarr store is one dataset. Ids are the paths relative
    to the root, with dots for separators. HDF5 files and stores with several candidate
    arrays are left out: only their owner can tell which array to serve. Without decoders,
    all of them are.
    """
    specs: dict[str, DatasetSpec] = {}
    for root in roots.roots:
        for group in _groups(Path(root), roots.max_entries):
            for files in _recordings(roots, group, decoders):
                ident = _NOT_IN_ID.sub(".", str(files[0].relative_to(root))).strip(".-_")[:120]
                if ident and ident not in specs:
                    specs[ident] = DatasetSpec(id=ident, files=tuple(map(str, files)))
    return specs


def _walk(root: Path, visits: Visits) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield directories as ``os.walk`` does, up to a number of entries."""
    pending = [os.fspath(root)]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                listed = visits.list(entries)
                names = [entry.name for entry in listed if entry.is_dir()]
        except TooLargeError as e:
            log = structlog.get_logger()
            log.warning("too many entries to scan", root=str(root), reason=str(e))
            return
        except OSError:
            continue
        files = [entry.name for entry in listed if not entry.is_dir()]
        links = {entry.name for entry in listed if entry.is_symlink()}
        yield directory, names, files
        pending += [f"{directory}/{name}" for name in reversed(names) if name not in links]


def _groups(root: Path, limit: int) -> Iterator[list[Path]]:
    """Yield the files of a directory whose names differ only in numbers; a store by itself."""
    seen = 0
    visits = Visits(limit)
    for directory, names, files in _walk(root, visits):
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
            seen += len(groups[key])
            if seen > MAX_FILES:
                structlog.get_logger().warning("too many files to scan", root=str(root))
                return
            yield sorted(groups[key], key=numerically)


def _recordings(roots: Roots, group: list[Path], decoders: Decoders | None) -> Iterator[list[Path]]:
    """Yield the group as one recording, or each file as one; nothing if no format fits."""
    form = _format(roots, group[:1], decoders)
    if form is None:
        return
    if form in FORMATS and FORMATS[form].series:
        yield group
        return
    for path in group:
        if path == group[0] or _format(roots, [path], decoders) is not None:
            yield [path]


def _format(roots: Roots, paths: list[Path], decoders: Decoders | None) -> str | None:
    if len(paths) == 1 and paths[0].is_dir():
        return _array_format(roots, paths[0], decoders)
    with contextlib.suppress(CoreError, ServiceError, OSError), FileSet(paths, roots.open) as files:
        if is_hdf5(files):
            return _array_format(roots, paths[0], decoders)
        return detect(files.infos, files).name
    return None


def _array_format(roots: Roots, path: Path, decoders: Decoders | None) -> str | None:
    """Return the format of a file or store of named arrays, if only one array can be meant."""
    if decoders is None:
        return None
    try:
        source = open_recording(roots, [str(path)], Hints(), decoders=decoders)
    except DatasetUnreadableError as e:
        structlog.get_logger().warning("a file was left out", path=str(path), reason=str(e))
        return None
    except (CoreError, ServiceError, OSError, ValueError):
        return None
    source.files.close()
    return source.recording.format
