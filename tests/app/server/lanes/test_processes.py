"""What processes are offered, what becomes of it when they die, and who waits for them."""

from __future__ import annotations

import os
import socket
from functools import partial

import pytest

from app.server.lanes.channel import GIVE, TAKEN, Message, send
from app.server.lanes.processes import EDGE, HUNG_UP, READ, WRITE, Offer, Poll
from app.server.lanes.table import FRONT, LONG, QUICK
from tests.app.server.lanes.fakes import LINES, accepting, few_descriptors
from tests.descriptors import nothing_left_open


def test_our_handle_is_open_until_a_connection_is_taken() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        client = place.client(LINES[FRONT])
        (message,) = front.offers()
        assert message.sock is not None
        message.sock.close()
        assert not place.is_closed(client)
        assert not place.acceptor.processes.have_taken_all
        front.take()
        assert place.is_closed(client)
        assert place.acceptor.processes.have_taken_all


def test_what_a_dead_process_has_not_taken_is_offered_again_with_what_was_read() -> None:
    with accepting() as place:
        front, one, other = place.lane(FRONT, 0), place.lane(LONG, 1), place.lane(LONG, 2)
        place.loads[2] = 1
        place.client(LINES[FRONT])
        (message,) = front.take()
        front.move(message, LONG, b"POST /long")
        assert len(one.offers()) == 1
        one.die()
        (message,) = other.take()
        assert message.octets == b"POST /long"
        assert place.connected == 1


def test_what_a_dead_process_has_taken_ends_with_it() -> None:
    with accepting() as place:
        one, other = place.lane(LONG, 1), place.lane(LONG, 2)
        place.loads[2] = 9
        client = place.client(LINES[LONG])
        one.take()
        one.die()
        assert place.is_closed(client)
        assert place.connected == 0
        assert other.offers() == []


def test_the_last_words_of_a_process_count() -> None:
    with accepting() as place:
        front, long = place.lane(FRONT, 0), place.lane(LONG, 1)
        clients = [place.client(LINES[LONG]) for _ in range(3)]
        moved, closed, _ = long.take(3)
        long.move(moved, FRONT, b"GET")
        long.close(closed)
        last = place.client(LINES[LONG])
        assert len(long.offers()) == 1
        send(long.channel, Message(TAKEN))
        long.die()
        (message,) = front.take()
        assert message.octets == b"GET"
        assert place.connected == 1
        assert [place.is_closed(c) for c in (*clients, last)].count(False) == 1


def test_the_least_loaded_process_of_a_lane_gets_a_connection() -> None:
    with accepting() as place:
        lanes = [place.lane(LONG, 1), place.lane(LONG, 2)]
        place.lane(QUICK, 3)
        place.loads |= {1: 1, 3: 0}
        place.client(LINES[LONG])
        lanes[1].take()
        place.loads[2] = 2
        # What is offered counts as load before it is taken.
        for _ in range(3):
            place.client(LINES[LONG])
        assert [len(lane.take(count)) for lane, count in zip(lanes, (2, 1), strict=True)] == [2, 1]


def test_a_process_that_is_being_started_is_offered_nothing_until_it_is_ready() -> None:
    with accepting() as place:
        ready, starting = place.lane(LONG, 1), place.lane(LONG, 2, ready=False)
        alone = place.lane(QUICK, 3, ready=False)
        place.loads[1] = 5
        place.client(LINES[LONG])
        waiting = place.client(LINES[QUICK])
        ready.take()
        assert starting.offers() == alone.offers() == []
        alone.begin()
        alone.take()
        assert not place.is_closed(waiting)
        starting.begin()
        place.client(LINES[LONG])
        starting.take()


def test_connections_wait_for_a_lane_that_is_down_and_others_do_not_notice() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        waiting = [place.client(LINES[LONG]) for _ in range(3)]
        place.client(LINES[FRONT])
        front.take()
        assert not any(place.is_closed(client) for client in waiting)
        place.lane(LONG, 1).take(3)
        assert place.connected == 4


def test_while_kernels_are_compiled_nobody_waits_for_a_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.server.lanes.acceptor._TICK_SECONDS", 0)
    with accepting() as place:
        front = place.lane(FRONT, 0)
        place.client(LINES[LONG])
        assert front.offers() == []
        place.acceptor.processes.starting = lambda: True
        place.client(LINES[QUICK])
        assert [message.text for message in front.take(2)] == ["starting", "starting"]
        front.die()
        # The front does not need them: it is back in a moment.
        place.client(LINES[FRONT])
        (message,) = place.lane(FRONT, 0).take()
        assert message.text == ""
        long = place.lane(LONG, 1)
        place.client(LINES[LONG])
        long.take()


@pytest.mark.parametrize("hangs", [False, True])
def test_those_who_wait_for_a_lane_leave_room_for_others(hangs: bool) -> None:
    with accepting(connections=600) as place:
        front = place.lane(FRONT, 0)
        long = place.lane(LONG, 1) if hangs else None
        for _ in range(160):
            place.client(LINES[LONG])
        refused = front.take(10)
        assert {message.text for message in refused} == {"busy"}
        for message in refused:
            front.close(message)
        assert place.connected == 150
        place.client(LINES[FRONT])
        (message,) = front.take()
        assert message.text == ""
        (long or place.lane(LONG, 1)).take(150)


def test_a_front_that_is_down_has_connections_closed_if_they_are_too_many() -> None:
    with accepting(connections=400) as place:
        clients = [place.client(LINES[FRONT]) for _ in range(130)]
        assert sum(place.is_closed(client) for client in clients) == 2
        assert place.connected == 128
        place.lane(FRONT, 0).take(128)


def test_more_than_a_channel_holds_waits_for_room() -> None:
    with accepting(connections=2000) as place:
        long = place.lane(LONG, 1)
        client = place.client()
        for _ in range(400):
            place.acceptor.connected.add(None)
            offer = Offer(Message(GIVE, sock=client.dup()), None)
            place.acceptor.processes.give(LONG, offer)
        assert len(long.take(400)) == 400


def test_what_could_not_be_sent_for_want_of_descriptors_is_sent_later() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        place.client(LINES[FRONT])
        (message,) = front.take()
        front.move(message, LONG, bytes(100_000))
        place.turns()
        with few_descriptors(2):
            long = place.lane(LONG, 1)
        with few_descriptors(0):
            assert long.offers() == []
        (message,) = long.take()
        assert len(message.octets) == 100_000


def test_a_process_with_a_new_channel_keeps_what_it_has() -> None:
    with accepting() as place:
        old = place.lane(LONG, 1)
        client, late = place.client(LINES[LONG]), None
        (held,) = old.take()
        late = place.client(LINES[LONG])
        assert len(old.offers()) == 1
        new = place.lane(LONG, 1)
        new.hold("127.0.0.1")
        # It has the old one still: what it was offered there may be taken there.
        assert new.offers() == []
        old.taken.clear()
        new.taken.append(held)
        old.die()
        new.take()
        assert place.connected == 2
        assert not place.is_closed(client)
        assert not place.is_closed(late)


def test_a_new_acceptor_counts_what_lanes_hold() -> None:
    with accepting(connections=3) as place:
        long, front = place.lane(LONG, 1), place.lane(FRONT, 0)
        for peer in ("::1", "::1", "10.0.0.1"):
            long.hold(peer)
        assert place.connected == 3
        place.client(LINES[LONG])
        assert front.take()[0].text == "busy"
        long.close(Message(b"", peer="::1"))
        long.close(Message(b"", peer="10.0.0.1"))
        assert place.connected == 2
        long.die()
        assert place.connected == 1


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
