"""What files are, in a few bytes that hold wherever copies of them lie."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

from .file_set import FileSet

FINGERPRINT_SIZE = 8
"""Bytes of a fingerprint."""
SAMPLE = 64 << 10
"""Bytes at each end of a file that count."""
_WHOLE = b"thalweg-files-1"
_PREFIX = b"thalweg-prefix-1"
_STORE = b"thalweg-store-1"


def fingerprint(files: FileSet) -> bytes:
    """Of names, sizes, times of modification and both ends of each file, in their order.

    Raises:
        DataChangedError: a file changed since it was opened.
        ReadFailedError: the disk failed.
    """
    digest = blake2b(digest_size=FINGERPRINT_SIZE, person=_WHOLE)
    for index in range(len(files)):
        modified = files.modified(index).to_bytes(8, "little", signed=True)
        digest.update(_describe(files, index, files.size(index), modified))
    files.verify()
    return digest.digest()


def store_fingerprint(files: FileSet, described: Collection[int]) -> bytes:
    """Of names, sizes and times of modification of all files, in their order.

    There may be a file for each chunk, so that only some of them are looked into.

    Args:
        files: the set.
        described: those of which both ends count too, by index.

    Raises:
        DataChangedError: a file changed since it was opened.
        ReadFailedError: the disk failed.
    """
    digest = blake2b(digest_size=FINGERPRINT_SIZE, person=_STORE)
    for index in range(len(files)):
        modified = files.modified(index).to_bytes(8, "little", signed=True)
        if index in described:
            digest.update(_describe(files, index, files.size(index), modified))
        else:
            name = files.name(index).encode("utf-8", "surrogateescape")
            size = files.size(index).to_bytes(8, "little")
            digest.update(len(name).to_bytes(4, "little") + name + size + modified)
    files.verify()
    return digest.digest()


def prefix_fingerprint(files: FileSet, stops: Sequence[int]) -> bytes:
    """Of the names, and of both ends of the first bytes, of the first files of a growing set.

    Args:
        files: the set.
        stops: how many bytes of each file count, of as many files as count.

    Raises:
        DataChangedError: a file changed, other than by growing.
        ReadFailedError: the disk failed.
        ValueError: more files, or bytes of one, than there are.
    """
    if len(stops) > len(files):
        raise ValueError(f"{len(stops)} files of {len(files)}")
    digest = blake2b(digest_size=FINGERPRINT_SIZE, person=_PREFIX)
    for index, stop in enumerate(stops):
        if not 0 <= stop <= files.size(index):
            raise ValueError(f"{stop} bytes of {files.size(index)}")
        digest.update(_describe(files, index, stop, b""))
    return digest.digest()


def _describe(files: FileSet, index: int, stop: int, modified: bytes) -> bytes:
    name = files.name(index).encode("utf-8", "surrogateescape")
    parts = [len(name).to_bytes(4, "little"), name, stop.to_bytes(8, "little"), modified]
    if stop <= 2 * SAMPLE:
        parts.append(files.read(index, 0, stop))
    else:
        parts += [files.read(index, 0, SAMPLE), files.read(index, stop - SAMPLE, stop)]
    return b"".join(parts)
