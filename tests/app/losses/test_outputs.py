from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.losses import pipes
from app.losses.outputs import FileOutput, Outputs, check_free
from app.losses.pipes import PipeOutput
from core.errors import InputError, OptionError


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "melt.csv"
    with Outputs() as opened:
        opened.open(target).write(b"abc")
        assert not target.exists()
    assert target.read_bytes() == b"abc"
    assert list(target.parent.iterdir()) == [target]


def test_a_discarded_file_leaves_the_old_one_alone(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    target.write_bytes(b"old")
    opened = Outputs()
    opened.open(target).write(b"half of the ne")
    opened.discard()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=r"file/melt\.csv"):
        FileOutput(tmp_path / "file" / "melt.csv")


def test_a_full_disk_is_an_error_not_a_short_file(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    output = FileOutput(target)
    os.dup2(os.open("/dev/full", os.O_WRONLY), output._fd)
    output.write(b"x")
    with pytest.raises(InputError, match="No space"):
        output.save()
    output.discard()
    assert not list(tmp_path.iterdir())


def test_what_was_given_may_change_after_the_call(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    opened = Outputs()
    output = opened.open(target)
    expected = bytearray()
    buffer = bytearray(100_000)
    for i in range(50):
        buffer[:] = bytes([i]) * len(buffer)
        output.write(memoryview(buffer)[: 1 + 2000 * i])
        expected += buffer[: 1 + 2000 * i]
    buffer[:] = bytes(len(buffer))
    opened.commit()
    assert target.read_bytes() == expected


def _read(fifo: Path) -> tuple[threading.Thread, list[bytes]]:
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    return reader, got


@pytest.mark.parametrize("live", [False, True])
def test_a_fifo_in_place_of_the_file_is_written_to(tmp_path: Path, *, live: bool) -> None:
    target = tmp_path / "melt.csv"
    reader, got = _read(target)
    with Outputs(live=live) as opened:
        opened.open(target).write(b"abc")
    reader.join()
    assert got == [b"abc"]


@pytest.mark.parametrize(("live", "expected"), [(False, b""), (True, b"half")])
def test_what_fails_leaves_nothing_in_a_pipe_that_is_not_live(
    tmp_path: Path, *, live: bool, expected: bytes
) -> None:
    reader, got = _read(tmp_path / "fifo")
    opened = Outputs(live=live)
    opened.open(tmp_path / "fifo").write(b"half")
    opened.discard()
    reader.join()
    assert got == [expected]


def test_what_waits_is_in_memory_while_it_is_small_then_in_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "SPOOL_MEMORY", 1000)
    folder = tmp_path / "temporary"
    folder.mkdir()
    reader, got = _read(tmp_path / "fifo")
    pieces = [bytes([i]) * 700 for i in range(5)]
    with Outputs(folder=folder) as opened:
        output = opened.open(tmp_path / "fifo")
        for piece in pieces:
            output.write(piece)
        assert list(folder.iterdir()) == []
    reader.join()
    assert got == [b"".join(pieces)]


def test_a_full_disk_takes_all_outputs_back(tmp_path: Path) -> None:
    """Whichever is the last to find no room, at the last write or when it gets its name."""
    for broken in (0, 1, 2):
        for call in ("save", "publish"):
            opened = Outputs()
            files = [opened.open(tmp_path / f"{i}.csv") for i in range(3)]
            setattr(files[broken], call, _full)
            with pytest.raises(InputError, match="No space"), opened:
                files[0].write(b"abc")
            assert list(tmp_path.iterdir()) == []


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    opened = Outputs()
    for name in ("a.csv", "b.csv"):
        opened.open(tmp_path / name)
    with pytest.raises(OptionError, match=r"two outputs have the name .*/link/a.csv"), opened:
        opened.open(tmp_path / "link" / "a.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def _full() -> None:
    raise InputError("cannot be written: No space left on device")


def test_files_wait_for_a_pipe_that_cannot_take_its_bytes(tmp_path: Path) -> None:
    opened = Outputs()
    opened.open(tmp_path / "melt.csv")
    full = opened.open("/dev/full")
    with pytest.raises(InputError, match="/dev/full: cannot be written"), opened:
        full.write(b"abc")
    assert list(tmp_path.iterdir()) == []


def test_a_file_as_standard_output_takes_all_or_is_as_before(tmp_path: Path) -> None:
    code = """
import os, resource, sys
from app.losses.outputs import Outputs
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
with Outputs() as outputs:
    outputs.open("-").write(bytes(int(sys.argv[1])))
os.fstat(1)  # others may write to it, too
"""
    target = tmp_path / "all.csv"
    for size, left in ((1000, 1000), (3_000_000, 1000), (1000, 2000)):
        with target.open("ab") as file:
            done = subprocess.run(
                [sys.executable, "-c", code, str(size)], stdout=file, stderr=-1, check=False
            )
        assert (done.returncode == 0) is (size == 1000)
        assert target.stat().st_size == left


def test_a_link_stays_one_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_bytes(b"old")
    with Outputs() as opened:
        opened.open(tmp_path / "link").write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_fifo_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (
        pytest.raises(InputError, match="fifo: nobody has read it for"),
        Outputs(reader_seconds=0) as opened,
    ):
        opened.open(tmp_path / "fifo")


def test_a_pipe_that_does_not_block_loses_nothing() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    data = os.urandom(1 << 20)
    got = bytearray()

    def read() -> None:
        while piece := os.read(read_end, 5000):
            got.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    output = PipeOutput(write_end, owned=True)
    output.write(data)
    output.close()
    reader.join()
    os.close(read_end)
    assert got == data


def test_a_reader_that_has_gone_is_noticed() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    output = PipeOutput(write_end, owned=True)
    with pytest.raises(BrokenPipeError):
        output.write(b"x")
    output.discard()


def test_many_small_and_large_writes_arrive_in_order(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    opened = Outputs()
    output = opened.open(target)
    expected = bytearray()
    for i, size in enumerate([1, 700_000, 700_000, 5, 3 << 20, 1 << 20, 0, 9]):
        data = bytes([i]) * size
        output.write(data)
        expected += data
    opened.commit()
    assert target.read_bytes() == expected


def test_large_and_small_pieces_come_in_the_order_they_were_written(tmp_path: Path) -> None:
    sizes = (3, 3 << 20, 5, (1 << 20) + 1, 1 << 20, 7)
    pieces = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    with Outputs() as opened:
        output = opened.open(tmp_path / "rows")
        for piece in pieces:
            output.write(piece)
    assert (tmp_path / "rows").read_bytes() == b"".join(pieces)


def test_files_that_are_there_are_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    paths = [tmp_path / "folder", tmp_path / "new.csv", tmp_path / "old.csv"]
    check_free(paths[:2], force=False)
    check_free(paths, force=True)
    with pytest.raises(OptionError, match=r"old\.csv exists"):
        check_free(paths, force=False)
