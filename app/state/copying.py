"""Copies of a state: every record as it is, and every blob, compared afterwards.

A copy that was interrupted is completed by another. What is there already is compared: a record
must be equal, a blob that is not is written anew. Nobody may change the state meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .base import RecordMissingError, StateStore, StoreDamagedError, every
from .blobs import BlobConflictError, BlobInfo, BlobMissingError, BlobStore

if TYPE_CHECKING:
    from .postgres import PostgresStateStore

_PIECE = 8 << 20
"""Bytes that are copied at a time."""


@dataclass(slots=True)
class Copied:
    """What has been copied, and what was there."""

    records: int = 0
    blobs: int = 0
    nbytes: int = 0
    present: int = 0
    """Records and blobs that were there already."""


def copy_records(
    source: StateStore, target: PostgresStateStore, kinds: Iterable[str], copied: Copied
) -> None:
    """Copy the records of some kinds.

    Raises:
        StoreDamagedError: the target has another record of the same id, or one is damaged.
    """
    for kind in kinds:
        for record in every(source, kind):
            if target.restore(record):
                copied.records += 1
            elif target.get(kind, record.id) != record:
                raise StoreDamagedError(
                    f"the target has another {kind} {record.id}",
                    hint="Copy to an empty database",
                    retry_after=None,
                )
            else:
                copied.present += 1


def copy_blobs(
    source: BlobStore,
    target: BlobStore,
    kinds: Iterable[str],
    copied: Copied,
    tell: Callable[[Copied], object],
) -> None:
    """Copy the blobs of some kinds, and read each of them again.

    Args:
        source: where they are.
        target: where they are to be.
        kinds: their kinds.
        copied: counts them.
        tell: called after each blob.

    Raises:
        StoreDamagedError: one is damaged, or is not read as it was written.
    """
    for kind in kinds:
        for blob in every(source, kind):
            if _equals(source, target, blob):
                copied.present += 1
            else:
                _copy(source, target, blob)
                if not _equals(source, target, blob):
                    raise StoreDamagedError(f"the copy of the {kind} {blob.id} has other content")
                copied.blobs += 1
                copied.nbytes += blob.size
            target.touch(kind, blob.id, blob.used)
            tell(copied)


def _equals(source: BlobStore, target: BlobStore, blob: BlobInfo) -> bool:
    kind, ident = blob.kind, blob.id
    with contextlib.suppress(BlobMissingError):
        return target.info(kind, ident).size == blob.size and all(
            source.range(kind, ident, at, at + _PIECE) == target.range(kind, ident, at, at + _PIECE)
            for at in range(0, blob.size, _PIECE)
        )
    return False


def _copy(source: BlobStore, target: BlobStore, blob: BlobInfo) -> None:
    while True:
        with contextlib.suppress(BlobConflictError):
            writer = target.writer(blob.kind, blob.id, 0)
            break
        # The beginning of an earlier copy.
        with contextlib.suppress(BlobMissingError, RecordMissingError):
            target.delete(blob.kind, blob.id)
    with contextlib.closing(writer):
        for at in range(0, blob.size, _PIECE):
            writer.write(source.range(blob.kind, blob.id, at, at + _PIECE))
            writer.commit()
