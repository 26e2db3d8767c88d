"""The audit log: one line per change of state, for whoever must answer who did what.

It is apart from the log of the service: its lines do not depend on the log level, and can go
to a file of their own. A line is a JSON object:

    event        always "audit"
    action       create, delete, append, seal, compute; revoke, adopt (the command); identify (a
                 refusal, see below)
    resource     dataset, view, pipeline, input, loss_set, run, stream or key
    id           that of the resource; further members say what it belongs to
    owner        who acted; of the command, the owner of the key
    uid          of the command, the user of the operating system who ran it
    result       created, existed, deleted, appended, refused, or unknown if the client left before
                 the answer; of the command, done
    status, code of a refusal: the HTTP status and the code of the problem
    key_id       first digits of the digest of the key that was used
    request_id   as in the answer and in the log of requests

A key or a token is never in it. Refusals of identity (401, 403) are lines too, but limited in
number, as whoever has no key could fill a disk with them: ``suppressed`` counts those left out.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path

import structlog

NONE, LOG = "none", "log"
_WINDOW = 10.0
_PER_WINDOW = 20
"""Lines about refused identities in as many seconds."""


class _File(WatchedFileHandler):
    """Appends to a file, also after it was renamed by a rotation."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name there
        """Tell the log: a full disk must not fail the request whose line it is."""
        error = sys.exc_info()[1]
        structlog.get_logger().error(
            "the audit log cannot be written", reason=str(error), line=record.getMessage()
        )


class AuditLog:
    """Writes audit lines.

    Args:
        destination: ``log`` for standard error, ``none`` for nowhere, else the path of a file.
        clock: seconds.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, destination: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._handler = _handler(destination)
        self._lock = threading.Lock()
        self._window = float("-inf")
        self._written = 0
        self._suppressed = 0

    def write(self, **fields: object) -> None:
        """Write a line; members that are None are left out."""
        if self._handler is None:
            return
        present = {name: value for name, value in fields.items() if value is not None}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        # Paths may hold what is no text: escaped, it can neither fail nor end the line.
        line = json.dumps({"timestamp": now, "event": "audit", **present})
        self._handler.handle(
            logging.LogRecord("thalweg.audit", logging.INFO, "", 0, line, None, None)
        )

    def write_refusal(self, **fields: object) -> None:
        """Write a line about a refused identity, unless there are too many of them."""
        with self._lock:
            now = self._clock()
            if now - self._window >= _WINDOW:
                self._window, self._written = now, 0
            if self._written >= _PER_WINDOW:
                self._suppressed += 1
                return
            self._written += 1
            suppressed, self._suppressed = self._suppressed or None, 0
        self.write(action="identify", result="refused", suppressed=suppressed, **fields)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._handler is not None:
            # What could not be written has been told.
            with contextlib.suppress(OSError):
                self._handler.close()


def _handler(destination: str) -> logging.Handler | None:
    if destination == NONE:
        return None
    if destination == LOG:
        return logging.StreamHandler(sys.stderr)
    path = Path(destination)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return _File(path, delay=True)
