"""The word of a run that the processes whose losses were read have ended well."""

from __future__ import annotations

import os
import select
from pathlib import Path

from core.errors import InputError, TruncatedError

COMPLETE = b"complete\n"
_SECONDS = 1.0


class Confirmation:
    """Waits for ``complete`` in a fifo.

    The end of the fifo without it means that the run has failed, or its script has been killed.

    Args:
        path: of the fifo; it is opened at once, so that its writer does not wait.

    Raises:
        InputError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parent = os.getppid()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            raise InputError(f"cannot be opened: {e.strerror}", source=str(path)) from e

    def wait(self) -> None:
        """Wait for the word.

        Raises:
            TruncatedError: a process of the run has failed, or the run itself has gone.
        """
        try:
            self._wait()
        finally:
            os.close(self._fd)

    def _wait(self) -> None:
        received = b""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while COMPLETE not in received:
            ready = poll.poll(1000 * _SECONDS)
            piece = os.read(self._fd, 64) if ready else b""
            received += piece
            if (ready and not piece) or os.getppid() != self._parent:
                raise TruncatedError(
                    "the run ended before all of its processes had ended well",
                    hint="The losses may be incomplete, so no output is written",
                    source=str(self._path),
                )
