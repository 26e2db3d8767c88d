"""Which files lie in file systems of this machine, so that its kernel sees every writer.

A lease keeps out writers that the kernel knows. Of a network file system it knows only those
on this machine, and a file system in a process answers to nobody, so there a file can be cut
under a lease. The list names the kinds for which the kernel's word holds; of all others it is
assumed not to.
"""

from __future__ import annotations

from pathlib import Path

LOCAL = frozenset(
    (
        "bcachefs",
        "btrfs",
        "erofs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "nilfs2",
        "overlay",
        "ramfs",
        "squashfs",
        "tmpfs",
        "xfs",
        "zfs",
    )
)
"""Kinds of file systems, as the kernel names them."""
_TABLE = Path("/proc/self/mountinfo")


def is_local(descriptor: int, table: Path = _TABLE) -> bool:
    """Whether an open file lies in a file system of this machine; False if that is unknown.

    Args:
        descriptor: the open file.
        table: the mounts that this process sees.
    """
    try:
        mount = _mount(descriptor)
        for line in table.read_text("utf-8", "surrogateescape").splitlines():
            fields, _, rest = line.partition(" - ")
            if fields.split(" ", 1)[0] == mount:
                return rest.split(" ", 1)[0] in LOCAL
    except (OSError, StopIteration):
        pass
    return False


def _mount(descriptor: int) -> str:
    """Return the number of the mount through which a file was opened."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
