"""Removing files that were computed of runs that are gone, or never published."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from app.errors import NotFoundError
from app.state.base import HeadConflictError, HeadMissingError, StateStore, StoreDamagedError
from app.state.blobs import BlobStore
from app.state.ownership import Namespaces, Owned
from app.state.sweeper import PAGE, Chore, Lasting, page_by_page

from ..records import REPORT, RUN, SEGMENT, RunRecord

_GRACE = 86400.0
"""Age in seconds that spares what a worker may still be writing."""
WRITING_SECONDS = 7200.0
"""Time without a byte after which nobody is writing, even if the age is that of a clock that
jumped."""
_DELETED = 600.0
"""Age in seconds from which a file without its run is not a new one."""


def chores(
    heads: StateStore,
    blobs: BlobStore,
    clock: Callable[[], float],
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Chore]:
    """Return the chores of published files, by name; see :func:`app.runs.sweeping.chores`."""
    found = {}
    for kind in (SEGMENT, REPORT):
        found[f"{kind}s without runs"] = files_without_runs(heads, kind, clock)
        found[f"unpublished {kind}s"] = unpublished_blobs(
            heads, blobs, kind, clock, Lasting(WRITING_SECONDS, monotonic)
        )
    return found


def files_without_runs(heads: StateStore, kind: str, clock: Callable[[], float]) -> Chore:
    """Return the chore that takes back files of runs that are gone, or were sealed again."""
    runs = Namespaces(heads, RUN)

    def look(after: str) -> str | None:
        page = heads.list(kind, after=after, limit=PAGE)
        for head in page.heads:
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                if head.used < clock() - _DELETED and not _is_of_a_run(runs, Owned.of(head)):
                    heads.delete(kind, head.id, head)
        return page.after

    return page_by_page(look)


def _is_of_a_run(runs: Namespaces, file: Owned) -> bool:
    """Whether a file is of a run, and of its present term if it is a report."""
    ident, _, _ = file.ident.partition(".")
    return any(
        file.head.kind == SEGMENT or file.ident.startswith(f"{run.files}.")
        for run in runs_of(runs, file.owner, ident)
    )


def runs_of(runs: Namespaces, owner: str, ident: str) -> list[RunRecord]:
    """Return the run of an owner; else those of this id that others own.

    What belongs to a run may be on its way to another owner, a moment later than the run.
    """
    try:
        found = [runs.get(owner, ident)]
    except HeadMissingError:
        found = runs.of_anyone(ident)
    return [RunRecord.decode(owned) for owned in found]


def unpublished_blobs(
    heads: StateStore, blobs: BlobStore, kind: str, clock: Callable[[], float], left: Lasting
) -> Chore:
    """Return the chore that deletes what crashed writers left, and files taken back.

    Args:
        heads: the store of the heads of files.
        blobs: the store of their content.
        kind: of both.
        clock: seconds since 1970.
        left: tells which have been as they are for long.
    """
    files = Namespaces(heads, kind)

    def look(after: str) -> str | None:
        page = blobs.list(kind, after=after, limit=PAGE)
        for blob in page.blobs:
            if blob.modified >= clock() - _GRACE:
                continue
            name, _, _ = blob.id.rpartition(".")
            with contextlib.suppress(StoreDamagedError, NotFoundError, HeadConflictError):
                published = any(o.value["blob"] == blob.id for o in files.of_anyone(name))
                if published:
                    left.forget(blob.id)
                elif left.has_lasted(blob.id, (blob.modified, blob.size)):
                    blobs.delete(kind, blob.id)
                    left.forget(blob.id)
        return page.after

    return page_by_page(look)
