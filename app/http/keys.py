"""From an Authorization header to an identity.

Keys come from the settings, which never change, and from the store, where they are added
and revoked while the service runs. What the store said about a key is believed for a
second, so that an ordinary request costs no look-up and a revoked key is refused by every
worker soon after. As often, the keys of requests in progress are looked up again.

The digest of a key is looked up as in any table: whoever learns from the time taken how
many digits of a digest are right is no closer to a key that has it.

What ends the requests in progress of a key that was revoked or has expired is its *lapse*: the body
of such a request ends with the error, as if the client had left there, and its stream with an
error, if its form has one. What still goes on a moment later is broken off.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from starlette.types import Scope

from app.errors import ServiceError, UnauthorizedError
from app.server.body import BODY_EXTENSION
from app.server.flow import Flag
from app.server.reader import SocketBody
from app.server.responses import ABORT_EXTENSION

from .identity import SINGLE_USER, USER_SCOPES, Identity

GRACE_SECONDS = 3.0
"""Time for an orderly end: to store what has come, and to send an error."""
_EXTENSION = "thalweg.lapse"


class Lapse(Flag):
    """Set once the key of a request is no longer valid.

    Args:
        scope: of the request, to which it is attached.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        # The server clears them at the end, and with them the cycle that this makes.
        extensions = scope.setdefault("extensions", {})
        extensions[_EXTENSION] = self
        self._body: SocketBody | None = extensions.get(BODY_EXTENSION)
        self._abort: Callable[[], None] | None = extensions.get(ABORT_EXTENSION)
        self._error: UnauthorizedError | None = None

    def check(self) -> None:
        """Do nothing as long as the key is valid.

        Raises:
            UnauthorizedError: it is not.
        """
        if self._error is not None:
            # A copy: other requests of the key raise theirs.
            raise copy(self._error)

    def end(self, error: UnauthorizedError) -> None:
        """End the request; later calls do nothing."""
        if self._error is None:
            self._error = error = error.with_traceback(None)
            self.set()
            if self._body is not None:
                self._body.fail(error)
            if self._abort is not None:
                asyncio.get_running_loop().call_later(GRACE_SECONDS, self._abort)


def lapse_of(scope: Scope) -> Lapse | None:
    """Return what ends a request; None if its key is valid for good, or it has none."""
    lapse: Lapse | None = (scope.get("extensions") or {}).get(_EXTENSION)
    return lapse


BELIEVED_SECONDS = 1.0
_REMEMBERED = 4096
"""Keys whose look-up is remembered, unknown ones included."""
_KEY_ID_DIGITS = 12
_NEVER = float("-inf")


class KeyRecord(Protocol):
    """What a store knows of a key."""

    @property
    def owner(self) -> str:
        """The owner that the key stands for."""

    @property
    def scopes(self) -> frozenset[str]:
        """What it permits."""

    @property
    def expires(self) -> int | None:
        """When it expires, in seconds since 1970; None if it does not."""

    @property
    def revoked(self) -> int | None:
        """When it was revoked; None if it was not."""


class KeyStore(Protocol):
    """The keys in a store."""

    def get(self, digest: str) -> KeyRecord | None:
        """Look up a key by its digest; None if it is not stored."""

    def exist(self) -> bool:
        """Whether a key is stored, or ever was."""


T = TypeVar("T")
Digest = Callable[[str], str]


