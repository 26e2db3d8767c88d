"""A network between one node and a server, which can be lost: in silence, or by refusing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

HOST = "127.0.0.1"


class Wire:
    """Passes connections on to a server, as long as it is whole.

    Args:
        reach: opens a connection to the server.

    Attributes:
        port: where it is reached, on loopback.
    """

    def __init__(self, reach: Callable[[], socket.socket]) -> None:
        self._reach = reach
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        self._closed = False
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def lose(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._whole.clear()

    def mend(self) -> None:
        """Pass on what was lost, as what is sent again would, and whatever comes."""
        self._whole.set()

    def cut(self) -> None:
        """Reset all connections; new ones are passed on."""
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._whole.wait()
        with contextlib.suppress(OSError), client, self._reach() as server:
            self._sockets |= {client, server}
            back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
            back.start()
            self._pump(client, server)
            back.join()
            self._sockets -= {client, server}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                self._whole.wait()
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Cut all connections, and take no more."""
        self.mend()
        # A thread that accepts is woken.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join()


@contextlib.contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    """Provide a wire to a port of this machine."""
    with contextlib.closing(Wire(lambda: socket.create_connection((HOST, port)))) as wire:
        yield wire


@contextlib.contextmanager
def wire_to_socket(path: str) -> Iterator[Wire]:
    """Provide a wire to a socket in the file system."""

    def reach() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    with contextlib.closing(Wire(reach)) as wire:
        yield wire
