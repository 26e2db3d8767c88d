"""Deleting runs with all they have."""

from __future__ import annotations

import contextlib

from app.http.identity import Identity
from app.state.base import HeadConflictError, StateStore
from app.state.ownership import Namespaces

from .records import REPORT, SEGMENT, RunRecord
from .results.published import Published
from .sealing.jobs import Jobs
from .streams import Streams


class Removal:
    """Deletes runs.

    Args:
        streams: of the runs.
        heads: of their jobs and published files.
    """

    def __init__(self, streams: Streams, heads: StateStore) -> None:
        self.runs = streams.runs
        self.streams = streams
        self.jobs = Jobs(heads)
        self._computed = {kind: Namespaces(heads, kind) for kind in (SEGMENT, REPORT)}

    def delete(self, who: Identity, ident: str) -> None:
        """Delete a run of the caller.

        Raises:
            NotFoundError: the caller has no such run.
        """
        while True:
            with contextlib.suppress(HeadConflictError):
                self.remove(self.runs.find(who, ident))
                return

    def remove(self, record: RunRecord) -> None:
        """Delete this version of a run.

        The head of the run goes first: nobody finds the rest then, and the sweeper removes
        what a crash leaves of it.

        Raises:
            HeadConflictError: the run has changed.
        """
        self.runs.delete(record)
        self.streams.delete_all(record)
        self.jobs.delete_all(record.owner, record.id)
        for kind, things in self._computed.items():
            Published(things, self.streams.blobs, kind, record.owner, record.id).delete_all()
