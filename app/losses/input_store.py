"""Auxiliary files by the digest of their content, until they fall unused."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.errors import InputGoneError, StorageFullError
from app.state.base import StoreDamagedError, StoreFullError
from app.state.blobs import BlobInfo, BlobMissingError, BlobStore
from core.slices import digest

KIND = "input"
"""Kind of the blobs; the id of one is ``<digest>.<name of the input>``."""
DIGEST_SIZE = 16
"""Bytes of a digest, written as twice as many hexadecimal digits."""
_DAY = 86400.0
_GRACE = 3600.0
"""Seconds in which the sweeper removes what has expired, or extends its life for a run."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Confirms that a file is stored."""

    digest: str
    created: bool
    """False if the file was stored before."""
    expires: float
    """When the file expires if it is not used, in seconds since 1970."""


def digest_of(data: bytes) -> str:
    """Return the digest that names a content."""
    hashed = hashlib.blake2b(digest_size=DIGEST_SIZE)
    digest(hashed, data, "input")
    return hashed.hexdigest()


class InputStore:
    """Files shared by all workers.

    Args:
        blobs: where the files are.
        days: lifetime of a file after its last use.
        clock: seconds since 1970.
    """

    def __init__(
        self, blobs: BlobStore, days: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._blobs = blobs
        self._seconds = days * _DAY
        self._clock = clock

    def put(self, kind: str, digest: str, data: bytes) -> Receipt:
        """Store a file durably; one that is damaged is replaced.

        Raises:
            StorageFullError: the disk is full.
            StoreError: the file cannot be written for another reason.
        """
        name = input_id(kind, digest)
        while True:
            # Unless it is deleted in the meantime:
            with contextlib.suppress(BlobMissingError):
                try:
                    created = self._blobs.put(KIND, name, data)
                    self._blobs.touch(KIND, name, self._clock())
                except StoreFullError as e:
                    raise StorageFullError(f"the file cannot be stored: {e}", retry_after=30) from e
                return Receipt(digest, created, self._clock() + self._seconds)

    def touch(self, kind: str, digest: str) -> None:
        """Extend the lifetime of a file, because it is being used.

        Raises:
            InputGoneError: the file has expired or was never stored.
        """
        try:
            info = self._blobs.info(KIND, input_id(kind, digest))
            self._check_age(info)
            self._blobs.touch(KIND, info.id, self._clock())
        except BlobMissingError as e:
            raise gone(kind, digest) from e
        except StoreDamagedError as e:
            raise _damaged(kind, digest) from e

    def _check_age(self, info: BlobInfo) -> None:
        """Check that a file has not expired.

        Raises:
            BlobMissingError: it has.
        """
        if info.used + self._seconds + _GRACE < self._clock():
            raise BlobMissingError(f"the input {info.id} has expired")

    def read(self, kind: str, digest: str) -> bytes:
        """Return the content of a file, which counts as used.

        Raises:
            InputGoneError: the file has expired, was never stored, or is damaged.
        """
        self.touch(kind, digest)
        try:
            data = self._blobs.range(KIND, input_id(kind, digest))
        except BlobMissingError as e:
            raise gone(kind, digest) from e
        except StoreDamagedError as e:
            raise _damaged(kind, digest) from e
        if digest_of(data) != digest:
            raise _damaged(kind, digest)
        return data

    def has(self, kind: str, digest: str) -> bool:
        """Whether a file is stored and alive, and as whole as looking at its size shows."""
        try:
            self._check_age(self._blobs.info(KIND, input_id(kind, digest)))
        except (BlobMissingError, StoreDamagedError):
            return False
        return True

    def remove(self, kind: str, digest: str) -> None:
        """Delete a file, if it is stored."""
        with contextlib.suppress(BlobMissingError):
            self._blobs.delete(KIND, input_id(kind, digest))


def input_id(kind: str, digest: str) -> str:
    """Return the id of a file, and of the records of its owners."""
    return f"{digest}.{kind}"


def gone(kind: str, digest: str) -> InputGoneError:
    """Build the error for a file that is not stored, or not the caller's."""
    return InputGoneError(f"there is no {kind} input {digest}", hint=_hint(kind))


def _damaged(kind: str, digest: str) -> InputGoneError:
    return InputGoneError(f"the stored {kind} input {digest} is damaged", hint=_hint(kind))


def _hint(kind: str) -> str:
    return f"PUT it to /v1/inputs/{kind}, and use the digest in the answer"
