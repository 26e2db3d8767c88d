"""The stores of a service, in its data directory."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from .base import StoreError, StoreFullError
from .blob_files import FileBlobStore
from .durable import make_directories, store_error
from .probe import Probe
from .shares import SharingTurns
from .space import Space
from .sqlite import SqliteStateStore
from .sqlite_schema import too_old

STATE = "state.sqlite"
BLOBS = "blobs"
CLAIMS = "claims"
NOTICES = "notices"
SPOOL = "spool"
SWEEPER = "sweeper.lock"
_EARLIER_INPUTS = "inputs"
"""Where versions that are not supported any more kept inputs."""


class StorageError(StoreError):
    """The service cannot start, because it could not store anything."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a service keeps its state in."""

    heads: SqliteStateStore
    blobs: FileBlobStore
    sharing: SharingTurns
    """Turns among all that change who owns a blob."""
    space: Space
    """Free space of the data directory's disk."""
    probe: Probe
    """Checks the heads."""
    directory: Path
    """The data directory."""

    def check(self) -> None:
        """Check that heads can be written and read, by a small write, synced; and blobs written.

        Raises:
            StoreError: they cannot.
        """
        self.probe.check()
        # A full disk is another check's.
        with contextlib.suppress(StoreFullError):
            self.blobs.check()

    def close(self) -> None:
        """Close the stores; may be called twice."""
        for part in (self.heads, self.blobs, self.probe, self.sharing):
            part.close()


def open_storage(directory: Path, reserve: int) -> Storage:
    """Open the stores in a data directory, which is created if it does not exist.

    Args:
        directory: the data directory.
        reserve: bytes of its disk that nothing new may take.

    Raises:
        StorageError: they cannot be opened or written; the message says what to do.
    """
    try:
        make_directories(directory)
        if any((directory / _EARLIER_INPUTS).glob("*")):
            raise too_old("an input", directory / _EARLIER_INPUTS)
        space = Space(directory, reserve)
        try:
            heads, blobs, turns = _open_stores(directory, space)
        except (OSError, StoreError) as e:
            # Opening takes a little space: without it nothing could be deleted.
            full = isinstance(e, StoreFullError) or space.is_full()
            if not full or not space.release():
                raise
            heads, blobs, turns = _open_stores(directory, space)
    except OSError as e:
        raise unusable(directory, store_error(e, directory)) from e
    except StoreError as e:
        raise unusable(directory, e) from e
    space.restore()
    return Storage(heads, blobs, turns, space, Probe(heads, directory / STATE), directory)


def _open_stores(
    directory: Path, space: Space
) -> tuple[SqliteStateStore, FileBlobStore, SharingTurns]:
    heads = SqliteStateStore(directory / STATE, space=space)
    try:
        return heads, FileBlobStore(directory / BLOBS, space=space), SharingTurns(directory)
    except BaseException:
        heads.close()
        raise


def unusable(directory: Path, reason: StoreError) -> StorageError:
    """Build the error for a data directory that cannot be used, in one line."""
    advice = reason.hint or "make room there, or make it writable"
    return StorageError(
        f"the data directory {directory} cannot be used: {reason}. Set THALWEG_DATA_DIR to "
        f"another one, or {advice[0].lower()}{advice[1:]}; or start with --ephemeral, "
        "which keeps nothing",
        path=directory,
        retry_after=None,
    )
