"""The command ``state``: moves what a service keeps from its data directory to shared stores."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.settings import Settings
from app.state import token_keys
from app.state.base import RecordMissingError, StoreDamagedError, every
from app.state.blobs import BlobConflictError, BlobInfo, BlobMissingError, BlobStore, GrowingBlobs
from app.state.presence import pids_beside
from app.state.sqlite import SqliteStateStore
from app.state.storage import CLAIMS, FILES, SQLITE, STATE, open_storage

from .serving import as_option_errors

if TYPE_CHECKING:
    from app.state.postgres import PostgresStateStore

_PIECE = 8 << 20
"""Bytes of a blob that are copied at a time."""


@as_option_errors()
def state(args: argparse.Namespace) -> int:
    """Copy the state of a data directory to a database and an object store."""
    settings = Settings(data_dir=args.data_dir or Settings().data_dir, state=args.to)
    _check(settings)
    copied = _copy(settings.data_dir, settings.state, Settings(blobs=args.blobs).blobs)
    print(  # noqa: T201 - the command's output
        f"{copied.records:,} records and {copied.blobs:,} blobs ({copied.nbytes:,} bytes) copied"
        f" and compared; {copied.present:,} were there"
    )
    return 0


def _check(settings: Settings) -> None:
    directory = settings.data_dir
    if settings.state == SQLITE:
        raise ValueError("--to must be the address of a database")
    if not (directory / STATE).exists():
        raise ValueError(f"{directory} is not a data directory: name one with --data-dir")
    if pids := pids_beside(directory / CLAIMS):
        processes = ", ".join(map(str, pids))
        raise ValueError(f"a service uses {directory} (processes {processes}): stop it first")


def _copy(directory: Path, state: str, blobs: str) -> _Copied:
    copied = _Copied()
    with (
        closing(open_storage(directory, 0)) as source,
        closing(open_storage(directory, 0, state, blobs)) as target,
    ):
        assert isinstance(source.records, SqliteStateStore)  # noqa: S101 - as by default
        assert target.database is not None  # noqa: S101 - as checked
        copied.copy_records(source.records, target.database)
        token_keys.share(directory, target.records)
        if blobs != FILES:
            copied.copy_blobs(source.blobs, target.blobs)
    return copied


@dataclass(slots=True)
class _Copied:
    """What has been copied, and what was there.

    A copy that was interrupted is completed by another. What is there already is compared: a
    record must be equal, a blob that is not is written anew. Nobody may change the state meanwhile.
    """

    records: int = 0
    blobs: int = 0
    nbytes: int = 0
    present: int = 0
    """Records and blobs that were there already."""

    def copy_records(self, source: SqliteStateStore, target: PostgresStateStore) -> None:
        """Copy all records.

        Raises:
            StoreDamagedError: the target has another record of the same id, or one is damaged.
        """
        for kind in source.kinds():
            for record in every(source, kind):
                if target.restore(record):
                    self.records += 1
                elif target.get(kind, record.id) != record:
                    raise StoreDamagedError(
                        f"the target has another {kind} {record.id}",
                        hint="Copy to an empty database",
                        retry_after=None,
                    )
                else:
                    self.present += 1

    def copy_blobs(self, source: GrowingBlobs, target: BlobStore) -> None:
        """Copy all blobs, read each of them again, and tell a terminal how many there were.

        Raises:
            StoreDamagedError: one is damaged, or is not read as it was written.
        """
        for kind in source.kinds():
            for blob in every(source, kind):
                if _equals(source, target, blob):
                    self.present += 1
                else:
                    _copy_blob(source, target, blob)
                    if not _equals(source, target, blob):
                        raise StoreDamagedError(
                            f"the copy of the {kind} {blob.id} has other content"
                        )
                    self.blobs += 1
                    self.nbytes += blob.size
                target.touch(kind, blob.id, blob.used)
                if sys.stderr.isatty():
                    print(f"\r{self.blobs:,} blobs", end="", file=sys.stderr)  # noqa: T201 - progress


def _equals(source: BlobStore, target: BlobStore, blob: BlobInfo) -> bool:
    kind, ident = blob.kind, blob.id
    with suppress(BlobMissingError):
        return target.info(kind, ident).size == blob.size and all(
            source.range(kind, ident, at, at + _PIECE) == target.range(kind, ident, at, at + _PIECE)
            for at in range(0, blob.size, _PIECE)
        )
    return False


def _copy_blob(source: BlobStore, target: BlobStore, blob: BlobInfo) -> None:
    while True:
        with suppress(BlobConflictError):
            writer = target.writer(blob.kind, blob.id, 0)
            break
        # The beginning of an earlier copy.
        with suppress(BlobMissingError, RecordMissingError):
            target.delete(blob.kind, blob.id)
    with closing(writer):
        for at in range(0, blob.size, _PIECE):
            writer.write(source.range(blob.kind, blob.id, at, at + _PIECE))
            writer.commit()
