"""The watcher: ends a process that takes more memory than it may, so that nobody else is ended.

Requests account for what they hold, and are refused in time. What they forget would take the
memory of the machine, and the kernel might end any process for it. So the supervisor looks at the
workers often, as the kernel counts them: pages that are theirs alone, not those of files or shared
memory. Each may have so many more than it had when it was ready.
"""

from __future__ import annotations

import os

LOOK_SECONDS = 0.05
"""Time between two looks."""
SLACK_BYTES = 1 << 30
"""Memory of a process that is not accounted: threads, pieces of files, small and free things."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Watched:
    """A process whose memory is looked at.

    Args:
        pid: the process, which exists.
        most: bytes that it may take besides those of the first look.
    """

    def __init__(self, pid: int, most: int) -> None:
        self._most = most
        self._idle: int | None = None
        # A number may be another process's by the next look; what is open stays that of this one.
        self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)

    def is_over(self) -> bool:
        """Look; return whether the process has too much. To be called once it is ready."""
        try:
            _, resident, shared, _ = os.pread(self._statm, 128, 0).split(b" ", 3)
        except (OSError, ValueError):
            # It has ended.
            return False
        used = (int(resident) - int(shared)) * _PAGE_BYTES
        if self._idle is None:
            self._idle = used
        return used > self._idle + self._most

    def close(self) -> None:
        """Look no more."""
        os.close(self._statm)
