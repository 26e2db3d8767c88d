"""Loss sets in the stores, in the namespaces of their owners.

    record  loss_set  <owner's namespace>.<id>                    what it is, and names of its files
    blob    loss_set  <id>.<attempt>.<part>                       losses, occurrences, ...

Whoever makes a set writes to blobs of an attempt of its own, and whoever creates the record first
wins. A record goes before its blobs: what a crash leaves has no record that names its attempt, is
read by nobody, and the sweeper removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.errors import InvalidOptionError, NotFoundError
from app.http.identity import Identity
from app.state.base import RecordExistsError, RecordMissingError, StateStore
from app.state.blobs import BlobInfo, GrowingBlobs
from app.state.ownership import Namespaces, OwnedRecord
from app.state.sweeper import Chore, each
from core.slices import slices

KIND = "loss_set"
LOSSES, OCCURRENCES, WEIGHTS, DIMENSIONS = "losses", "occurrences", "weights", "dimensions"
_PIECE = 1 << 20
_SYNCED = 64 << 20
"""Bytes after which what was written is made durable, so that the end does not wait for all."""
_ABANDONED = 86400.0
"""Seconds after its last byte in which a blob without a record may still be written."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LossSet:
    """A stored loss set."""

    id: str
    owner: str
    value: Mapping[str, Any]

    @classmethod
    def of(cls, owned: OwnedRecord) -> LossSet:
        """Return the set in a record."""
        return cls(owned.ident, owned.owner, owned.value)

    def blob(self, part: str) -> str:
        """Return the id of the blob of a part, which no other content ever has."""
        return f"{self.id}.{self.value['attempt']}.{part}"

    def size(self, part: str) -> int | None:
        """Return the bytes of a part; None if it has none."""
        size: int | None = self.value["parts"].get(part)
        return size

    @property
    def digest(self) -> str:
        """Digest of all content."""
        digest: str = self.value["digest"]
        return digest

    def describe(self) -> dict[str, Any]:
        """Return what clients are told."""
        hidden = {"attempt", "parts", "source", "streams", "happening", "sums"}
        document = {name: value for name, value in self.value.items() if name not in hidden}
        return {
            "id": self.id,
            **document,
            "bytes": sum(self.value["parts"].values()),
            "created": datetime.fromtimestamp(int(self.value["created"]), UTC).isoformat(),
        }


class SetWriter:
    """Writes the parts of a set, one after the other, and their digest."""

    def __init__(self, blobs: GrowingBlobs, begin: str) -> None:
        self._blobs = blobs
        self._begin = begin
        self._hash = hashlib.blake2b(digest_size=16)
        self.parts: dict[str, int] = {}
        """Bytes of each part that was written."""

    @property
    def digest(self) -> str:
        """Digest of all that was written."""
        return self._hash.hexdigest()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[Callable[[bytes | memoryview], None]]:
        """Provide what appends to a part, which is durable once the block ends."""
        with closing(self._blobs.writer(KIND, f"{self._begin}.{name}", 0)) as writer:
            self.parts[name] = 0
            synced = 0

            def append(data: bytes | memoryview) -> None:
                nonlocal synced
                self._hash.update(data)
                self.parts[name] = writer.write(data)
                if self.parts[name] - synced > _SYNCED:
                    synced = writer.commit()

            yield append
            writer.commit()

    def write(self, name: str, data: bytes) -> None:
        """Write a part that is in memory."""
        with self.part(name) as append:
            for begin, end in slices(len(data), KIND, _PIECE):
                append(memoryview(data)[begin:end])

    def discard(self) -> None:
        """Remove what was written."""
        for name in self.parts:
            with contextlib.suppress(NotFoundError):
                self._blobs.delete(KIND, f"{self._begin}.{name}")


