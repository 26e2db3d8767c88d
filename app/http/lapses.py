"""What ends the requests in progress of a key that was revoked or has expired.

The body of such a request ends with the error, as if the client had left there, and its stream
with an error, if its form has one. What still goes on a moment later is broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Protocol

from starlette.types import Scope

from app.errors import UnauthorizedError
from app.server.body import BODY_EXTENSION
from app.server.flag import Flag
from app.server.responses import ABORT_EXTENSION

GRACE_SECONDS = 3.0
"""Time for an orderly end: to store what has come, and to send an error."""
_EXTENSION = "thalweg.lapse"


class _Body(Protocol):
    """A request body that can be ended."""

    def fail(self, error: Exception) -> None:
        """Give its reader an error after the bytes received so far."""


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
        self._body: _Body | None = extensions.get(BODY_EXTENSION)
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
