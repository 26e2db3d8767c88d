"""The object stores that a service can use: opened by their address, and tried.

Of five servers that speak S3, three answer 200 to a conditional write and ignore the condition: of
two who create an object, both believe to have done it. So a store is asked before anything is
entrusted to it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import ObjectStore, from_url

from .base import StoreError, StoreReadOnlyError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_CLIENT: ClientConfig = {"timeout": "60s", "connect_timeout": "5s", "allow_http": True}
"""Plain HTTP is spoken where the operator's endpoint says so, and nowhere else."""
_CONTENT = b"0123456789"
_RETRY: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
"""After a minute there is no other request: a store that is silent is not waited for."""


def open_objects(url: str) -> ObjectStore:
    """Open an object store; its credentials and endpoint come from the environment.

    Raises:
        StoreError: the address or the credentials are malformed.
    """
    try:
        return from_url(url, client_options=_CLIENT, retry_config=_RETRY)
    except (BaseError, ValueError) as e:
        raise StoreError(f"the address of the object store is malformed: {_first_line(e)}") from e


def check_objects(objects: ObjectStore) -> float:
    """Check that a store refuses to create what exists, and to replace what has changed.

    Returns:
        The seconds that it took to store a small object.

    Raises:
        StoreError: it does not, or cannot be used; the message says why.
    """
    path = f"probe/{secrets.token_hex(8)}"
    try:
        first = obstore.put(objects, path, _CONTENT, mode="create", use_multipart=False)
        seconds = _check_conditions(objects, path, first["e_tag"])
        if bytes(obstore.get_range(objects, path, start=2, end=5)) != _CONTENT[2:5]:
            raise StoreError("the object store answers a range of bytes with others")
    except (BaseError, OSError) as e:
        if isinstance(e, FileNotFoundError):
            raise StoreError("there is no such bucket, or its endpoint is another") from e
        if isinstance(e, PermissionDeniedError | UnauthenticatedError):
            raise store_error(e) from e
        raise StoreError(f"the object store cannot be used: {_first_line(e)}") from e
    else:
        return seconds
    finally:
        with contextlib.suppress(BaseError, OSError):
            obstore.delete(objects, path)


def _check_conditions(objects: ObjectStore, path: str, e_tag: str | None) -> float:
    with contextlib.suppress(exceptions.AlreadyExistsError):
        obstore.put(objects, path, _CONTENT, mode="create", use_multipart=False)
        raise _ignoring("If-None-Match: it created an object twice")
    obstore.put(objects, path, _CONTENT[::-1], mode={"e_tag": e_tag}, use_multipart=False)
    with contextlib.suppress(exceptions.PreconditionError):
        obstore.put(objects, path, b"", mode={"e_tag": e_tag}, use_multipart=False)
        raise _ignoring("If-Match: it replaced an object that had changed")
    started = time.monotonic()
    obstore.put(objects, path, _CONTENT, use_multipart=False)
    return time.monotonic() - started


def _ignoring(subject: str) -> StoreError:
    return StoreError(
        f"the object store ignores {subject}",
        hint="Use one with conditional writes, or keep blobs in files: THALWEG_BLOBS=file:",
        retry_after=None,
    )


def store_error(error: Exception) -> StoreError:
    """Return the error of a store for one of the object store, whose text names hosts."""
    if "RequestTimeTooSkewed" in str(error):
        return StoreReadOnlyError(
            "the object store refuses the clock of this machine: set it by NTP"
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StoreReadOnlyError("the object store refuses the credentials of the service")
    return StoreError("the object store cannot be read or written", retry_after=5)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
