"""News for a thread: something has changed, or a process has ended."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Iterable, Iterator

from app.state.notices import Listener, Notices, file_of


class News:
    """Wakes the thread that waits for it; anybody may call ``set`` and ``tell``.

    Args:
        name: of what changes.
        notices: among the processes that change it; None if this one is alone.
    """

    def __init__(self, name: str, notices: Notices | None = None) -> None:
        self._name = name
        self._notices = notices
        self._listener: Listener | None = None
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._event)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)

    def set(self) -> None:
        """Say that something has changed."""
        os.eventfd_write(self._event, 1)

    def tell(self) -> None:
        """Say in all processes that something has changed."""
        self.set()
        if self._notices is not None:
            with contextlib.suppress(OSError):
                self._notices.give(self._name)

    def listen(self) -> bool:
        """Hear what other processes tell, if the system has room for it; return whether it has."""
        if self._notices is not None:
            with contextlib.suppress(OSError):
                self._listener = self._notices.listen()
                weakref.finalize(self._listener, os.close, self._listener.file)
                self._poll.register(self._listener.file, select.POLLIN)
        return self._listener is not None

    @contextlib.contextmanager
    def watching(self, pids: Iterable[int]) -> Iterator[None]:
        """Count the end of any of these processes as news, too, until the end of the block."""
        ends = []
        try:
            for pid in pids:
                # One that is gone already, or of another namespace, is seen by looking.
                with contextlib.suppress(OSError):
                    ends.append(os.pidfd_open(pid))
                    self._poll.register(ends[-1], select.POLLIN)
            yield
        finally:
            for end in ends:
                self._poll.unregister(end)
                os.close(end)

    def wait(self, seconds: float) -> None:
        """Wait until there are news, or for some time."""
        until = time.monotonic() + seconds
        while ready := self._poll.poll(max(until - time.monotonic(), 0) * 1000):
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event)
            heard = set() if self._listener is None else self._listener.hear()
            others = self._listener is not None and [self._listener.file] == [f for f, _ in ready]
            if not others or heard is None or file_of(self._name) in heard:
                return
