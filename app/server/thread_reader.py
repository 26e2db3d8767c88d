"""Reading a body in the thread that parses it.

Bytes that the event loop reads have to be handed to a thread. That costs about as much as
parsing a few hundred kilobytes: two trips through the loop, two threads to be woken, and a
buffer that is in the cache of the wrong core. So once a body comes fast, the thread reads the
socket itself, as long as bytes are there, and the loop only waits for more:

    event loop   | wait, read |            | wait, read |
    thread                    | parse, read, parse, read, parse ... nothing there |

The loop does not read meanwhile, as nobody waits in ``read_into``, so the bytes are in order.
Whatever is not plain bytes (the end of the body or of the connection, a fault) the thread leaves
to the loop, which finds it in the same place. The reader has a handle of the socket of its own,
which must be closed: the connection lives as long as any of its handles does.
"""

from __future__ import annotations

import socket
from typing import Protocol


class Body(Protocol):
    """What a reader needs of the body."""

    @property
    def readable(self) -> bool:
        """Whether the next bytes of the body are those of the socket."""

    def room(self, view: memoryview) -> memoryview:
        """Return the part of a view to read into."""

    def account(self, view: memoryview, size: int) -> int:
        """Account for ``size`` raw bytes in the view; return the number of payload bytes."""


class ThreadReader:
    """Reads a body in a thread, while no ``read_into`` waits.

    Args:
        body: the body.
        sock: a handle of its socket, closed by ``close``.
    """

    def __init__(self, body: Body, sock: socket.socket) -> None:
        self._body = body
        self._socket = sock
        sock.setblocking(False)

    def read(self, view: memoryview) -> int:
        """Read what has arrived into a view of at least one byte.

        Returns:
            Number of bytes; 0 if there are none now, or the event loop has to go on.
        """
        while self._body.readable:
            try:
                size = self._socket.recv_into(self._body.room(view))
            except OSError:
                # Nothing is there, or the connection is broken, which the transport will notice.
                return 0
            if not size:
                return 0
            payload = self._body.account(view, size)
            if payload:
                return payload
        return 0

    def close(self) -> None:
        """Close the handle; no thread may be reading."""
        self._socket.close()
