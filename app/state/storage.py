"""The stores of a service: in its data directory, or in memory if it is to keep nothing."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from .base import StateStore, StoreError, StoreFullError
from .blob_files import FileBlobStore
from .blobs import BlobStore
from .durable import make_directories, store_error
from .memory import MemoryStateStore
from .memory_blobs import MemoryBlobStore
from .probe import Probe
from .shares import SharingTurns
from .space import Space
from .sqlite import SqliteStateStore
from .sqlite_schema import too_old
from .turns import Turn

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

    heads: StateStore
    blobs: BlobStore
    sharing: Turn
    """A turn among all that change who owns a blob."""
    spool: Path
    """Directory of temporary files without names."""
    space: Space | None = None
    """Free space of the data directory's disk; None without a data directory."""
    claims: Path | None = None
    """Directory of the claims of workers."""
    notices: Path | None = None
    """Directory of the notices among workers; None if there is one worker."""
    sweeper: Path | None = None
    """File whose lock makes a sweeper the active one."""
    probe: Probe | None = None
    """Checks the heads; None if they are in memory."""
    blob_files: FileBlobStore | None = None
    """The files behind ``blobs``; None if they are in memory."""
    sharing_file: SharingTurns | None = None
    """The lock file behind ``sharing``; None if all is in memory."""

    def check(self) -> None:
        """Check that heads can be written and read, by a small write, synced; and blobs written.

        Raises:
            StoreError: they cannot.
        """
        if self.probe is not None:
            self.probe.check()
        if self.blob_files is not None:
            # A full disk is another check's.
            with contextlib.suppress(StoreFullError):
                self.blob_files.check()

    def close(self) -> None:
        """Close the stores; may be called twice."""
        self.heads.close()
        self.blobs.close()
        if self.probe is not None:
            self.probe.close()
        if self.sharing_file is not None:
            self.sharing_file.close()


def open_storage(directory: Path | None, reserve: int) -> Storage:
    """Open the stores in a data directory, which is created if it does not exist.

    Args:
        directory: the data directory; None to keep everything in memory.
        reserve: bytes of its disk that nothing new may take.

    Raises:
        StorageError: they cannot be opened or written; the message says what to do.
    """
    if directory is None:
        # Only what is too large for memory goes to temporary files.
        lock = threading.Lock()
        spool = Path(tempfile.gettempdir())
        return Storage(MemoryStateStore(), MemoryBlobStore(), lambda: lock, spool)
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
    return Storage(
        heads,
        blobs,
        turns.turn,
        spool=directory / SPOOL,
        space=space,
        claims=directory / CLAIMS,
        notices=directory / NOTICES,
        sweeper=directory / SWEEPER,
        probe=Probe(heads, directory / STATE),
        blob_files=blobs,
        sharing_file=turns,
    )


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
