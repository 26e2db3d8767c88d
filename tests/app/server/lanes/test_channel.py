"""Messages between processes, and the sockets that go with them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from app.server.lanes.channel import GIVE, GONE, MOVE, ROUTES, Message, make_pair, receive, send
from tests.app.server.lanes.fakes import few_descriptors
from tests.descriptors import nothing_left_open


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a channel; nothing else may be left open."""
    with nothing_left_open():
        one, other = make_pair()
        with one, other:
            yield one, other


@contextlib.contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    with client, server:
        client.settimeout(5)
        yield client, server


def got(end: socket.socket) -> Message:
    message = receive(end)
    assert message is not None
    return message


def test_messages_arrive_as_they_were_and_in_order(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one, other = ends
    messages = [
        Message(GONE, peer="2001:db8::1"),
        Message(MOVE, "long", "127.0.0.1", octets=b"GET / HTTP/1.1\r\n\r\n"),
        Message(GIVE, "busy", seconds=1.25),
        Message(ROUTES, octets=bytes(range(256)) * 1000),
    ]
    for message in messages:
        send(one, message)
    assert [got(other) for _ in messages] == messages
    with pytest.raises(BlockingIOError):
        receive(other)


@pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, 300_000, 5_000_000])
def test_a_connection_arrives_with_whatever_was_read_of_it(
    ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    one, other = ends
    octets = os.urandom(size)
    with connection() as (client, server):
        send(one, Message(MOVE, "quick", "::1", octets=octets, sock=server))
        server.close()
        message = got(other)
        assert (message.text, message.peer, message.octets) == ("quick", "::1", octets)
        assert message.sock is not None
        with message.sock as sock:
            assert not sock.get_inheritable()
            sock.sendall(b"hello")
            assert client.recv(10) == b"hello"
        # The last handle is closed.
        assert client.recv(10) == b""


def test_a_full_channel_refuses_and_loses_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one, other = ends
    sent = 0
    with connection() as (_, server), contextlib.suppress(BlockingIOError):
        for sent in range(100_000):
            send(one, Message(GIVE, str(sent), sock=server))
    assert 20 < sent < 99_999
    for number in range(sent):
        message = got(other)
        assert message.text == str(number)
        assert message.sock is not None
        message.sock.close()
    send(one, Message(GONE))
    assert got(other) == Message(GONE)


def test_the_other_side_is_gone(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    with connection() as (client, server):
        send(one, Message(GIVE, "last", sock=server))
        server.close()
        one.close()
        last = got(other)
        assert last.sock is not None
        last.sock.close()
        assert client.recv(1) == b""
    assert receive(other) is None
    with pytest.raises(BrokenPipeError):
        send(other, Message(GONE))


def test_what_was_not_read_ends_with_the_channel(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one, other = ends
    with connection() as (client, server):
        send(one, Message(GIVE, octets=bytes(100_000), sock=server))
        server.close()
        other.close()
        assert client.recv(1) == b""
    assert receive(one) is None


def test_the_last_words_of_a_side_that_did_not_read_all_arrive(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one, other = ends
    send(one, Message(GONE, peer="unread"))
    send(other, Message(GONE, peer="last"))
    other.close()
    assert got(one) == Message(GONE, peer="last")
    assert receive(one) is None


@pytest.mark.parametrize(("room", "size"), [(0, 0), (0, 300_000), (1, 300_000)])
def test_without_descriptors_a_connection_is_closed_not_lost(
    ends: tuple[socket.socket, socket.socket], room: int, size: int
) -> None:
    one, other = ends
    with connection() as (client, server):
        send(one, Message(MOVE, "long", "::1", octets=bytes(size), sock=server))
        send(one, Message(GONE, peer="next"))
        server.close()
        with few_descriptors(room):
            assert got(other) == Message(MOVE, "long", "::1")
            assert client.recv(1) == b""
            assert got(other) == Message(GONE, peer="next")


def test_without_a_descriptor_for_the_bytes_nothing_is_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one, other = ends
    with connection() as (_, server), few_descriptors(0):
        with pytest.raises(OSError, match="Too many open files"):
            send(one, Message(MOVE, octets=bytes(300_000), sock=server))
        with pytest.raises(BlockingIOError):
            receive(other)
