"""A process's side: what it takes, gives away and tells, also to an acceptor that is new."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from app.server.lanes import lane as lanes
from app.server.lanes.channel import (
    GIVE,
    GONE,
    HELD,
    MOVE,
    ROUTES,
    TAKEN,
    Message,
    make_pair,
    receive,
    send,
)
from app.server.lanes.lane import Lane
from app.server.lanes.table import FRONT, LONG, QUICK
from tests.app.server.lanes.fakes import TABLE, few_descriptors
from tests.descriptors import nothing_left_open


class Ends:
    """A lane, and the acceptors that it has had."""

    def __init__(self) -> None:
        self.adopted: list[Message] = []
        self.lane = Lane(FRONT, TABLE, asyncio.get_running_loop(), self.adopted.append)
        self.open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        ours, theirs = make_pair()
        self.open.append(ours)
        self.lane.connect(theirs)
        return ours

    def make_socket(self) -> socket.socket:
        """One end of a connection; of the other one its client takes care."""
        client, server = socket.socketpair()
        self.open.append(client)
        client.setblocking(False)
        return server

    async def give(self, channel: socket.socket, peer: str = "::1") -> None:
        with self.make_socket() as server:
            send(channel, Message(GIVE, peer=peer, sock=server))
        await turns()

    def move(self, octets: bytes, lane: str, peer: str | None) -> None:
        with self.make_socket() as server:
            self.lane.move(server, octets, lane, peer)

    def close(self) -> None:
        self.lane.end()
        for message in self.adopted:
            assert message.sock is not None
            message.sock.close()
        for end in self.open:
            end.close()


def said(channel: socket.socket) -> list[Message]:
    """Everything that the lane has told; connections are closed."""
    found: list[Message] = []
    try:
        while message := receive(channel):
            found.append(message)
            if message.sock is not None:
                message.sock.close()
    except BlockingIOError:
        pass
    return found


def kinds(channel: socket.socket) -> bytes:
    return b"".join(message.kind for message in said(channel))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    with nothing_left_open():
        made = Ends()
        try:
            yield made
        finally:
            made.close()


def run(test: Callable[[Ends], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ends() as made:
            await test(made)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_it_tells_the_routes_first_then_takes_and_tells_what_is_gone() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        (routes,) = said(acceptor)
        assert (routes.kind, routes.octets) == (ROUTES, TABLE.to_bytes())
        await made.give(acceptor, "10.0.0.1")
        assert [message.peer for message in made.adopted] == ["10.0.0.1"]
        made.lane.note_gone("10.0.0.1")
        made.move(b"GET", LONG, None)
        assert said(acceptor)[:2] == [Message(TAKEN), Message(GONE, peer="10.0.0.1")]

    run(test)


def test_requests_of_other_lanes_are_known() -> None:
    async def test(made: Ends) -> None:
        assert made.lane.elsewhere("GET", "/quick") == QUICK
        assert made.lane.elsewhere("POST", "/long") == LONG
        assert made.lane.elsewhere("GET", "/") is None

    run(test)


def test_what_moves_goes_with_what_was_read_and_is_held_no_more() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        await made.give(acceptor)
        said(acceptor)
        octets = bytes(300_000)
        made.move(octets, LONG, "::1")
        (moved,) = said(acceptor)
        assert (moved.kind, moved.text, moved.peer, moved.octets) == (MOVE, LONG, "::1", octets)
        acceptor.close()
        await turns()
        assert kinds(made.connect()) == ROUTES

    run(test)


def test_nothing_is_touched_before_it_is_said_to_be_taken() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        for _ in range(2000):
            # More than the channel has room for.
            made.lane.note_gone(None)
        await made.give(acceptor)
        assert made.adopted == []
        told = b""
        while not told.endswith(TAKEN):
            told += kinds(acceptor)
            await turns()
        assert told == ROUTES + 2000 * GONE + TAKEN
        assert len(made.adopted) == 1

    run(test)


def test_what_an_acceptor_that_ended_has_offered_is_taken() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        for _ in range(3):
            with made.make_socket() as server:
                send(acceptor, Message(GIVE, peer="::1", sock=server))
        acceptor.close()
        await turns()
        assert len(made.adopted) == 3
        assert not made.lane.is_connected
        # Nobody is told, but the next one is.
        assert kinds(made.connect()) == ROUTES + 3 * HELD

    run(test)


def test_a_new_acceptor_is_told_what_is_held_and_given_what_the_old_one_was_not_sent() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        for peer in ("::1", "::2", "::3"):
            await made.give(acceptor, peer)
        acceptor.close()
        await turns()
        made.move(b"POST", LONG, "::1")
        made.lane.note_gone("::2")
        messages = said(made.connect())
        assert b"".join(m.kind for m in messages) == ROUTES + HELD + HELD + MOVE
        assert sorted(m.peer for m in messages if m.kind == HELD) == ["::1", "::3"]
        assert (messages[-1].peer, messages[-1].octets) == ("::1", b"POST")

    run(test)


def test_a_second_channel_of_one_acceptor_replaces_the_first() -> None:
    """What was offered on the first and not taken, the acceptor offers again."""

    async def test(made: Ends) -> None:
        first = made.connect()
        await made.give(first)
        second = made.connect()
        assert kinds(second) == ROUTES + HELD
        assert kinds(first) == ROUTES + TAKEN
        assert receive(first) is None
        await made.give(second)
        assert len(made.adopted) == 2

    run(test)


def test_a_connection_for_which_there_is_no_descriptor_is_gone() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        said(acceptor)
        with made.make_socket() as server:
            send(acceptor, Message(GIVE, peer="::1", sock=server))
        with few_descriptors(0):
            await turns()
        assert made.adopted == []
        assert kinds(acceptor) == TAKEN + GONE
        assert made.open[-1].recv(1) == b""

    run(test)


def test_what_could_not_be_sent_is_sent_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_RETRY_SECONDS", 0.01)
    faults = [errno.ETOOMANYREFS, errno.ENOMEM]

    def send_later(channel: socket.socket, message: Message) -> None:
        if faults:
            raise OSError(faults.pop(), "not now")
        send(channel, message)

    async def test(made: Ends) -> None:
        acceptor = made.connect()
        await made.give(acceptor)
        said(acceptor)
        monkeypatch.setattr(lanes, "send", send_later)
        made.move(b"POST", LONG, "::1")
        made.lane.note_gone(None)
        assert said(acceptor) == []
        assert made.lane.is_connected
        await asyncio.sleep(0.1)
        assert kinds(acceptor) == MOVE + GONE

    run(test)


def test_without_a_descriptor_a_connection_stays_where_it_is() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        await made.give(acceptor)
        said(acceptor)
        with made.make_socket() as server, few_descriptors(0):
            with pytest.raises(OSError, match="Too many open files"):
                made.lane.move(server, bytes(100_000), LONG, "::1")
            # It is held still.
            made.lane.note_gone("::1")
        assert kinds(acceptor) == GONE

    run(test)


def test_at_the_end_what_would_move_is_closed() -> None:
    async def test(made: Ends) -> None:
        acceptor = made.connect()
        await made.give(acceptor)
        await made.give(acceptor)
        acceptor.close()
        await turns()
        for _ in range(2):
            made.move(b"POST", LONG, "::1")
            made.lane.end()
            assert made.open[-1].recv(1) == b""

    run(test)
