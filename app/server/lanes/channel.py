"""Sockets that processes hand to each other.

A channel is a pair of unix sockets that keep messages apart (SOCK_SEQPACKET): one end is the
acceptor's, the other one that of a lane. A message has a kind, and may carry a connection::

    acceptor ──GIVE  connection, bytes already read, how long it has been silent──▶ lane
    acceptor ◀─TAKEN it is the lane's now: the acceptor closes its own descriptor── lane
    acceptor ◀─MOVE  connection, bytes already read, lane of its next request────── lane
    acceptor ◀─GONE  a connection from this address is closed────────────────────── lane
    acceptor ◀─ROUTES the table, first of all─────────────────────────────────────── lane
    acceptor ◀─HELD  a connection from this address that it held already──────────── lane

Messages arrive in order, so TAKEN needs no name. Bytes already read go into the message, or, if
they are many, into a memory file whose descriptor goes with it: a head and what was pipelined after
it can be longer than a message may be. Once a process is dead its channel ends, so that the other
side need not be told.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from dataclasses import dataclass

GIVE, TAKEN, MOVE, GONE, HELD, ROUTES = b"G", b"T", b"M", b"C", b"H", b"R"
PROCESS, FORK, LOADED, HELLO = b"P", b"F", b"L", b"I"
"""Between the supervisor and its processes; see :mod:`.wiring`."""

_HEAD = struct.Struct("=cd?HH")
"""Kind, seconds, whether the bytes are in a file, and sizes of the text and of the address."""
_INLINE_BYTES = 32 << 10
_MESSAGE_BYTES = _HEAD.size + 1024 + _INLINE_BYTES
_ROOM = socket.CMSG_LEN(2 * array.array("i").itemsize)
"""Size of the ancillary data of two descriptors."""
# As enumerations they cost more than a system call.
_CLOSE_ON_EXEC, _TRUNCATED = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CTRUNC)


@dataclass(slots=True)
class Message:
    """A message of a channel.

    Attributes:
        kind: one of the constants above.
        text: of GIVE, the problem code to refuse the connection with, or nothing; of MOVE, the
            lane; of PROCESS, lane and index.
        peer: of GIVE, MOVE, GONE and HELD, the address of the client, or nothing.
        seconds: of GIVE, for how long the head has been awaited.
        octets: bytes of the connection that were read already.
        sock: the connection, which whoever receives it must close. None if it was sent with one,
            but has been closed since the process had too many open files.
    """

    kind: bytes
    text: str = ""
    peer: str = ""
    seconds: float = 0.0
    octets: bytes = b""
    sock: socket.socket | None = None


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new channel."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setblocking(False)
    return pair


def send(channel: socket.socket, message: Message) -> None:
    """Send a message; the caller keeps its handle of the connection.

    Raises:
        BlockingIOError: the other side has not read enough yet.
        OSError: the other side is gone, or the process has too many open files.
    """
    text, peer = message.text.encode(), message.peer.encode()
    in_file = len(message.octets) > _INLINE_BYTES
    head = _HEAD.pack(message.kind, message.seconds, in_file, len(text), len(peer)) + text + peer
    descriptors = array.array("i", () if message.sock is None else (message.sock.fileno(),))
    if in_file:
        descriptors.append(_memory_file(message.octets))
    try:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
        channel.sendmsg([head] if in_file else [head, message.octets], rights)
    finally:
        if in_file:
            os.close(descriptors[-1])


def receive(channel: socket.socket) -> Message | None:
    """Receive a message; None once the other side is gone.

    Raises:
        BlockingIOError: there is none.
    """
    try:
        data, ancillary, flags, _ = channel.recvmsg(_MESSAGE_BYTES, _ROOM, _CLOSE_ON_EXEC)
    except ConnectionResetError:
        # Told once, if the other side has not read all; what it said before is still to come.
        return receive(channel)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if not data:
        return None
    kind, seconds, in_file, text_size, peer_size = _HEAD.unpack_from(data)
    middle = _HEAD.size + text_size
    end = middle + peer_size
    message = Message(kind, data[_HEAD.size : middle].decode(), data[middle:end].decode(), seconds)
    if flags & _TRUNCATED:
        # Some had no room, so what they are is unknown.
        for descriptor in descriptors:
            os.close(descriptor)
        return message
    message.octets = _read_all(descriptors.pop()) if in_file else data[end:]
    if descriptors:
        message.sock = socket.socket(fileno=descriptors[0])
    return message


def _memory_file(octets: bytes) -> int:
    descriptor = os.memfd_create("thalweg-head", os.MFD_CLOEXEC)
    try:
        view = memoryview(octets)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _read_all(descriptor: int) -> bytes:
    try:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
