"""Fingerprints of files: a few bytes that identify their contents on any replica.

A fingerprint covers names, sizes, modification times and both ends of files, but no path,
inode or device: copies that preserve times have the fingerprint of the original. Of an object in
a bucket its version or ETag is covered, which stands for its contents, in place of time and ends.
Files beside a set, such as a dark image, are covered whole, each with what it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

from .file_set import FileSet

FINGERPRINT_SIZE = 8
"""Size of a fingerprint in bytes."""
_WHOLE = b"thalweg-files-1"
_PREFIX = b"thalweg-prefix-1"
_STORE = b"thalweg-store-1"


def fingerprint(files: FileSet) -> bytes:
    """Compute the fingerprint of a set: name, size, modification time and ends of each file.

    Raises:
        DataChangedError: a file changed since it was opened.
        ReadFailedError: the disk failed.
    """
    return _fingerprint(files, range(len(files)), _WHOLE)


def store_fingerprint(files: FileSet, metadata: Collection[int]) -> bytes:
    """Compute the fingerprint of a store, which may have one file per chunk.

    To keep this fast, only the metadata files are read; of the others name, size and
    modification time count.

    Args:
        files: the set.
        metadata: indices of the metadata files.

    Raises:
        DataChangedError: a file changed since it was opened.
        ReadFailedError: the disk failed.
    """
    return _fingerprint(files, metadata, _STORE)


def _fingerprint(files: FileSet, read: Collection[int], person: bytes) -> bytes:
    """Compute the fingerprint of a set, of which some files are read."""
    digest = blake2b(digest_size=FINGERPRINT_SIZE, person=person)
    for index in range(len(files)):
        size = files.size(index)
        digest.update(_describe(files, index, size, files.stamp(index)))
        if index in read:
            digest.update(files.ends(index, size))
    return _finished(digest, files)


def prefix_fingerprint(files: FileSet, stops: Sequence[int], whole: Collection[int] = ()) -> bytes:
    """Compute the fingerprint of a prefix of a growing set, which later growth preserves.

    Covers names and both ends of each prefix; modification times, which growth changes,
    do not count.

    Args:
        files: the set.
        stops: length in bytes of the prefix of each file; files without one do not count.
        whole: indices of further files that count whole.

    Raises:
        DataChangedError: a file changed other than by growing.
        ReadFailedError: the disk failed.
        ValueError: there are fewer files or bytes.
    """
    if len(stops) > len(files):
        raise ValueError(f"{len(stops)} files of {len(files)}")
    digest = blake2b(digest_size=FINGERPRINT_SIZE, person=_PREFIX)
    for index, stop in (*enumerate(stops), *((index, files.size(index)) for index in whole)):
        if not 0 <= stop <= files.size(index):
            raise ValueError(f"{stop} bytes of {files.size(index)}")
        digest.update(_describe(files, index, stop) + files.ends(index, stop))
    return _finished(digest, files)


def _finished(digest: blake2b, files: FileSet) -> bytes:
    """Add the files beside a set, and check that nothing changed meanwhile."""
    for role, other in files.beside.items():
        digest.update(role.encode() + fingerprint(other))
    files.verify()
    return digest.digest()


def _describe(files: FileSet, index: int, stop: int, modified: bytes = b"") -> bytes:
    name = files.name(index).encode("utf-8", "surrogateescape")
    return len(name).to_bytes(4, "little") + name + stop.to_bytes(8, "little") + modified