class LossSets:
    """The loss sets of all owners.

    Args:
        records: the store of their records.
        blobs: the store of their content.
    """

    def __init__(self, records: StateStore, blobs: GrowingBlobs) -> None:
        self._records = Namespaces(records, KIND)
        self.blobs = blobs

    def find(self, caller: Identity, ident: str) -> LossSet:
        """Return a set of the caller; ``admin`` gets those of others.

        Raises:
            NotFoundError: the caller has no such set.
        """
        try:
            return LossSet.of(self._records.get(caller.owner, ident))
        except RecordMissingError as e:
            others = self._records.of_anyone(ident) if caller.is_admin else []
            if not others:
                raise NotFoundError(
                    f"there is no loss set {ident[:80]!r}",
                    hint="GET /v1/portfolios/loss-sets lists those there are",
                ) from e
            return LossSet.of(others[0])

    def page(self, caller: Identity, after: str, limit: int) -> list[LossSet]:
        """List up to ``limit`` sets after an id, in order of their ids; ``admin`` gets all.

        Those that are damaged are left out, and logged.
        """
        return self._records.listed(
            caller.owner, after, limit, LossSet.of, everyone=caller.is_admin
        )

    def create(
        self,
        caller: Identity,
        ident: str,
        source: str,
        content: Callable[[SetWriter], Mapping[str, Any]],
    ) -> tuple[LossSet, bool]:
        """Create a set, unless the owner has it; return it, and whether it is new.

        Args:
            caller: its owner.
            ident: its id.
            source: digest of what it is made of: the same one is not made again.
            content: writes it; returns what it is.

        Raises:
            InvalidOptionError: the id is none.
            RecordExistsError: the owner has another set of this id.
            QuotaExceededError: the owner has too many, or too large ones.
        """
        check_id(ident)
        known = self._known(caller.owner, ident, source)
        if known is not None:
            return known, False
        attempt = secrets.token_hex(8)
        writer = SetWriter(self.blobs, f"{ident}.{attempt}")
        try:
            document = content(writer)
            own = {"source": source, "attempt": attempt, "parts": writer.parts}
            value = {**document, **own, "digest": writer.digest, "created": time.time()}
            size = sum(writer.parts.values())
            return LossSet.of(self._records.insert(caller.owner, ident, value, size)), True
        except RecordExistsError:
            writer.discard()
            known = self._known(caller.owner, ident, source)
            if known is None:
                raise
            return known, False
        except BaseException:
            writer.discard()
            raise

    def _known(self, owner: str, ident: str, source: str) -> LossSet | None:
        try:
            known = LossSet.of(self._records.get(owner, ident))
        except RecordMissingError:
            return None
        if known.value["source"] != source:
            raise RecordExistsError(
                f"there is another loss set {ident}",
                hint="Delete it first, or give this one another name",
                ids=[ident],
            )
        return known

    def delete(self, caller: Identity, ident: str) -> None:
        """Delete a set of the caller; ``admin`` deletes those of others.

        Raises:
            NotFoundError: the caller has no such set.
        """
        known = self.find(caller, ident)
        self._records.delete(known.owner, ident)
        for part in known.value["parts"]:
            with contextlib.suppress(NotFoundError):
                self.blobs.delete(KIND, known.blob(part))


def check_id(ident: str) -> None:
    """Check the id of a set.

    Raises:
        InvalidOptionError: it is none.
    """
    if not _ID.fullmatch(ident):
        raise InvalidOptionError(
            f"{ident[:80]!r} is not the name of a loss set",
            hint="Use up to 64 characters of A-Z a-z 0-9 . _ -, the first a letter or digit",
            option="name",
        )


def blobs_without_sets(
    records: StateStore, blobs: GrowingBlobs, clock: Callable[[], float] = time.time
) -> Chore:
    """Return the chore that deletes content that no loss set names."""
    sets = Namespaces(records, KIND)

    def look(blob: BlobInfo) -> None:
        ident, attempt, _part = blob.id.rsplit(".", 2)
        if blob.modified > clock() - _ABANDONED:
            return
        if not any(owned.value["attempt"] == attempt for owned in sets.of_anyone(ident)):
            blobs.delete(KIND, blob.id)

    return each(blobs, KIND, look)
