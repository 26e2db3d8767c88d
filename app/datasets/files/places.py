"""The files that paths and patterns name, in directories or in a bucket.

A path that is relative is looked for in the directories first, then in the buckets, in the order
in which they were declared. The files of a dataset are all in directories, or all in one bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.engine.ledger import Ledger
from app.errors import InvalidOptionError, ServiceError

from .addresses import is_address, split_roots
from .buckets import Bucket
from .fetching import Fetching
from .file_set import FileSet
from .object_set import ObjectSet
from .roots import MAX_ENTRIES, MAX_FILES, FileMissingError, Roots, outside


def parse_roots(
    text: str,
    private: Path | None = None,
    max_entries: int = MAX_ENTRIES,
    ledger: Ledger | None = None,
) -> Roots:
    """Parse a list of directories and addresses of buckets; see ``split_roots``.

    Raises:
        ValueError: see ``split_roots``, Roots and Bucket.
    """
    directories, addresses = split_roots(text)
    roots = Roots(directories, private, max_entries)
    fetching = Fetching(ledger)
    roots.buckets = tuple(Bucket(each, fetching, max_entries) for each in addresses)
    return roots


def missing_roots(roots: Roots) -> Iterator[tuple[str, str]]:
    """Yield the roots from which nothing can be read, and why."""
    for root in roots.roots:
        if not Path(root).is_dir():
            yield root, "there is no such directory"
    for bucket in roots.buckets:
        if (why := bucket.objects.check()) is not None:
            yield bucket.address, why


def open_files(roots: Roots, names: Sequence[str], *, growing: bool = False) -> FileSet:
    """Open the files that paths and patterns name; the caller closes them.

    Raises:
        InvalidOptionError: they are in a bucket, and to grow.
        CoreError, ServiceError: see ``Roots.expand`` and FileSet.
    """
    error: ServiceError = outside(next(filter(is_address, names), names[0]))
    if roots.roots and not any(map(is_address, names)):
        try:
            return FileSet(roots.expand(names), roots.open, growing=growing)
        except FileMissingError as e:
            error = e
    for bucket in buckets_of(roots, names):
        try:
            found = bucket.find(names, MAX_FILES)
        except FileMissingError as e:
            error = e
            continue
        if growing:
            raise InvalidOptionError(
                "growing applies to files in directories: an object in a bucket does not grow",
                hint="Omit growing, and register the dataset once it is complete",
                option="growing",
            )
        return ObjectSet(bucket, found)
    raise error


def real_paths(roots: Roots, name: str) -> list[str]:
    """Return where the files, or the directory, that a name stands for really lie.

    Raises:
        CoreError, ServiceError: see ``Roots.expand``.
    """
    error: ServiceError = outside(name)
    if roots.roots and not is_address(name):
        try:
            directory = roots.directory(name)
            files = roots.expand([name]) if directory is None else [directory]
            return [os.path.realpath(file) for file in files]
        except FileMissingError as e:
            error = e
    for bucket in buckets_of(roots, [name]):
        try:
            return [f"{bucket.address}/{each.key}" for each in bucket.find([name], MAX_FILES)]
        except FileMissingError as e:
            error = e
    if (found := bucket_directory(roots, name)) is not None:
        return [f"{found[0].address}/{found[1]}"]
    raise error


def buckets_of(roots: Roots, names: Sequence[str]) -> Iterator[Bucket]:
    """Yield the buckets in which files of these names may be."""
    for bucket in roots.buckets:
        if all(bucket.key(name) is not None for name in names):
            yield bucket


def bucket_directory(roots: Roots, name: str) -> tuple[Bucket, str] | None:
    """Return the bucket with a directory of this name, and its name there; None if none has one."""
    for bucket in buckets_of(roots, [name]):
        key = bucket.key(name)
        if key is not None and bucket.is_directory(key):
            return bucket, key
    return None
