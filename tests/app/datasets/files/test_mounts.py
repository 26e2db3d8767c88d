"""File systems are of this machine only if the kernel lists them as a kind that is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.datasets.files.mounts import LOCAL, is_local

LINE = "{mount} 1 8:1 / {where} rw,relatime shared:1 master:2 - {kind} /dev/sda1 rw\n"


def mount_of(descriptor: int) -> int:
    info = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    return int(info.partition("mnt_id:")[2].split()[0])


@pytest.mark.parametrize(
    ("kind", "local"),
    [("ext4", True), ("tmpfs", True), ("nfs4", False), ("fuse.sshfs", False), ("9p", False)],
)
def test_the_kind_of_the_mount_decides(tmp_path: Path, kind: str, local: bool) -> None:
    table = tmp_path / "mounts"
    with table.open("w") as file:
        mount = mount_of(file.fileno())
        other = "ext4" if not local else "nfs"
        file.write(LINE.format(mount=mount * 10, where="/a", kind=other))
        file.write(LINE.format(mount=mount, where="/with\\040space", kind=kind))
        file.flush()
        assert is_local(file.fileno(), table) == local == (kind in LOCAL)


def test_what_is_unknown_is_not_local(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text("")
    with table.open() as file:
        assert not is_local(file.fileno(), table)
        assert not is_local(file.fileno(), tmp_path / "nothing")
        gone = os.dup(file.fileno())
    os.close(gone)
    assert not is_local(gone)


def test_a_pipe_is_not_local() -> None:
    pipe = os.pipe()
    assert not is_local(pipe[0])
    for end in pipe:
        os.close(end)
