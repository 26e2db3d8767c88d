"""Removing files that were computed of runs that are gone, or never published."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from app.errors import NotFoundError
from app.state.base import HeadConflictError, StateStore, StoreDamagedError
from app.state.blobs import BlobStore
from app.state.ownership import Namespaces, Owned
from app.state.sweeper import PAGE, Chore, page_by_page

from ..records import REPORT, RUN, SEGMENT

_GRACE = 86400.0
"""Age in seconds that spares what a worker may still be writing."""
_DELETED = 600.0
"""Age in seconds from which a file without its run is not a new one."""


def chores(heads: StateStore, blobs: BlobStore, clock: Callable[[], float]) -> dict[str, Chore]:
    """Return the chores of published files, by name; see :func:`app.runs.sweeping.chores`."""
    found = {}
    for kind in (SEGMENT, REPORT):
        found[f"{kind}s without runs"] = files_without_runs(heads, kind, clock)
        found[f"unpublished {kind}s"] = unpublished_blobs(heads, blobs, kind, clock)
    return found


def files_without_runs(heads: StateStore, kind: str, clock: Callable[[], float]) -> Chore:
    """Return the chore that takes back files of runs that do not exist any more."""
    runs = Namespaces(heads, RUN)

    def look(after: str) -> str | None:
        page = heads.list(kind, after=after, limit=PAGE)
        for head in page.heads:
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                owned = Owned.of(head)
                run, _, _ = owned.ident.partition(".")
                if head.used < clock() - _DELETED and not runs.has(owned.owner, run):
                    heads.delete(kind, head.id, head)
        return page.after

    return page_by_page(look)


def unpublished_blobs(
    heads: StateStore, blobs: BlobStore, kind: str, clock: Callable[[], float]
) -> Chore:
    """Return the chore that deletes what crashed writers left, and files taken back."""
    files = Namespaces(heads, kind)

    def look(after: str) -> str | None:
        page = blobs.list(kind, after=after, limit=PAGE)
        for blob in page.blobs:
            if blob.modified >= clock() - _GRACE:
                continue
            name, _, _ = blob.id.rpartition(".")
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                if not any(owned.value["blob"] == blob.id for owned in files.of_anyone(name)):
                    blobs.delete(kind, blob.id)
        return page.after

    return page_by_page(look)
