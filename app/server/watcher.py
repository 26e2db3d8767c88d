"""The watcher: ends a process that takes more memory than it may, so that nobody else is ended.

Requests account for what they hold, and are refused in time. What they forget would take the
memory of the machine, and the kernel might end any process for it. So the supervisor looks at the
workers often, as the kernel counts them: pages that are theirs alone, not those of files or shared
memory. Each may have so many more than it had when it was forked.
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
        most: bytes that it may take besides those that it has.
    """

    def __init__(self, pid: int, most: int) -> None:
        # A number may be another process's by the next look; what is open stays that of this one.
        self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._most = self._look() + most

    def is_over(self) -> bool:
        """Look; return whether the process has too much."""
        return self._look() > self._most

    def _look(self) -> int:
        try:
            _, resident, shared, _ = os.pread(self._statm, 128, 0).split(b" ", 3)
        except (OSError, ValueError):
            # It has ended.
            return 0
        return (int(resident) - int(shared)) * _PAGE_BYTES

    def close(self) -> None:
        """Look no more."""
        os.close(self._statm)
