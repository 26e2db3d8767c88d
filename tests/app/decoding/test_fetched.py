"""What a worker may ask for of a file that it cannot open, and what it gets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from app.decoding import wire
from app.decoding.base import OpenHandle, Request
from app.decoding.watch import Fetched, TimeUpError, Watch
from app.errors import DataChangedError
from tests.descriptors import nothing_left_open

CONTENT = bytes(range(256)) * 400


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with nothing_left_open():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            yield ours, theirs


def request(fetch: bool = True) -> Request:
    subject = OpenHandle("key", "hdf5", {"size": len(CONTENT)})
    return Request("a.h5", subject, "list", fetch=(lambda a, b: CONTENT[a:b]) if fetch else None)


def received(channel: socket.socket) -> bytes:
    values, descriptors = wire.receive(channel, 1)
    try:
        return os.pread(descriptors[0], values["size"] + 1, 0)
    finally:
        wire.close_all(descriptors)


def test_a_worker_gets_the_bytes_it_asks_for(ends: tuple[socket.socket, socket.socket]) -> None:
    fetched, watch = Fetched(request(), ends[0]), Watch(ends[0], os.getpid(), 30, 300)
    for start, size in ((0, 10), (255, 100_000), (len(CONTENT), 0)):
        fetched.send(["key", start, size], watch)
        assert received(ends[1]) == CONTENT[start : start + size]
    assert fetched.failure is None


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (["other", 0, 1], ValueError),
        (["key", -1, 1], TypeError),
        (["key", 0, "1"], TypeError),
        (["key", 0], ValueError),
        (7, TypeError),
        (["key", 0, wire.KEEP_BYTES + 1], MemoryError),
        (["key", 1 << 64, 1], MemoryError),
    ],
)
def test_a_worker_gets_nothing_else(
    ends: tuple[socket.socket, socket.socket], wanted: object, error: type[Exception]
) -> None:
    watch = Watch(ends[0], os.getpid(), 30, 300)
    with pytest.raises(error):
        Fetched(request(), ends[0]).send(wanted, watch)
    if wanted == ["key", 0]:
        with pytest.raises(ValueError, match="key"):
            Fetched(request(fetch=False), ends[0]).send(["key", 0, 1], watch)


def test_a_worker_that_goes_round_in_circles_is_stopped(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    fetched, watch = Fetched(request(), ends[0]), Watch(ends[0], os.getpid(), 30, 300)

    def ask() -> None:
        while True:
            fetched.send(["key", 0, len(CONTENT)], watch)
            received(ends[1])

    with pytest.raises(TimeUpError, match="again and again"):
        ask()


def test_what_cannot_be_had_is_told_afterwards(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    def fetch(_start: int, _stop: int) -> bytes:
        raise DataChangedError("it changed")

    failing = Request("a.h5", OpenHandle("key", "hdf5", {"size": 10}), "list", fetch=fetch)
    fetched = Fetched(failing, ends[0])
    fetched.send(["key", 0, 10], Watch(ends[0], os.getpid(), 30, 300))
    assert received(ends[1]) == b""
    assert isinstance(fetched.failure, DataChangedError)
