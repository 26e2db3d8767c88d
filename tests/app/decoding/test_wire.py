"""Messages arrive as they were sent, or not at all."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from app.decoding import wire
from app.decoding.wire import GoneError, WireError, receive, send

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_values_and_descriptors(pair: Pair) -> None:
    ends = os.pipe()
    send(pair[0], {"a": [1, None, "ä"]}, ends)
    send(pair[0], [])
    values, descriptors = receive(pair[1], 5)
    assert values == {"a": [1, None, "ä"]}
    os.write(descriptors[1], b"through")
    assert os.read(ends[0], 100) == b"through"
    assert receive(pair[1], 5) == ([], [])
    for descriptor in (*ends, *descriptors):
        os.close(descriptor)


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8193])
def test_messages_of_any_size_in_pieces(pair: Pair, size: int) -> None:
    text = "x" * (size - 14)
    octets = b"TWD1" + (size - 12).to_bytes(4, "little") + bytes(4) + f'"{text}"'.encode()
    assert len(octets) == size

    def trickle() -> None:
        for begin, end in ((0, 5), (5, 12), (12, 100), (100, size)):
            pair[0].sendall(octets[begin:end])

    thread = threading.Thread(target=trickle)
    thread.start()
    assert receive(pair[1]) == (text, [])
    thread.join()
    pair[0].sendall(octets)
    assert receive(pair[1]) == (text, [])


def test_messages_larger_than_the_socket_takes_at_once(pair: Pair) -> None:
    values = ["x" * 1000] * 5000
    thread = threading.Thread(target=send, args=(pair[0], values))
    thread.start()
    assert receive(pair[1]) == (values, [])
    thread.join()


def test_what_does_not_fit_into_the_socket_is_sent_later(pair: Pair) -> None:
    values, waited = ["x" * 1000] * 5000, threading.Event()
    asked: list[int] = []

    def patience() -> None:
        asked.append(1)
        if len(asked) == 9:
            waited.set()

    pair[0].settimeout(0.001)
    thread = threading.Thread(target=send, args=(pair[0], values, (), patience))
    thread.start()
    assert waited.wait(10)
    assert receive(pair[1]) == (values, [])
    thread.join()


def test_patience_is_asked_before_each_wait(pair: Pair) -> None:
    asked: list[int] = []

    def patience() -> None:
        asked.append(1)
        pair[1].settimeout(0.01)
        if len(asked) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        receive(pair[1], patience=patience)


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"NOPE\2\0\0\0" + bytes(4) + b"{}", "head"),
        (b"TWD1" + (wire.MAX_BYTES + 1).to_bytes(4, "little") + bytes(4), "head"),
        (b"TWD1\2\0\0\0\1\0\0\0{}", "head"),
        (b"TWD1\2\0\0\0" + bytes(4) + b"{]", "not JSON"),
        (b"TWD1\2\0\0\0" + bytes(4) + b"{}{", "followed by more"),
    ],
)
def test_what_is_no_message(pair: Pair, octets: bytes, says: str) -> None:
    pair[0].sendall(octets)
    with pytest.raises(WireError, match=says):
        receive(pair[1])


def test_an_end_is_told(pair: Pair) -> None:
    pair[0].sendall(b"TWD1\2\0")
    pair[0].close()
    with pytest.raises(GoneError):
        receive(pair[1])
    with pytest.raises(GoneError):
        send(pair[1], {})


@pytest.mark.parametrize(
    ("octets", "error"),
    [
        (b"TWD1\2", GoneError),
        (b"TWD1\2\0\0\0\1\0\0\0{", GoneError),
        (b"TWD1\2\0\0\0\1\0\0\0{]", WireError),
    ],
    ids=["head breaks off", "body breaks off", "makes no sense"],
)
def test_descriptors_of_a_message_that_fails_are_closed(
    pair: Pair, octets: bytes, error: type[Exception]
) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    socket.send_fds(pair[0], [octets], [write])
    pair[0].close()
    os.close(write)
    with pytest.raises(error):
        receive(pair[1], 1)
    # The last writer is closed: the pipe has ended.
    assert os.read(read, 1) == b""
    os.close(read)


def test_descriptors_that_nobody_asked_for_are_closed(pair: Pair) -> None:
    read, write = os.pipe()
    send(pair[0], {}, [write])
    os.close(write)
    with pytest.raises(WireError):
        receive(pair[1], 0)
    # The last writer is closed: the pipe has ended.
    assert os.read(read, 1) == b""
    os.close(read)
