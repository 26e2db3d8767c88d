"""Newcomers: what they say, how long they may take, and how many they may be."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from app.server.forking import CUT
from app.server.lanes import acceptor
from app.server.lanes.acceptor import run_acceptor
from app.server.lanes.channel import (
    GIVE,
    GONE,
    PROCESS,
    ROUTES,
    TAKEN,
    Message,
    make_pair,
    receive,
    send,
)
from app.server.lanes.table import FRONT, LONG, QUICK, Table
from tests.app.server.harness import wait_until
from tests.app.server.lanes.fakes import LINES, accepting, few_descriptors


class CountingTable(Table):
    """Counts how often a line was looked at."""

    looks = 0

    def lane_of_bytes(self, octets: bytes) -> str | None:
        self.looks += 1
        return super().lane_of_bytes(octets)


def test_connections_go_where_their_first_line_says_and_nothing_of_them_is_read() -> None:
    with accepting() as place:
        lanes = {name: place.lane(name, i) for i, name in enumerate((FRONT, QUICK, LONG))}
        for name, lane in lanes.items():
            place.client(LINES[name])
            (message,) = lane.take()
            assert message == Message(GIVE, peer="127.0.0.1", sock=message.sock)
            assert message.sock is not None
            assert message.sock.recv(100) == LINES[name]
        assert place.connected == 3


def test_a_line_in_pieces_is_waited_for_and_its_time_counts() -> None:
    with accepting() as place:
        long = place.lane(LONG, 0)
        client = place.client(b"PO")
        assert long.offers() == []
        time.sleep(0.05)
        client.sendall(b"ST /lon")
        assert long.offers() == []
        client.sendall(b"g ")
        (message,) = long.take()
        assert 0.05 <= message.seconds < 5


def test_a_byte_at_a_time_costs_a_look_each_and_silence_costs_nothing() -> None:
    with accepting() as place:
        place.lane(FRONT, 0)
        place.acceptor.processes.table = table = CountingTable(())
        client = place.client()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place.turns()
        quiet = table.looks
        sent = b"GET /a/long/path/that/does/not/end"
        for octet in sent:
            client.sendall(bytes([octet]))
            place.turns(2)
        assert quiet <= table.looks <= quiet + len(sent)
        before, used = table.looks, time.process_time()
        place.turns(100)
        assert table.looks == before
        assert time.process_time() - used < 0.1


def test_the_silent_are_closed_and_the_slow_are_refused_by_the_front() -> None:
    with accepting(header_seconds=0.3) as place:
        front = place.lane(FRONT, 0)
        begun = time.monotonic()
        silent, slow = place.client(), place.client(b"GET")
        place.turns()
        assert not place.is_closed(silent)
        (message,) = front.take()
        assert (message.text, message.peer) == ("headers-too-slow", "127.0.0.1")
        assert time.monotonic() - begun >= 0.3
        place.until(lambda: place.is_closed(silent))
        assert place.connected == 1
        slow.close()


def test_the_time_of_a_head_begins_with_its_first_byte() -> None:
    with accepting(header_seconds=1.0) as place:
        front = place.lane(FRONT, 0)
        first, second = place.client(), place.client()
        place.turns()
        time.sleep(0.7)
        first.sendall(b"G")
        place.until(lambda: place.is_closed(second))
        assert front.offers() == []
        (message,) = front.take()
        assert message.text == "headers-too-slow"
        assert message.seconds >= 1.0


def test_newcomers_that_leave_are_forgotten() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        for said in (b"", b"GET /"):
            client = place.client(said)
            assert place.connected == 1
            client.close()
            place.until(lambda: place.connected == 0)
        half = place.client(b"GET /")
        place.turns()
        half.shutdown(socket.SHUT_WR)
        place.until(lambda: place.connected == 0)
        reset = place.client(b"GET /")
        place.turns()
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        reset.close()
        place.until(lambda: place.connected == 0)
        assert front.offers() == []
        # Who has said enough is answered: others find out that he has left.
        place.client(LINES[FRONT]).shutdown(socket.SHUT_WR)
        front.take()


def test_an_address_has_its_share_and_all_have_a_limit() -> None:
    with accepting(connections=4, address_connections=3) as place:
        front = place.lane(FRONT, 0)
        for _ in range(3):
            place.client()
        assert front.offers() == []
        place.client()
        assert [m.text for m in front.take()] == ["share-exceeded"]
        place.client()
        (busy,) = front.take()
        assert busy.text == "busy"
        assert place.connected == 5
        front.close(busy)
        assert place.connected == 4


def test_proxies_have_no_share() -> None:
    with accepting(connections=4, address_connections=1, proxies="127.0.0.0/8") as place:
        place.lane(FRONT, 0)
        for _ in range(4):
            place.client()
        assert place.connected == 4
        assert place.lanes[0].offers() == []


def test_the_refused_are_closed_at_once_if_they_are_many() -> None:
    with accepting(connections=1) as place:
        front = place.lane(FRONT, 0)
        place.client()
        place.turns()
        clients = [place.client() for _ in range(70)]
        refused = front.take(64)
        assert {message.text for message in refused} == {"busy"}
        assert sum(place.is_closed(client) for client in clients) == 6
        assert place.connected == 65


def test_a_connection_that_moves_a_thousand_times_counts_once() -> None:
    with accepting(connections=10, address_connections=2) as place:
        front, long = place.lane(FRONT, 0), place.lane(LONG, 1)
        place.client(LINES[FRONT])
        (message,) = front.take()
        for _ in range(500):
            front.move(message, LONG, b"POST")
            (message,) = long.take()
            assert (message.text, message.octets) == ("", b"POST")
            long.move(message, FRONT, b"GET")
            (message,) = front.take()
        assert place.connected == 1
        front.close(message)
        assert place.connected == 0


def test_without_descriptors_accepting_pauses() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        client = place.client(LINES[FRONT])
        with few_descriptors(0):
            used = time.process_time()
            place.turns(50)
            assert time.process_time() - used < 0.1
            assert place.connected == 0
        front.take()
        client.close()


def test_a_connection_that_moves_without_descriptors_is_closed_and_not_counted() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        client = place.client(LINES[FRONT])
        (message,) = front.take()
        front.move(message, LONG, b"POST")
        with few_descriptors(0):
            assert place.connected == 0
        assert place.is_closed(client)


def test_at_the_end_the_silent_are_closed_and_the_others_handed_over() -> None:
    with accepting() as place:
        front = place.lane(FRONT, 0)
        silent, half, homeless = place.client(), place.client(b"GET"), place.client(LINES[LONG])
        place.turns()
        whole = place.client()
        place.turns()
        whole.sendall(LINES[FRONT])
        place.acceptor.stop_accepting()
        assert [place.is_closed(c) for c in (silent, half, whole)] == [True, True, False]
        assert sorted(m.text for m in front.take(2)) == ["", "busy"]
        assert place.acceptor.processes.have_taken_all
        with pytest.raises(ConnectionRefusedError):
            place.client()
        homeless.close()


def test_it_obeys_its_supervisor_and_ends_a_moment_after_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceptor, "_HANDOVER_SECONDS", 0.2)
    beats: list[float] = []

    def tell() -> None:
        wait_until(lambda: bool(beats))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=tell)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, CUT)}
    with accepting() as place, contextlib.ExitStack() as ends:
        control, supervisor = map(ends.enter_context, make_pair())
        channel, lane = map(ends.enter_context, make_pair())
        with channel:
            send(supervisor, Message(PROCESS, f"{FRONT} 7", sock=channel))
        send(lane, Message(ROUTES, octets=Table(()).to_bytes()))
        place.client(LINES[LONG])
        thread.start()
        begun = time.monotonic()
        try:
            run_acceptor(place.acceptor, control, lambda: beats.append(0), 0.3)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            thread.join()
        assert 0.5 <= time.monotonic() - begun < 5
        assert not place.acceptor.processes.have_taken_all
        message = receive(lane)
        assert message is not None
        assert message.kind == GIVE
        assert message.sock is not None
        message.sock.close()
        send(lane, Message(TAKEN))
        send(lane, Message(GONE, peer="127.0.0.1"))
        lane.close()
