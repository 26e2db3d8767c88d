"""How many cores, and how much memory, there are for this process."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def count_cores(root: Path = _CGROUP, proc: Path = Path("/proc")) -> int:
    """Return the number of cores that this process may use, at least 1.

    It is the lesser of those that it may run on and what the quota of its control group, or of one
    above that, amounts to: of one and a half cores both are worth a process.

    Args:
        root: where control groups are mounted.
        proc: the proc file system.
    """
    cores = len(os.sched_getaffinity(0))
    return min([cores, *(math.ceil(quota) for quota in _quotas(root, proc))])


def count_memory(root: Path = _CGROUP, proc: Path = Path("/proc")) -> int:
    """Return the bytes of memory that this process and its like may use.

    It is the least of what the machine has and the limits of its control group, and those above.

    Args:
        root: where control groups are mounted.
        proc: the proc file system.
    """
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in _groups(root, proc, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            # "max" without a limit.
            with contextlib.suppress(OSError, ValueError):
                found.append(int((group / name).read_text()))
    return min(found)


def _quotas(root: Path, proc: Path) -> Iterator[float]:
    """The quotas of the control groups of this process, in cores."""
    for group in _groups(root, proc, "cpu"):
        with contextlib.suppress(OSError, ValueError):
            # "max 100000" without a quota.
            quota, period = (group / "cpu.max").read_text().split()
            yield int(quota) / int(period)
        with contextlib.suppress(OSError, ValueError):
            quota_us = int((group / "cpu.cfs_quota_us").read_text())
            if quota_us > 0:
                yield quota_us / int((group / "cpu.cfs_period_us").read_text())


def _groups(root: Path, proc: Path, wanted: str) -> Iterator[Path]:
    """The directories of the groups of this process, and those above them, by a controller.

    In a container the path is often that of the machine, and the group is mounted as the root.
    """
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and wanted not in controllers.split(","):
            continue
        mount = root / controllers if controllers else root
        inner = mount / path.lstrip("/")
        yield from (group for group in (inner, *inner.parents) if group.is_relative_to(mount))
