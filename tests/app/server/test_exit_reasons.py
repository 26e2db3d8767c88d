"""Why a process ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.server.exit_reasons import count_memory_kills, describe_end


@pytest.mark.parametrize(
    ("code", "out_of_memory", "reason", "hint"),
    [
        (0, False, "exit 0", None),
        (3, True, "exit 3", None),
        (-9, False, "SIGKILL", "somebody sent it"),
        (-9, True, "SIGKILL", "lack of memory"),
        (-7, False, "SIGBUS", "mapped file"),
        (-11, True, "SIGSEGV", "native code"),
        (-15, False, "SIGTERM", None),
        (-99, False, "signal 99", None),
    ],
)
def test_an_end_has_a_name_and_a_hint(
    code: int, out_of_memory: bool, reason: str, hint: str | None
) -> None:
    end = describe_end(code, out_of_memory=out_of_memory)
    assert end.reason == reason
    assert (end.hint is None) == (hint is None)
    assert (hint or "") in (end.hint or "")


def test_kills_for_memory_are_counted_where_the_kernel_tells_them(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    assert count_memory_kills(root, proc) == 0
    (proc / "self").mkdir(parents=True)
    (proc / "vmstat").write_text("pgfault 7\noom_kill 2\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "memory.events").write_text("oom 9\noom_kill 3\noom_group_kill 0\n")
    assert count_memory_kills(root, proc) == 5
    (root / "memory").mkdir()
    (root / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 1\n")
    assert count_memory_kills(root, proc) == 6
    (proc / "vmstat").write_text("oom_kill many\n")
    assert count_memory_kills(root, proc) == 4
