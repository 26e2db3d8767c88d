"""A bucket in memory with the files of a directory, and roots that have it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import obstore
from obstore.store import MemoryStore, ObjectStore

from app.datasets.files.buckets import Bucket
from app.datasets.files.fetching import Fetching
from app.datasets.files.object_set import ObjectSet
from app.datasets.files.roots import Roots

ADDRESS = "s3://scans/2026"


def upload(directory: Path, store: ObjectStore) -> None:
    """Put all files below a directory into a store, by their names there."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            name = path.relative_to(directory).as_posix()
            obstore.put(store, name, path.read_bytes(), use_multipart=False)


def bucket_over(store: ObjectStore, max_entries: int = 1000) -> Bucket:
    return Bucket(ADDRESS, Fetching(), max_entries, store)


def bucket_roots(store: ObjectStore, directories: Sequence[Path] = ()) -> Roots:
    roots = Roots(directories)
    roots.buckets = (bucket_over(store),)
    return roots


def uploaded(directory: Path) -> Roots:
    """Roots with a bucket, and no directory, that has the files of a directory."""
    store = MemoryStore()
    upload(directory, store)
    return bucket_roots(store)


def objects_of(store: ObjectStore, names: Sequence[str]) -> ObjectSet:
    bucket = bucket_over(store)
    return ObjectSet(bucket, bucket.find(names, 100))
