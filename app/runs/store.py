"""Runs in the store of records, in their owners' namespaces; and the bytes of their streams."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.errors import NotFoundError
from app.http.identity import Identity
from app.run_errors import IdempotencyError, RunExpiredError, RunSealedError
from app.state.base import (
    Admit,
    RecordConflictError,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreBusyError,
    StoreDamagedError,
    Usage,
)
from app.state.blobs import BlobMissingError, BlobStore
from app.state.ownership import Namespaces

from .records import RUN, STREAM, RunRecord, StreamRecord, labelled
from .watching import Watch

_DAY = 86400.0
_KEPT_SECONDS = 3600.0
"""Time by which an expiry is put off at a time: each time is a write."""
_ID_BYTES = 16
_TERM_BYTES = 4

Change = Callable[[RunRecord], RunRecord]
"""Returns a changed run; called again where another request changed it first."""


class Runs:
    """The runs of all owners.

    Args:
        records: the store of the records.
        days: lifetime of a run after its last change; None for no end.
        watch: is told of each change.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        records: StateStore,
        days: float | None,
        watch: Watch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runs = Namespaces(records, RUN)
        self._days = days
        self.watch = watch
        self._clock = clock
        self.on_state: Callable[[str], None] = lambda _state: None
        """Is told the state of each run that is new in it, or that a run was deleted."""

    def create(
        self,
        caller: Identity,
        spec: Mapping[str, Any],
        inputs: Mapping[str, str],
        days: float | None = None,
        key: str | None = None,
    ) -> tuple[RunRecord, bool]:
        """Create a run; return it, and whether it is new.

        Args:
            caller: its owner.
            spec: in canonical form.
            inputs: digests of inputs, by name.
            days: its lifetime after the last change, at most that of all runs.
            key: two requests of an owner with the same key create one run.

        Raises:
            IdempotencyError: the key was used for another run.
            QuotaExceededError: the owner has too many.
        """
        ident = secrets.token_hex(_ID_BYTES)
        if key is not None:
            named = f"{caller.owner}\0{key}".encode()
            ident = hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()
        if self._days is not None:
            days = self._days if days is None else min(days, self._days)
        now = self._clock()
        expires = None if days is None else now + days * _DAY
        record = RunRecord(
            ident,
            caller.owner,
            spec,
            inputs,
            "created",
            now,
            expires,
            days,
            streams={},
            term=new_term(),
        )
        while True:
            with contextlib.suppress(RecordExistsError):
                owned = self._runs.insert(caller.owner, ident, record.encode())
                self.on_state(record.state)
                return RunRecord.decode(owned), True
            # Unless it was deleted in the meantime:
            with contextlib.suppress(NotFoundError):
                known = self.get(caller, ident)
                # The label may have changed since.
                if (labelled(known, spec.get("label")).spec, known.days) != (spec, days):
                    raise IdempotencyError(
                        "the Idempotency-Key was used for a run with another spec",
                        hint="Use a new key for each run",
                    )
                return known, False

    def get(self, caller: Identity, ident: str) -> RunRecord:
        """Return a run of the caller; ``admin`` gets those of others.

        Raises:
            NotFoundError: the caller has no such run.
            RunExpiredError: it has expired.
        """
        record = self.find(caller, ident)
        if self.is_expired(record):
            raise RunExpiredError(f"the run {ident} has expired", hint="Create another")
        return record

    def own(self, caller: Identity, ident: str) -> RunRecord:
        """Return a run to change, which is the caller's own; see ``get``."""
        record = self.get(caller, ident)
        if record.owner != caller.owner:
            raise NotFoundError(f"there is no run {ident[:80]!r}")
        return record

    def find(self, caller: Identity, ident: str) -> RunRecord:
        """Return a run of the caller as ``get`` does, even if it has expired."""
        try:
            return RunRecord.decode(self._runs.get(caller.owner, ident))
        except RecordMissingError as e:
            others = self._runs.of_anyone(ident) if caller.is_admin else []
            if not others:
                raise NotFoundError(f"there is no run {ident[:80]!r}") from e
            return RunRecord.decode(others[0])

    def again(self, run: RunRecord) -> RunRecord:
        """Return the present version of a run.

        Raises:
            NotFoundError: it was deleted.
        """
        return self._load(run.owner, run.id)

    def _load(self, owner: str, ident: str) -> RunRecord:
        return RunRecord.decode(self._runs.get(owner, ident))

    def is_expired(self, record: RunRecord) -> bool:
        """Whether a run is to be removed."""
        return record.expires is not None and record.expires < self._clock()

    def page(self, caller: Identity, after: str, limit: int) -> list[RunRecord]:
        """List up to ``limit`` runs of the caller after an id, in order of their ids.

        ``admin`` gets those of everybody. Those that are damaged are left out, and logged.
        """
        return self._runs.listed(
            caller.owner, after, limit, RunRecord.decode, everyone=caller.is_admin
        )

    def change(self, record: RunRecord, change: Change, *, admit: Admit | None = None) -> RunRecord:
        """Change a run, again and again until nobody was first.

        Args:
            record: a version of it.
            change: is called with the present version, and returns the new one.
            admit: admits that it grows; default: the quota of its owner.

        Raises:
            NotFoundError: it was deleted.
            Exception: what ``change`` raises.
        """
        while True:
            new = self._put_off(change(record))
            if new == record:
                return record
            try:
                owned = self._runs.replace(record.version, new.encode(), admit=admit)
            except RecordConflictError:
                record = self.again(record)
                continue
            self.watch.announce(record.id)
            if new.state != record.state:
                self.on_state(new.state)
            return RunRecord.decode(owned)

    def _put_off(self, record: RunRecord) -> RunRecord:
        """Put off the expiry of a run that is being used."""
        if record.days is None or record.expires is None:
            return record
        expires = self._clock() + record.days * _DAY
        put_off = abs(expires - record.expires) >= min(_KEPT_SECONDS, record.days * _DAY / 10)
        return replace(record, expires=expires) if put_off else record

    def keep(self, owner: str, ident: str) -> None:
        """Put off the expiry of a run whose streams grow."""
        with contextlib.suppress(RecordMissingError, StoreBusyError):
            self.change(self._load(owner, ident), lambda run: run)

    def uploading(self, owner: str, ident: str) -> RunRecord:
        """Return the present version of a run; if it takes streams, it is being uploaded to.

        Who has changed which streams there are asks for it before it answers. A seal that did not
        see the change is kept from succeeding, and looks again; one that came first shows here.

        Raises:
            NotFoundError: the run was deleted.
        """

        def uploading(run: RunRecord) -> RunRecord:
            if not run.is_open:
                return run
            return replace(run, state="uploading", problem=None, closing=False)

        return self.change(self._load(owner, ident), uploading, admit=always)

    def delete(self, record: RunRecord) -> None:
        """Delete the record of a run, if there is one; see :class:`~.removal.Removal`.

        Raises:
            RecordConflictError: it has changed.
        """
        with contextlib.suppress(RecordMissingError):
            self._runs.delete(record.owner, record.id, record.version)
            self.on_state("deleted")
        self.watch.announce(record.id)

    def discard(self, caller: Identity, ident: str) -> None:
        """Delete the record of a run of the caller, which is damaged.

        Raises:
            NotFoundError: the caller has none.
        """
        self._runs.remove(caller.owner, ident, everyone=caller.is_admin)
        self.on_state("deleted")
        self.watch.announce(ident)

    def check_open(self, run: RunRecord) -> None:
        """Check that a run takes streams.

        Raises:
            RunSealedError: it does not.
        """
        if not run.is_open:
            raise RunSealedError(
                f"the run is {run.state} and takes no more streams or inputs",
                hint="Create another run",
                state=run.state,
            )


