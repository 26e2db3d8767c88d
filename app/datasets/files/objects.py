"""The objects of a bucket, or of a part of one: listed, looked at, and read on a condition.

An object cannot be held open, as a file can: each read is a request of its own, and between two of
them somebody may put another object in its place. So every read names the ETag that the object
had when the dataset was opened (``If-Match``), and a store answers with bytes of that state or
with none: bytes of two states never mix, and no look at the object has to follow the read.

An ETag is what the store makes of the contents: a checksum, or one of the checksums of the parts
in which the object was uploaded. If contents A are replaced by B, and these by A again, the ETag
is that of A again: it is the same data. When it was written does not matter.

Where a bucket keeps versions, a look at an object tells which one it is, and reads name that as
well: what has begun is read to its end though the object is replaced meanwhile, unless the service
may not read versions. Lists tell none.

Some servers that speak S3 ignore the condition, or the range. So the first object of a root that
is looked at is read once with an ETag that it does not have, and once in part, before anything of
the root is served (:meth:`Objects.look`).

The library retries what the store was too busy for, and what was cut, a few times and for seconds;
what still fails is a problem of the request. Problems name the object as the request did, and say
what happened in words of ours: the words of the library hold addresses.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore, from_url

from app.errors import DataChangedError, ServiceError
from core.arrays import Octets

from .file_set import ReadFailedError, changed
from .roots import FileMissingError

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, RetryConfig

_CLIENT: ClientConfig = {"timeout": "20s", "connect_timeout": "5s", "allow_http": True}
"""Plain HTTP is spoken where the operator's endpoint says so, and nowhere else."""
_RETRY: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}
_STALE = '"00000000000000000000000000000000"'
"""An ETag that no object has."""
_OVERWRITTEN = "null"
"""Version of what is written while a bucket keeps none."""
_PAGE = 1000
"""Objects that a store lists at once."""
_ATTEMPTS = 2
"""Reads of bytes whose answer is cut, which the library does not try again."""
_STATUS = re.compile(r"status code: (\d{3})")
_BUCKET = "The operator must correct the address of the root, or the endpoint of the store"
_CREDENTIALS = "The operator must give the service credentials that may list and read the bucket"
_RETRY_AFTER = 5


class Found(NamedTuple):
    """An object, as it was when it was looked at."""

    key: str
    """Its name below the root."""
    size: int
    """Bytes."""
    e_tag: str
    version: str | None = None
    """Id of its version; None if there are none, or it is not known."""