class Keys:
    """The API keys of the service.

    Args:
        entries: ``name:digest`` or ``digest`` of each, as in ``THALWEG_API_KEYS``.
        stored: further keys.
        digest: computes the digest of a key.
        clock: the time in seconds since 1970.
    """

    def __init__(
        self,
        entries: Iterable[str],
        stored: KeyStore,
        digest: Digest,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fixed = dict(_parse(entry) for entry in entries)
        self._stored = stored
        self._digest = digest
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, KeyRecord | None]] = OrderedDict()
        self.required = bool(self._fixed) or stored.exist()
        """Whether the service has keys, as far as this process knows."""
        self._looked = _NEVER
        self._single_users: dict[str, Identity] = {}
        self._running: dict[str, set[Lapse]] = {}
        """Lapses of the requests in progress, by the digests of their keys."""
        self._looking: asyncio.Task[None] | None = None
        # One of its own: those that compute may all be busy when a request arrives.
        self._thread = ThreadPoolExecutor(1, "keys")

    @property
    def fixed(self) -> list[Identity]:
        """Who has the keys of the settings."""
        return list(self._fixed.values())

    async def identify(
        self, authorization: str | None, address: str | None = None, digest: str | None = None
    ) -> Identity:
        """Return the identity of a request.

        Args:
            authorization: value of its Authorization header.
            address: of the client, which is charged where the service has no keys.
            digest: of the key that its cookie stands for; the header goes before it.

        Raises:
            UnauthorizedError: the header has no valid key, and the service has keys.
        """
        if not await self._are_required():
            return self._single_user(address)
        if authorization is not None or digest is None:
            scheme, _, key = (authorization or "").partition(" ")
            if scheme.lower() != "bearer" or not key.strip():
                raise UnauthorizedError(
                    "this server requires an API key", hint="Send Authorization: Bearer KEY"
                )
            digest = self._digest(key.strip())
        fixed = self._fixed.get(digest)
        return await self._from_store(digest) if fixed is None else fixed

    async def check(self, key: str) -> str:
        """Return the digest of a key that somebody signs in with.

        Raises:
            UnauthorizedError: it is not valid, and the service has keys.
        """
        digest = self._digest(key.strip())
        await self.identify(None, digest=digest)
        return digest

    @contextmanager
    def bounding(self, identity: Identity | None, scope: Scope) -> Iterator[None]:
        """End a request within seconds, if its key is revoked or expires in the block."""
        digest = None if identity is None else identity.stored_key
        if digest is None:
            yield
            return
        lapse = Lapse(scope)
        lapses = self._running.setdefault(digest, set())
        lapses.add(lapse)
        if self._looking is None:
            loop = asyncio.get_running_loop()
            # In a context of its own, as it outlives the request.
            self._looking = loop.create_task(self._look(), context=Context())
        try:
            yield
        finally:
            lapses.discard(lapse)
            if not lapses:
                del self._running[digest]

    async def _look(self) -> None:
        """Look up the keys of requests in progress again and again, until there are none."""
        try:
            while self._running:
                await asyncio.sleep(BELIEVED_SECONDS)
                for digest in list(self._running):
                    try:
                        await self._from_store(digest)
                    except UnauthorizedError as e:
                        for lapse in self._running.get(digest, ()):
                            lapse.end(e)
                    except ServiceError:
                        # The store fails: the key is valid as far as anybody knows.
                        continue
        finally:
            self._looking = None

    def _single_user(self, address: str | None) -> Identity:
        if address is None:
            return SINGLE_USER
        identity = self._single_users.get(address)
        if identity is None:
            if len(self._single_users) >= _REMEMBERED:
                self._single_users.clear()
            identity = replace(SINGLE_USER, account=address)
            self._single_users[address] = identity
        return identity

    async def _are_required(self) -> bool:
        """Whether the service has keys; from the first one on, for good."""
        if not self.required:
            now = self._clock()
            if not _is_recent(self._looked, now):
                self.required = await self._ask(self._stored.exist)
                self._looked = now
        return self.required

    async def _from_store(self, digest: str) -> Identity:
        record = await self._record(digest)
        if record is None or record.revoked is not None:
            raise UnauthorizedError("the API key is unknown")
        if record.expires is not None and record.expires <= self._clock():
            day = datetime.fromtimestamp(record.expires, UTC).isoformat()
            raise UnauthorizedError(
                f"the API key expired at {day}", hint="Ask the operator for a new one"
            )
        ident = digest[:_KEY_ID_DIGITS]
        return Identity(record.owner, record.scopes, ident, stored_key=digest)

    async def _record(self, digest: str) -> KeyRecord | None:
        now = self._clock()
        looked, record = self._known.get(digest, (_NEVER, None))
        if _is_recent(looked, now):
            return record
        record = await self._ask(partial(self._stored.get, digest))
        self._known[digest] = now, record
        self._known.move_to_end(digest)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return record

    async def _ask(self, question: Callable[[], T]) -> T:
        """Ask the store in a thread: it may wait for its disk, and all requests with it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def _is_recent(looked: float, now: float) -> bool:
    # A clock that was set back must not make old news last.
    return 0 <= now - looked < BELIEVED_SECONDS


def _parse(entry: str) -> tuple[str, Identity]:
    name, _, digest = entry.rpartition(":")
    digest = digest.strip().lower()
    ident = digest[:_KEY_ID_DIGITS]
    return digest, Identity(name.strip() or ident, USER_SCOPES, ident)
