"""Names that are on the disk when a call returns.

A file that is renamed may, after a power failure, have its new name without its content, its
content without its name, or neither. So its content is synced before it is renamed, and the
directory after. All of it goes through ``os``, where the tests record it and replay every
crash.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})
"""Some network file systems do not sync directories, and write names through at once."""


def rename_durably(fd: int, source: Path, target: Path) -> None:
    """Give an open file another name, with its content; a file of that name is replaced.

    Raises:
        OSError: the disk is full, or failed.
    """
    os.fsync(fd)
    source.replace(target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: the disk failed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(fd)
