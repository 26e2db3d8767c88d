"""A proxy that breaks connections, for demonstrations.

``python cutting_proxy.py HOST:PORT BYTES --cuts N`` prints the address it listens at. It passes
bytes on to HOST:PORT and resets every connection after about BYTES bytes in either direction,
until it has cut N of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import struct

_PIECE = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing sends a reset, as a failing network would."""


class CuttingProxy:
    """Passes bytes on, and resets connections.

    Args:
        host: address of the server.
        port: port of the server.
        size: bytes in one direction after which a connection is reset.
        cuts: connections to reset; later ones are left alone.
    """

    def __init__(self, host: str, port: int, size: int, cuts: int) -> None:
        self._server = (host, port)
        self._size = size
        self._left = cuts
        self._done = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        limit = self._size if self._left > 0 else None
        directions = [(reader, up_writer), (up_reader, writer)]
        running = {asyncio.ensure_future(self._pass_on(*ends, limit)) for ends in directions}
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result() for task in done):
                break
        if running:
            self._cut(running, writer, up_writer)
        writer.close()

    def _cut(self, running: set[asyncio.Task[bool]], *writers: asyncio.StreamWriter) -> None:
        self._left -= 1
        self._done += 1
        print(f"cut {self._done}: the connection was reset", flush=True)  # noqa: T201
        for task in running:
            task.cancel()
        for writer in writers:
            _reset(writer)

    @staticmethod
    async def _pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
    ) -> bool:
        """Pass bytes on; return whether the limit was reached before the sender finished."""
        passed = 0
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(_PIECE):
                writer.write(data)
                await writer.drain()
                passed += len(data)
                if limit is not None and passed >= limit:
                    return True
            writer.write_eof()
        return False


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _run(proxy: CuttingProxy) -> None:
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"listening on http://{host}:{port}", flush=True)  # noqa: T201
    await server.serve_forever()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("size", type=int, metavar="BYTES")
    parser.add_argument("--cuts", type=int, default=3)
    args = parser.parse_args()
    host, _, port = args.server.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(CuttingProxy(host, int(port), args.size, args.cuts)))


if __name__ == "__main__":
    main()
