from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from app.losses.sources import CHUNK, Sources, read_file
from core.errors import InputError, StarvedError
from tests.descriptors import nothing_left_open


def drain(sources: Sources, preferred: int | None = None) -> list[bytes]:
    parts = [bytearray() for _ in sources.sources]
    while (piece := sources.read(preferred)) is not None:
        parts[piece[0]] += piece[1]
    return [bytes(part) for part in parts]


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    data = os.urandom(3 * CHUNK + 5)
    (tmp_path / "a").write_bytes(data)
    with Sources([str(tmp_path / "a")]) as sources:
        assert sources.total == len(data)
        assert drain(sources) == [data]


def test_each_input_ends_once_with_no_bytes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    with Sources([str(tmp_path / name) for name in "ab"]) as sources:
        pieces = []
        while (piece := sources.read()) is not None:
            pieces.append((piece[0], bytes(piece[1])))
    assert sorted(pieces) == [(0, b""), (0, b"a"), (1, b""), (1, b"b")]


@pytest.mark.parametrize("first", [0, 1])
def test_fifos_are_read_whichever_writer_comes_first(tmp_path: Path, first: int) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        os.mkfifo(path)
    data = [os.urandom(300_000), os.urandom(200_000)]

    def write() -> None:
        # One writer after the other: a reader that opens or reads in its own order
        # would wait for ever.
        for i in (first, 1 - first):
            paths[i].write_bytes(data[i])

    writer = threading.Thread(target=write)
    writer.start()
    with Sources([str(path) for path in paths], idle_timeout=20) as sources:
        assert sources.total is None
        assert drain(sources) == data
    writer.join()


def test_files_and_fifos_mix(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"file")
    writer = threading.Thread(target=(tmp_path / "a").write_bytes, args=(b"fifo",))
    writer.start()
    with Sources([str(tmp_path / "a"), str(tmp_path / "b")], idle_timeout=20) as sources:
        assert drain(sources) == [b"fifo", b"file"]
    writer.join()


def test_the_preferred_input_is_read_first(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(bytes(CHUNK + 1))
    with Sources([str(tmp_path / name) for name in "abc"]) as sources:
        for expected in (2, 2, 2):
            piece = sources.read(2)
            assert piece is not None
            assert piece[0] == expected
        piece = sources.read(2)
        assert piece is not None
        assert piece[0] != 2


def test_a_fifo_nobody_writes_to_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent")
    with (
        Sources([str(tmp_path / "silent")], idle_timeout=0.05) as sources,
        pytest.raises(StarvedError, match="silent"),
    ):
        sources.read()


@pytest.mark.parametrize(("name", "words"), [("absent", "No such file"), (".", "directory")])
def test_what_cannot_be_opened_is_named(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Sources([str(tmp_path / name)])
    assert caught.value.source is not None


def test_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with nothing_left_open():
        with pytest.raises(InputError):
            Sources([str(tmp_path / "a"), str(tmp_path / "absent")])
        with Sources([str(tmp_path / "a")]) as sources:
            sources.read()


def test_standard_input_is_read_once_only() -> None:
    with pytest.raises(InputError, match="only once"):
        Sources(["-", "-"])


def test_small_files(tmp_path: Path) -> None:
    (tmp_path / "q").write_bytes(b"0.5")
    assert read_file(str(tmp_path / "q")) == b"0.5"
    with pytest.raises(InputError, match="absent"):
        read_file(str(tmp_path / "absent"))


def test_an_input_that_is_held_is_not_read_until_it_is_let_go(tmp_path: Path) -> None:
    ends = []
    for name in ("a", "b"):
        os.mkfifo(tmp_path / name)
    with Sources([str(tmp_path / "a"), str(tmp_path / "b")], 0.05) as sources:
        ends = [os.open(tmp_path / name, os.O_WRONLY) for name in ("a", "b")]
        for end in ends:
            os.write(end, b"x")
        sources.hold(0, held=True)
        sources.hold(0, held=True)
        assert [sources.read()[0]] == [1]  # type: ignore[index]
        with pytest.raises(StarvedError) as raised:
            sources.read()
        assert raised.value.source == str(tmp_path / "b")
        sources.hold(0, held=False)
        piece = sources.read()
        assert piece is not None
        assert (piece[0], bytes(piece[1])) == (0, b"x")
        for end in ends:
            os.close(end)
        assert sources.read() is not None
        assert sources.read() is not None
        sources.hold(0, held=True)
        assert sources.read() is None


def test_a_file_that_is_held_is_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    with Sources([str(tmp_path / "a"), str(tmp_path / "b")]) as sources:
        sources.hold(0, held=True)
        found: list[tuple[int, bytes]] = []
        while len(found) < 2 and (piece := sources.read()) is not None:
            found.append((piece[0], bytes(piece[1])))
        assert found == [(1, b"b"), (1, b"")]
        sources.hold(0, held=False)
        piece = sources.read()
        assert piece is not None
        assert bytes(piece[1]) == b"a"
