"""Deleting runs with all they have."""

from __future__ import annotations

from app.http.identity import Identity
from app.state.base import StateStore
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
        self._streams = streams
        self._jobs = Jobs(heads)
        self._computed = {kind: Namespaces(heads, kind) for kind in (SEGMENT, REPORT)}

    def delete(self, who: Identity, ident: str) -> None:
        """Delete a run of the caller.

        Raises:
            NotFoundError: the caller has no such run.
        """
        self.remove(self.runs.find(who, ident))

    def remove(self, record: RunRecord) -> None:
        """Delete a run; goes on where a crash ended it.

        The head of the run goes first: nobody finds the rest then, and the sweeper removes
        what is left of it.
        """
        self.runs.delete(record)
        self._streams.delete_all(record)
        self._jobs.delete_all(record.owner, record.id)
        for kind, things in self._computed.items():
            Published(things, self._streams.blobs, kind, record.owner, record.id).delete_all()