def always(_usage: Usage) -> None:
    """Admit what a run grows by as it goes on: that must not end at the quota of its owner."""


def new_term() -> str:
    """Draw a term of a run."""
    return secrets.token_hex(_TERM_BYTES)


PIECE = 1 << 20
"""Bytes that are read at a time."""
_REMEDY = (
    "Delete the stream, upload it again, then seal the run again; if the run is sealed, upload to"
    " another one"
)


class StoredStream:
    """The durable bytes of one version of a stream.

    Args:
        blobs: where they are.
        record: the version.
    """

    def __init__(self, blobs: BlobStore, record: StreamRecord) -> None:
        self._blobs = blobs
        self.record = record

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"partition {self.record.partition}"

    @property
    def ident(self) -> str:
        """Id of this upload; a stream that is uploaded again has another."""
        return self.record.id

    @property
    def size(self) -> int:
        """Number of durable bytes."""
        return self.record.offset

    @property
    def complete(self) -> bool:
        """Whether these are all bytes of a faultless stream."""
        return self.record.complete

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, cut at the end.

        Raises:
            StoreDamagedError: they are not those that were stored.
            BlobMissingError: the stream was deleted, or its file.
        """
        parts = []
        for extent in self.record.extents:
            first, last = max(start, extent.start), min(stop, extent.stop)
            if first < last:
                name = self.record.blob(extent.fence)
                low, high = first - extent.start, last - extent.start
                part = self._range(name, low, high)
                parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _range(self, blob: str, start: int, stop: int) -> bytes:
        try:
            part = self._blobs.range(STREAM, blob, start, stop)
        except StoreDamagedError as e:
            raise self._damaged(e.path) from e
        except BlobMissingError as e:
            # Where it was not deleted, its file was.
            raise BlobMissingError(
                f"the stored bytes of partition {self.record.partition} are missing", hint=_REMEDY
            ) from e
        if len(part) != stop - start:
            raise self._damaged(None)
        return part

    def _damaged(self, path: Path | None) -> StoreDamagedError:
        return StoreDamagedError(
            f"the stored bytes of partition {self.record.partition} are damaged",
            path=path,
            hint=_REMEDY,
            retry_after=None,
        )

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` on, up to ``PIECE`` at a time; see ``read``."""
        stop = self.size if stop is None else min(stop, self.size)
        while start < stop:
            data = self.read(start, min(start + PIECE, stop))
            start += len(data)
            yield memoryview(data)