class Objects:
    """The objects below the address of a root; several threads may use it at once.

    Args:
        address: such as ``s3://bucket/prefix``; credentials, region and endpoint come from the
            environment.
        store: what is at this address; None to open it.

    Raises:
        ValueError: the address is malformed.
    """

    def __init__(self, address: str, store: ObjectStore | None = None) -> None:
        self.address = address
        try:
            self._store = store or from_url(address, client_options=_CLIENT, retry_config=_RETRY)
        except (BaseError, ValueError) as e:
            # Its text may hold what the environment says.
            raise ValueError(f"the dataset root {address} is not the address of a bucket") from e
        self._tried = False
        self._pins = True
        self._lock = threading.Lock()

    def look(self, key: str) -> Found:
        """Look at an object.

        Raises:
            FileMissingError: there is none.
            ReadFailedError: the store does not answer, or cannot be relied upon.
        """
        try:
            meta = obstore.head(self._store, key)
        except FileNotFoundError as e:
            raise FileMissingError(f"there is no file {key!r}", path=key) from e
        except (BaseError, OSError) as e:
            raise _failed(key, e) from e
        found = _found(meta["path"], meta["size"], meta["e_tag"], meta["version"])
        self._try(found)
        return found

    def list(self, prefix: str = "") -> Iterator[list[Found]]:
        """Yield the objects whose names go on after ``prefix`` and a slash, a page at a time.

        Raises:
            ReadFailedError: there is no such bucket, or the store does not answer, or cannot be
                relied upon.
        """
        try:
            for page in obstore.list(self._store, prefix or None, chunk_size=_PAGE):
                found = [_found(each["path"], each["size"], each["e_tag"]) for each in page]
                for each in found[:1]:
                    self._try(each)
                yield found
        except (BaseError, OSError) as e:
            raise _failed(prefix or self.address, e) from e

    def check(self) -> str | None:
        """Return why nothing can be read of the root; None if something can be, or it is empty."""
        try:
            next(self.list(), None)
        except ServiceError as e:
            return f"{e}" if e.hint is None else f"{e}. {e.hint}"
        return None

    def get(self, found: Found, start: int, stop: int, name: str = "") -> Octets:
        """Read bytes ``start`` to ``stop`` of an object, which it has; read-only.

        Raises:
            DataChangedError: the object was replaced or removed since it was looked at.
            ReadFailedError: the store does not answer, or with other bytes.
        """
        name = name or found.key
        try:
            octets = self._get(found, start, stop)
        except PreconditionError as e:
            raise changed(name.rpartition("/")[2], "was modified") from e
        except FileNotFoundError as e:
            raise changed(name.rpartition("/")[2], "was removed") from e
        except (BaseError, OSError) as e:
            raise _failed(name, e) from e
        if len(octets) != stop - start:
            raise _read_failed(name, f"answers {stop - start} bytes with {len(octets)}")
        return octets

    def _get(self, found: Found, start: int, stop: int, attempts: int = _ATTEMPTS) -> Octets:
        version = found.version if self._pins else None
        options: GetOptions = {"range": (start, stop), "if_match": found.e_tag}
        if version is not None:
            options["version"] = version
        try:
            result = obstore.get(self._store, found.key, options=options)
            return np.frombuffer(memoryview(result.bytes()), np.uint8)
        except PermissionDeniedError:
            if version is None:
                raise
            # S3 has a permission of its own for versions that are named.
            octets = self._get(found._replace(version=None), start, stop)
            self._pins = False
            return octets
        except BaseError as e:
            if attempts == 1 or "kind: Interrupted" not in str(e):
                raise
        return self._get(found, start, stop, attempts - 1)

    def _try(self, found: Found) -> None:
        """Try once whether the store heeds conditions and ranges.

        Raises:
            ReadFailedError: it does not.
        """
        with self._lock:
            if self._tried or not found.size:
                return
            try:
                self.get(found._replace(e_tag=_STALE), 0, 1)
            except DataChangedError:
                pass
            else:
                raise _unreliable("If-Match: it gives bytes of an object that has changed")
            whole = self.get(found, 0, min(found.size, 64))
            at = len(whole) // 2
            if self.get(found, at, at + 1)[0] != whole[at]:
                raise _unreliable("Range: it gives other bytes than those asked for")
            self._tried = True


def _found(key: str, size: int, e_tag: str | None, version: str | None = None) -> Found:
    if not e_tag or e_tag.startswith("W/"):
        raise _unreliable("changes: it gives objects no ETag that identifies their contents")
    return Found(key, size, e_tag, None if version == _OVERWRITTEN else version)


def _unreliable(subject: str) -> ReadFailedError:
    return ReadFailedError(
        f"the object store of this dataset root ignores {subject}",
        hint="The operator can use one that heeds conditions on reads, or copy the files to a"
        " directory",
    )


def _failed(name: str, error: Exception) -> ReadFailedError:
    """Return the problem of a failed request, told by its status or the kind of its end."""
    text = str(error)
    status = _STATUS.search(text)
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if denied or (status and status[1] in {"401", "403"}):
        return _read_failed(name, "refuses the credentials of the service", _CREDENTIALS)
    if status and status[1] in {"429", "503"}:
        return _read_failed(name, f"is too busy ({status[1]})")
    if status and status[1] == "404":
        return _read_failed(name, "has no such bucket, or is another", _BUCKET)
    if status:
        return _read_failed(name, f"answers {status[1]}")
    if "kind: Timeout" in text:
        return _read_failed(name, "does not answer in time")
    return _read_failed(name, "cannot be reached, or cuts its answers")


def _read_failed(name: str, subject: str, hint: str | None = None) -> ReadFailedError:
    detail = f"{name!r} cannot be read: its object store {subject}"
    return ReadFailedError(detail, hint=hint, retry_after=_RETRY_AFTER, file=name)
