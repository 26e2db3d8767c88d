"""Partial results by name: written once, never changed, deleted when unused."""

from __future__ import annotations

import contextlib
import io

import numpy as np

from app.errors import StorageFullError
from app.state.base import StoreDamagedError, StoreError
from app.state.blobs import BlobConflictError, BlobMissingError, BlobStore
from core.arrays import Array

KIND = "partial"
"""Kind of the blobs."""


class PartialStore:
    """Arrays in blobs, each named after the computation it is the result of.

    A lost result costs only the time to compute it again. So a store that is full or fails
    raises no error, and a damaged result is a missing one.

    Args:
        blobs: where the results are.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def get(self, name: str) -> Array | None:
        """Return a result; None if it is missing or damaged."""
        try:
            data = self._blobs.range(KIND, name)
            self._blobs.touch(KIND, name)
        except StoreDamagedError:
            with contextlib.suppress(StoreError, BlobMissingError):
                self._blobs.delete(KIND, name)
            return None
        except (StoreError, BlobMissingError):
            return None
        array: Array = np.load(io.BytesIO(data), allow_pickle=False)
        return array

    def put(self, name: str, array: Array) -> None:
        """Store a result, unless the name is taken."""
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        with contextlib.suppress(StoreError, StorageFullError, BlobConflictError):
            self._blobs.put(KIND, name, buffer.getbuffer())
