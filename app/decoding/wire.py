"""Messages between the service and a worker: JSON and descriptors, over a Unix socket.

A message is a head of 12 bytes (magic, length, number of descriptors), then that many bytes of
JSON. Descriptors travel with the first byte of the head. Both sides take turns: who has sent a
message sends the next one only after an answer. What follows a message at once is an error.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import orjson

MAX_BYTES = 32 << 20
"""Maximum length of a message."""
MAX_DESCRIPTORS = 240
"""Maximum number of descriptors per message; the kernel allows 253."""
KEEP_BYTES = 16 << 20
"""Longest segment of shared memory that serves further answers; both sides free longer ones."""
_USUAL = 4096
"""Bytes that most messages have at most: these are received with a single call."""
_HEAD = struct.Struct("<4sII")
_MAGIC = b"TWD1"

Patience = Callable[[], None]
"""Called before each wait; sets the socket's timeout, or raises to give up."""


class RefusedError(Exception):
    """A file cannot be decoded; not a fault of the worker.

    Attributes:
        message: what is wrong, beginning in lower case.
        hint: how to fix it, or None.
        offset: byte of the file, or None.
    """

    def __init__(self, message: str, hint: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset


class WireError(Exception):
    """The other side sent something that is no message."""


class GoneError(Exception):
    """The other side closed the connection."""


def send(
    channel: socket.socket,
    values: object,
    descriptors: Sequence[int] = (),
    patience: Patience = lambda: None,
) -> None:
    """Send a message.

    Args:
        channel: a Unix stream socket.
        values: JSON values.
        descriptors: open files, which the other side gets copies of.
        patience: called before each wait, also after a timeout of the socket.

    Raises:
        GoneError: the other side closed the connection.
    """
    body = orjson.dumps(values)
    data = memoryview(_HEAD.pack(_MAGIC, len(body), len(descriptors)) + body)
    ancillary: list[tuple[int, int, array.array[int]]] = []
    if descriptors:
        ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors)))
    while data:
        patience()
        try:
            sent = channel.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError) as e:
            raise GoneError from e
        data, ancillary = data[sent:], []


def receive(
    channel: socket.socket, max_descriptors: int = 0, patience: Patience = lambda: None
) -> tuple[Any, list[int]]:
    """Receive a message; the caller closes its descriptors.

    Args:
        channel: a Unix stream socket.
        max_descriptors: maximum number of descriptors; further ones are closed.
        patience: called before each wait, also after a timeout of the socket.

    Returns:
        The JSON values and the descriptors.

    Raises:
        WireError: the bytes are no message, or it has other descriptors than it says.
        GoneError: the other side closed the connection.
    """
    buffer = bytearray(_USUAL)
    view = memoryview(buffer)
    found = array.array("i")
    room = socket.CMSG_SPACE(max_descriptors * found.itemsize) if max_descriptors else 0
    try:
        at = _fill(channel, view, _HEAD.size, patience, (room, found))
        end = _end(buffer, at, len(found))
        if end > len(buffer):
            view = memoryview(bytearray(end))
            view[:at] = buffer[:at]
        if at < end:
            _fill(channel, view[at:end], end - at, patience, (0, found))
        return orjson.loads(view[_HEAD.size : end]), found.tolist()
    except orjson.JSONDecodeError as e:
        close_all(found)
        raise WireError("a message is not JSON") from e
    except BaseException:
        close_all(found)
        raise


def _end(buffer: bytearray, at: int, descriptors: int) -> int:
    """Return where the message ends of which a buffer holds the first ``at`` bytes."""
    magic, length, count = _HEAD.unpack_from(buffer)
    if magic != _MAGIC or length > MAX_BYTES or count != descriptors:
        raise WireError("the head of a message is invalid")
    end = _HEAD.size + int(length)
    if at > end:
        raise WireError("a message is followed by more")
    return end


def _fill(
    channel: socket.socket,
    view: memoryview,
    least: int,
    patience: Patience,
    descriptors: tuple[int, array.array[int]],
) -> int:
    """Fill a buffer with at least so many bytes from the socket; return how many it has.

    Args:
        channel: the socket.
        view: the buffer.
        least: number of bytes to wait for.
        patience: called before each wait.
        descriptors: room for descriptors in bytes, and where to add those that come.
    """
    at = 0
    while at < least:
        patience()
        try:  # noqa: SIM105 - half the time of suppress
            at += _take(channel, view[at:], *descriptors)
        except TimeoutError:
            pass
    return at


def _take(channel: socket.socket, view: memoryview, room: int, found: array.array[int]) -> int:
    """Receive some bytes and append the descriptors that came with them; return the count."""
    try:
        count, ancillary, _, _ = channel.recvmsg_into([view], room)
    except ConnectionResetError as e:
        raise GoneError from e
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    if not count:
        raise GoneError
    return count


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors, whatever their state."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
