"""The number of cores and the memory, by what the system says of affinity, quotas and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.cores import count_cores, count_memory

V2 = "0::/pods/this"
V1 = "5:memory:/other\n4:cpu,cpuacct:/pods/this"


def lay_out(tmp_path: Path, group: str, files: Mapping[str, str]) -> None:
    """Write what the kernel says of control groups."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(group)
    for name, content in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        (V2, {}, 8),
        (V2, {"pods/this/cpu.max": "max 100000"}, 8),
        (V2, {"pods/this/cpu.max": "100000 100000"}, 1),
        (V2, {"pods/this/cpu.max": "50000 100000"}, 1),
        (V2, {"pods/this/cpu.max": "150000 100000"}, 2),
        (V2, {"pods/this/cpu.max": "3200000 100000"}, 8),
        (V2, {"pods/this/cpu.max": "max 100000", "pods/cpu.max": "200000 50000"}, 4),
        (V2, {"cpu.max": "300000 100000"}, 3),
        (V2, {"cpu.max": "nonsense"}, 8),
        (V1, {"cpu,cpuacct/pods/this/cpu.cfs_quota_us": "-1"}, 8),
        (
            V1,
            {
                "cpu,cpuacct/pods/this/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/pods/this/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        (
            V1,
            {"cpu,cpuacct/cpu.cfs_quota_us": "10000", "cpu,cpuacct/cpu.cfs_period_us": "10000"},
            1,
        ),
        ("", {}, 8),
    ],
)
def test_cores_are_the_lesser_of_affinity_and_quota(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    files: Mapping[str, str],
    cores: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    lay_out(tmp_path, group, files)
    assert count_cores(tmp_path / "cgroup", tmp_path / "proc") == cores


def test_this_machine_has_some() -> None:
    assert 1 <= count_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("group", "files", "nbytes"),
    [
        (V2, {}, 8 << 30),
        (V2, {"pods/this/memory.max": "max"}, 8 << 30),
        (V2, {"pods/this/memory.max": "1073741824", "pods/memory.max": "2147483648"}, 1 << 30),
        (V2, {"memory.max": "1073741824"}, 1 << 30),
        (V2, {"pods/this/memory.max": str(64 << 30)}, 8 << 30),
        (V1, {"memory/other/memory.limit_in_bytes": "1073741824"}, 1 << 30),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8 << 30),
        ("", {}, 8 << 30),
    ],
)
def test_memory_is_the_least_of_machine_and_limits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    files: Mapping[str, str],
    nbytes: int,
) -> None:
    pages = {"SC_PHYS_PAGES": 2 << 20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    lay_out(tmp_path, group, files)
    assert count_memory(tmp_path / "cgroup", tmp_path / "proc") == nbytes
