"""Events of sockets reach whoever watches them, and nobody else."""

from __future__ import annotations

import os
import socket
from functools import partial

from app.server.lanes.polling import EDGE, HUNG_UP, READ, WRITE, Poll
from tests.descriptors import nothing_left_open


def test_events_are_told_until_a_socket_is_forgotten() -> None:
    with nothing_left_open():
        poll = Poll()
        ours, theirs = socket.socketpair()
        seen: list[int] = []
        with ours, theirs:
            poll.watch(ours, READ, seen.append)
            poll.wait(0)
            assert seen == []
            theirs.send(b"x")
            poll.wait(0)
            poll.wait(0)
            assert len(seen) == 2
            poll.change(ours, WRITE)
            poll.wait(0)
            assert seen[2:] == [WRITE]
            poll.change(ours, READ)
            theirs.close()
            poll.wait(0)
            assert seen[3] & HUNG_UP
            poll.forget(ours)
            poll.forget(ours)
            poll.wait(0)
            assert len(seen) == 4
        poll.close()


def test_at_an_edge_only_what_is_new_is_told() -> None:
    poll = Poll()
    ours, theirs = socket.socketpair()
    seen: list[int] = []
    with ours, theirs:
        poll.watch(ours, READ | EDGE, seen.append)
        for octet in b"ab":
            theirs.send(bytes([octet]))
            poll.wait(0)
            poll.wait(0)
        assert len(seen) == 2
        poll.forget(ours)
    poll.close()


def test_a_socket_with_the_number_of_one_that_was_closed_gets_none_of_its_events() -> None:
    poll = Poll()
    pairs = [socket.socketpair() for _ in range(2)]
    extra = socket.socketpair()
    called: list[int | str] = []

    def replace(index: int, _events: int) -> None:
        """Whoever is called first closes the other one, whose number goes to another socket."""
        called.append(index)
        other = pairs[1 - index][0]
        poll.forget(other)
        os.dup2(extra[0].fileno(), other.fileno())
        poll.watch(other, WRITE, lambda _events: called.append("new"))

    for index, (ours, theirs) in enumerate(pairs):
        poll.watch(ours, READ, partial(replace, index))
        theirs.send(b"x")
    poll.wait(0)
    assert called == [0]
    pairs[0][0].recv(1)
    poll.wait(0)
    assert called == [0, "new"]
    for sock in (*extra, *pairs[0], *pairs[1]):
        sock.close()
    poll.close()
