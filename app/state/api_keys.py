"""API keys in the store: added and revoked while the service runs.

A record of the kind ``key`` holds the owner, scopes and expiry of one key. Its id is the
SHA-256 digest of the key, which is drawn at random, so the store cannot give a key away. A
revoked key stays, marked: a service whose last key was revoked must let nobody in, rather
than everybody as one that never had a key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from app.errors import BadRequestError, NotFoundError

from .base import (
    DamagedRecord,
    Record,
    RecordConflictError,
    RecordMissingError,
    StateStore,
    every,
)

KIND = "key"
KEY_ID_DIGITS = 12
"""Leading digits of a digest by which people name a key."""
_DAMAGED = "(damaged)"
"""Owner of keys whose records are damaged: nobody is let in by them."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What the store knows of a key."""

    digest: str
    """SHA-256 of the key, hexadecimal."""
    owner: str
    scopes: frozenset[str]
    created: int
    """Seconds since 1970, as all times here."""
    expires: int | None = None
    revoked: int | None = None

    @property
    def ident(self) -> str:
        """Leading digits of the digest."""
        return self.digest[:KEY_ID_DIGITS]

    def state(self, now: float) -> str:
        """Return ``valid``, ``expired``, ``revoked`` or, of a damaged record, ``damaged``."""
        if self.revoked is not None:
            return "revoked"
        if self.owner == _DAMAGED:
            return "damaged"
        return "expired" if self.expires is not None and self.expires <= now else "valid"

    def to_json(self) -> bytes:
        """Serialise all but the digest."""
        values = asdict(self) | {"scopes": sorted(self.scopes)}
        del values["digest"]
        return json.dumps(values).encode()

    @classmethod
    def of(cls, record: Record) -> StoredKey:
        """Parse a record."""
        values = json.loads(record.value)
        return cls(record.id, **{**values, "scopes": frozenset(values["scopes"])})


def _key_of(record: Record) -> StoredKey:
    """Return the key in a record; if that is damaged, one that permits nothing."""
    if isinstance(record, DamagedRecord):
        return StoredKey(record.id, _DAMAGED, frozenset(), created=0)
    return StoredKey.of(record)


def digest_key(key: str) -> str:
    """Return the digest of an API key, as settings and the store hold it."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_secret() -> str:
    """Draw an API key: 256 random bits as text."""
    return secrets.token_urlsafe(32)


class ApiKeys:
    """The keys in a store, shared by all workers."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def add(
        self, owner: str, scopes: Iterable[str], now: float, seconds: float | None = None
    ) -> tuple[str, StoredKey]:
        """Add a key.

        Args:
            owner: the owner that it stands for.
            scopes: what it permits.
            now: the time.
            seconds: lifetime of the key; None if it does not expire.

        Returns:
            The key itself, which is stored nowhere, and its record.

        Raises:
            BadRequestError: the owner's name is empty, too long, not printable, or taken.
        """
        if not 1 <= len(owner) <= 100 or not owner.isprintable() or owner == _DAMAGED:  # noqa: PLR2004
            raise BadRequestError(f"{owner[:100]!r} is not a name", hint="Use 1 to 100 characters")
        secret = new_secret()
        expires = None if seconds is None else int(now + seconds)
        key = StoredKey(digest_key(secret), owner, frozenset(scopes), int(now), expires)
        self._store.create(KIND, key.digest, key.to_json())
        return secret, key

    def get(self, digest: str) -> StoredKey | None:
        """Look up a key by its digest; None if it is not stored."""
        try:
            return StoredKey.of(self._store.get(KIND, digest))
        except RecordMissingError:
            return None

    def exist(self) -> bool:
        """Whether a key is stored, or ever was."""
        return bool(self._store.list(KIND, limit=1).records)

    def records(self) -> Iterator[StoredKey]:
        """Yield all keys, in the order of their digests; of damaged ones little is known."""
        for record in every(self._store, KIND):
            yield _key_of(record)

    def revoke(self, name: str, now: float) -> list[StoredKey]:
        """Revoke a key by its leading digits, or all keys of an owner.

        Raises:
            NotFoundError: no valid key has this id or owner.
        """
        revoked = []
        for record in list(every(self._store, KIND)):
            key = _key_of(record)
            named = len(name) >= KEY_ID_DIGITS and key.digest.startswith(name)
            if (named or key.owner == name) and self._revoke(record, now):
                revoked.append(key)
        if not revoked:
            raise NotFoundError(
                f"there is no key {name!r} to revoke",
                hint="thalweg-server keys list shows ids and owners",
            )
        return revoked

    def _revoke(self, record: Record, now: float) -> bool:
        """Revoke a key; return whether it was not yet revoked."""
        while (key := _key_of(record)).revoked is None:
            try:
                self._store.compare_and_swap(record, replace(key, revoked=int(now)).to_json())
            except RecordConflictError:
                # By somebody else, at the same time.
                record = self._store.get(KIND, record.id)
            else:
                return True
        return False
