from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from app.client.errors import StateError
from app.client.files.outputs import FileOutput, Mark, StreamOutput, check_target, open_output


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    output = FileOutput(path)
    output.write(b"abc")
    output.settle()
    output.write(memoryview(b"wrong"))
    output.undo()
    output.write(b"def")
    output.settle()
    assert not path.exists()
    output.finish()
    assert path.read_bytes() == b"abcdef"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_where_no_file_can_be_is_told_at_once(tmp_path: Path) -> None:
    check_target(tmp_path / "a.npy", ".npy", ".raw")
    with pytest.raises(ValueError, match=r"a\.png must end in \.npy or \.raw"):
        check_target(tmp_path / "a.png", ".npy", ".raw")
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        check_target(tmp_path / "none" / "a.npy", ".npy")
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        check_target(tmp_path, ".npy")


def test_a_mark_tells_nothing_of_what_was_undone(tmp_path: Path) -> None:
    output = FileOutput(tmp_path / "out.csv")
    output.write(b"abc")
    output.settle()
    output.write(b"wrong")
    output.undo()
    assert output.mark() == Mark(3, xxh3_64_hexdigest(b"abc"))
    output.write(b"def")
    assert output.mark() == Mark(3, xxh3_64_hexdigest(b"abc"))
    output.settle()
    mark = output.mark()
    assert mark == Mark(6, xxh3_64_hexdigest(b"abcdef"))
    output.close(keep=True)
    FileOutput(tmp_path / "out.csv", mark).finish()
    assert (tmp_path / "out.csv").read_bytes() == b"abcdef"


def test_another_process_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    output = FileOutput(path)
    output.write(b"abc")
    output.settle()
    mark = output.mark()
    output.write(b"not settled")
    output.close(keep=True)
    output = FileOutput(path, mark)
    output.write(b"def")
    output.settle()
    output.finish()
    assert path.read_bytes() == b"abcdef"


def test_what_was_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    output = FileOutput(path)
    output.write(b"abc")
    output.settle()
    mark = output.mark()
    output.close(keep=True)
    partial = tmp_path / "out.csv.partial"
    for content in (b"abX", b"ab", b""):
        partial.write_bytes(content)
        with pytest.raises(StateError, match="has changed"):
            FileOutput(path, mark)
        assert partial.read_bytes() == content
    partial.write_bytes(b"abc and more")
    FileOutput(path, mark).close(keep=False)
    assert not partial.exists()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    first = FileOutput(tmp_path / "out")
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(StateError, match="another process"):
        FileOutput(tmp_path / "out")
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    first.close(keep=False)


def test_a_pipe_gets_all_bytes_or_none() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    for keep in (True, False):
        output = StreamOutput(write_end, owned=False)
        output.write(b"abc")
        output.settle()
        output.write(b"wrong")
        output.undo()
        output.write(b"def")
        output.settle()
        with pytest.raises(BlockingIOError):
            os.read(read_end, 100)
        if keep:
            output.finish()
            assert os.read(read_end, 100) == b"abcdef"
        else:
            output.close(keep=False)
    os.close(write_end)
    assert os.read(read_end, 100) == b""
    os.close(read_end)


def test_a_file_as_standard_output_is_as_before_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def fill(fd: int, data: bytes) -> None:
        os.write(fd, data[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("app.client.files.outputs.write_all", fill)
    output = StreamOutput(fd, owned=True)
    output.write(b"abc")
    output.settle()
    with pytest.raises(OSError, match="No space"):
        output.finish()
    output.close(keep=False)
    assert path.read_bytes() == b"before"


def test_a_disk_that_is_full_is_told_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_fd: int, _data: bytes) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr("app.client.files.outputs.write_all", fill)
    output = FileOutput(tmp_path / "out.csv")
    with pytest.raises(OSError, match=r"File too large: '.*/out\.csv'"):
        output.write(b"abc")
    output.close(keep=False)


def test_a_live_pipe_gets_settled_bytes_only() -> None:
    read_end, write_end = os.pipe()
    output = StreamOutput(write_end, owned=True, live=True)
    output.write(b"wrong")
    output.undo()
    output.write(b"abc")
    output.settle()
    assert os.read(read_end, 100) == b"abc"
    mark: object = output.mark()  # type: ignore[func-returns-value]
    assert mark is None
    output.write(b"def")
    output.close(keep=False)
    assert os.read(read_end, 100) == b""
    os.close(read_end)


def test_a_reader_that_has_gone() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    output = StreamOutput(write_end, owned=True)
    output.write(b"abc")
    output.settle()
    with pytest.raises(BrokenPipeError):
        output.finish()
    output.close(keep=False)


def test_what_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    output = open_output(path)
    output.write(b"abc")
    output.settle()
    output.finish()
    assert os.read(reader, 10) == b"abc"
    os.close(reader)
    standard = open_output(1)
    assert isinstance(standard, StreamOutput)
    standard.close(keep=True)
    with pytest.raises(OSError, match="No such file"):
        open_output(tmp_path / "none" / "out")
    with pytest.raises(StateError):
        open_output(tmp_path / "out", Mark(3, "0"))
