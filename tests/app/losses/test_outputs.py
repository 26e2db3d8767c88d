from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from app.losses.outputs import FileOutput, PipeOutput, open_output
from core.errors import InputError


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "melt.csv"
    output = open_output(target)
    output.write(b"abc")
    assert not target.exists()
    output.commit()
    assert target.read_bytes() == b"abc"
    assert list(target.parent.iterdir()) == [target]


def test_a_discarded_file_leaves_the_old_one_alone(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    target.write_bytes(b"old")
    output = open_output(target)
    output.write(b"half of the ne")
    output.discard()
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
        output.commit()
    output.discard()
    assert not list(tmp_path.iterdir())


def test_what_was_given_may_change_after_the_call(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    output = FileOutput(target)
    expected = bytearray()
    buffer = bytearray(100_000)
    for i in range(50):
        buffer[:] = bytes([i]) * len(buffer)
        output.write(memoryview(buffer)[: 1 + 2000 * i])
        expected += buffer[: 1 + 2000 * i]
    buffer[:] = bytes(len(buffer))
    output.commit()
    assert target.read_bytes() == expected


def test_a_fifo_in_place_of_the_file_is_written_to(tmp_path: Path) -> None:
    target = tmp_path / "melt.csv"
    os.mkfifo(target)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(target.read_bytes()))
    reader.start()
    output = open_output(target)
    output.write(b"abc")
    output.commit()
    reader.join()
    assert got == [b"abc"]


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
    output.commit()
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
    output = FileOutput(target)
    expected = bytearray()
    for i, size in enumerate([1, 700_000, 700_000, 5, 3 << 20, 1 << 20, 0, 9]):
        data = bytes([i]) * size
        output.write(data)
        expected += data
    output.commit()
    assert target.read_bytes() == expected


def test_large_and_small_pieces_come_in_the_order_they_were_written(tmp_path: Path) -> None:
    sizes = (3, 3 << 20, 5, (1 << 20) + 1, 1 << 20, 7)
    pieces = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    output = open_output(tmp_path / "rows")
    for piece in pieces:
        output.write(piece)
    output.commit()
    assert (tmp_path / "rows").read_bytes() == b"".join(pieces)
