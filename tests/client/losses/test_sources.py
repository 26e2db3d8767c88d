from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client.errors import SourceError
from app.client.losses.readers import PiecesReader
from app.client.losses.sources import BufferedSource, FileSource, Source, open_source
from app.client.losses.window import Window
from tests.descriptors import nothing_left_open

DATA = np.random.default_rng(1).bytes(3_000_000)


def read(source: Source, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join(bytes(view) for view in source.views(start, stop))


def pipe_of(data: bytes) -> int:
    read_end, write_end = os.pipe()

    def write() -> None:
        with os.fdopen(write_end, "wb") as file:
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return read_end


class ReadOnly:
    """A file that can do nothing but read."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, 1000))


def fifo_in(directory: Path) -> Path:
    path = directory / "fifo"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(DATA,), daemon=True).start()
    return path


def pieces() -> Iterator[bytes]:
    return (DATA[i : i + 70_000] for i in range(0, len(DATA), 70_000))


GIVEN: dict[str, Callable[[Path], Any]] = {
    "path": lambda directory: directory / "stream.bin",
    "text": lambda directory: str(directory / "stream.bin"),
    "bytes": lambda _: DATA,
    "view": lambda _: memoryview(DATA).cast("H"),
    "array": lambda _: np.frombuffer(DATA, "<i4"),
    "pipe": lambda _: pipe_of(DATA),
    "fifo": fifo_in,
    "file": lambda _: io.BufferedReader(io.BytesIO(DATA)),
    "raw": lambda _: io.BytesIO(DATA),
    "read": lambda _: ReadOnly(DATA),
    "pieces": lambda _: pieces(),
    "exec": lambda directory: ["cat", str(directory / "stream.bin")],
}


@pytest.fixture(params=GIVEN)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    (tmp_path / "stream.bin").write_bytes(DATA)
    given = GIVEN[request.param](tmp_path)
    opened = open_source(None, given) if request.param == "exec" else open_source(given)
    yield opened
    opened.close()
    if request.param == "pipe":
        os.close(given)


def test_everything_can_be_read_again_until_released(source: Source) -> None:
    assert source.size in {None, len(DATA)}
    filled = source.fill(1_500_000)
    assert filled.stop >= 1_500_000
    assert read(source, 0, 1_500_000) == DATA[:1_500_000]
    assert read(source, 7, 1_400_000) == DATA[7:1_400_000]
    source.release(1_300_000)
    assert read(source, 1_300_000, 1_500_000) == DATA[1_300_000:1_500_000]
    filled = source.fill(10**9)
    assert (filled.stop, filled.ended, filled.failure) == (len(DATA), True, None)
    assert read(source, 1_400_000, filled.stop) == DATA[1_400_000:]


def test_an_open_range_goes_to_the_end(source: Source) -> None:
    assert read(source) == DATA
    assert read(source, 2_999_990) == DATA[-10:]


def test_skipping(source: Source) -> None:
    source.skip(1_234_567)
    assert read(source, 1_234_567) == DATA[1_234_567:]


def test_what_is_skipped_must_be_what_it_was(source: Source) -> None:
    other = open_source(iter([DATA]))
    other.skip(1_000_000)
    source.skip(1_000_000, other.passed())
    assert source.passed() in {None, other.passed()}
    assert read(source, 1_000_000) == DATA[1_000_000:]
    again = open_source(iter([b"x" + DATA[1:]]))
    with pytest.raises(SourceError, match="first 1000000 bytes differ"):
        again.skip(1_000_000, other.passed())
    other.close()
    again.close()


def test_skipping_beyond_the_end(source: Source) -> None:
    with pytest.raises(SourceError, match="were read before"):
        source.skip(len(DATA) + 1)


def test_a_command_that_fails_says_so() -> None:
    source = open_source(None, ["sh", "-c", "printf abc; exit 3"])
    filled = source.fill(100)
    assert filled.ended
    assert filled.failure is not None
    assert filled.failure.returncode == 3
    assert read(source, 0, 3) == b"abc"
    source.close()


def test_a_command_is_ended_with_its_source() -> None:
    source = open_source(
        None, [sys.executable, "-c", "import time; print('x', flush=True); time.sleep(99)"]
    )
    source.fill(1)
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < 4


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be started"):
        open_source(None, [str(tmp_path / "none")])


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        open_source(tmp_path / "none")
    with pytest.raises(SourceError, match="directory"):
        open_source(tmp_path)
    wrong: Any
    for wrong in (None, 1.5):
        with pytest.raises(TypeError):
            open_source(wrong)
    for wrong in ("cat x", 5, []):
        with pytest.raises(TypeError, match="exec must be a list such as"):
            open_source(None, wrong)
    wrong = io.StringIO("text")
    with pytest.raises(TypeError, match="open it with 'rb'"):
        open_source(wrong)
    wrong = ["text"]
    with pytest.raises(TypeError, match="a stream is of bytes, and 'text' is none"):
        open_source(wrong).fill(5)
    with pytest.raises(TypeError):
        open_source(b"", ["true"])


def test_a_file_that_becomes_shorter(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(DATA)
    source = open_source(path)
    os.truncate(path, 100)
    with pytest.raises(SourceError, match="shorter"):
        read(source)
    source.close()


def test_a_file_that_grows_keeps_its_size(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(b"abc")
    source = open_source(path)
    with path.open("ab") as file:
        file.write(b"def")
    assert (source.size, read(source)) == (3, b"abc")
    source.close()


def test_the_identity_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(DATA)

    def identity() -> Any:  # noqa: ANN401
        source = open_source(path)
        found = source.identity()
        source.close()
        return found

    first = identity()
    assert first == identity()
    os.utime(path, ns=(1, 1))
    assert first != identity()
    os.utime(path, ns=(first["mtime_ns"], first["mtime_ns"]))
    assert first == identity()
    path.write_bytes(b"x" + DATA[1:])
    os.utime(path, ns=(first["mtime_ns"], first["mtime_ns"]))
    assert first != identity()


def test_a_descriptor_of_a_file_is_a_file_only_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(b"abcdef")
    with path.open("rb", buffering=0) as file:
        source = open_source(file.fileno())
        assert isinstance(source, FileSource)
        source.close()
        file.seek(2)
        source = open_source(file.fileno())
        assert read(source) == b"cdef"
        source.close()


def test_a_source_that_has_failed_has_no_end() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"abc"
        raise RuntimeError("boom")

    source = open_source(pieces())
    with pytest.raises(RuntimeError):
        source.fill(10)
    with pytest.raises(SourceError, match="failed before"):
        source.fill(10)
    source.close()


def test_operating_system_errors_of_iterables_are_not_the_connections() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"abc"
        raise ConnectionResetError("elsewhere")

    source = open_source(pieces())
    with pytest.raises(SourceError):
        read(source)
    source.close()


def test_waiting_for_a_pipe_can_be_interrupted() -> None:
    read_end, write_end = os.pipe()
    source = open_source(read_end)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            source.fill(10)
        except InterruptedError as e:
            caught.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(200):
        # One that comes before the wait has begun is forgotten, as the next line wants it.
        source.interrupt()
        thread.join(0.05)
        if not thread.is_alive():
            break
    assert caught
    source.interrupt()
    os.write(write_end, b"abc")
    os.close(write_end)
    assert source.fill(10).stop == 3
    source.close()
    os.close(read_end)


def test_a_pipe_that_does_not_block() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    source = open_source(read_end)

    def write() -> None:
        os.write(write_end, b"abc")
        os.close(write_end)

    threading.Timer(0.05, write).start()
    assert source.fill(10).stop == 3
    source.close()
    os.close(read_end)


def test_what_does_not_fit_into_memory_is_kept_on_disk() -> None:
    pieces = (DATA[i : i + 100_001] for i in range(0, len(DATA), 100_001))
    source = BufferedSource(PiecesReader(pieces), Window(1 << 20))
    source.fill(10**9)
    assert read(source, 0, len(DATA)) == DATA
    source.close()


def test_nothing_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(DATA)
    with nothing_left_open():
        for _ in range(5):
            for given, command in ((path, None), (None, ["cat", str(path)])):
                source = open_source(given, command)
                source.fill(100)
                source.close()
    assert subprocess.run(["true"], check=True).returncode == 0


def test_the_streams_of_partitions_are_told_to_be_a_run(tmp_path: Path) -> None:
    files: Any = [tmp_path / "P1.bin", str(tmp_path / "P2.bin")]
    for file in files:
        Path(file).touch()
    with pytest.raises(TypeError, match=r"make a run, client\.runs"):
        open_source(files)
