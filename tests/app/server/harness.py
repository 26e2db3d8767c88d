"""A server in a thread, an application that reads bodies, and clients made of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from app.server.board import Board
from app.server.body import BodyStalled, ClientDisconnected, FramingError
from app.server.drain import Drain
from app.server.limits import ServerLimits
from app.server.protocol import protocol_class
from app.server.responses import Exchange, ExchangeResponse
from tests.descriptors import nothing_left_open

MIB = 1 << 20
LOG: list[str] = []

# The first loop opens a pipe for all, which stays.
uvloop.new_event_loop().close()


def content(size: int) -> bytes:
    """Bytes without a short period."""
    block = hashlib.shake_256(b"thalweg").digest(min(size, 997 * 131))
    return (block * (size // max(len(block), 1) + 1))[:size]


def make_app() -> FastAPI:  # noqa: C901, PLR0915 - a list of endpoints
    app = FastAPI()

    @app.exception_handler(BodyStalled)
    @app.exception_handler(FramingError)
    async def _problem(_request: Request, error: Exception) -> JSONResponse:
        LOG.append(type(error).__name__)
        status = 408 if isinstance(error, BodyStalled) else 400
        return JSONResponse({"detail": str(error)}, status)

    @app.api_route("/sum", methods=["POST", "PUT"])
    async def _sum(room: int = MIB) -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            buffer = memoryview(bytearray(room))
            digest, total, calls = hashlib.sha256(), 0, 0
            try:
                while size := await exchange.body.read_into(buffer):
                    digest.update(buffer[:size])
                    total += size
                    calls += 1
            except ClientDisconnected:
                LOG.append(f"left after {total}")
                raise
            assert exchange.body.complete
            assert await exchange.body.read_into(buffer) == 0
            answer = json.dumps({"bytes": total, "sha": digest.hexdigest(), "calls": calls})
            await exchange.start(200, {"x-Own": "1"}, content_length=len(answer))
            await exchange.end(answer.encode())

        return ExchangeResponse(handler)

    @app.post("/echo")
    async def _echo() -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            queue: asyncio.Queue[bytes] = asyncio.Queue(4)

            async def read() -> None:
                buffer = memoryview(bytearray(MIB))
                while size := await exchange.body.read_into(buffer):
                    await queue.put(bytes(buffer[:size]))
                await queue.put(b"")

            async with asyncio.TaskGroup() as group:
                group.create_task(read())
                await exchange.start(200)
                while data := await queue.get():
                    await exchange.write(data)

        return ExchangeResponse(handler)

    @app.post("/refuse")
    async def _refuse(size: int = 10, read: int = 0) -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            while read and not await exchange.body.read_into(memoryview(bytearray(read))):
                pass
            await exchange.start(413)
            await exchange.end(content(size))

        return ExchangeResponse(handler)

    @app.get("/flood")
    async def _flood(size: int = 1 << 30, known: bool = False) -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            sent = 0
            try:
                await exchange.start(200, content_length=size if known else None)
                while sent < size:
                    await exchange.write(bytes(min(MIB, size - sent)))
                    sent += MIB
            except ClientDisconnected:
                LOG.append("flood ended")
                raise

        return ExchangeResponse(handler)

    @app.get("/wait")
    async def _wait() -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            await exchange.start(200)
            await exchange.write(b"x")
            await exchange.disconnected.wait()
            LOG.append("wait ended")

        return ExchangeResponse(handler)

    @app.post("/hold")
    async def _hold() -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            await exchange.body.read_into(memoryview(bytearray(10)))
            await exchange.disconnected.wait()
            LOG.append("hold ended")

        return ExchangeResponse(handler)

    @app.get("/broken")
    async def _broken(how: str) -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            await exchange.start(200)
            await exchange.write(b"row\n" * 1000)
            if how == "raise":
                raise RuntimeError("as the test wants")
            exchange.abort()
            with contextlib.suppress(ClientDisconnected):
                await exchange.write(b"never")
                LOG.append("wrote after abort")

        return ExchangeResponse(handler)

    @app.post("/interim")
    async def _interim() -> ExchangeResponse:
        async def handler(exchange: Exchange) -> None:
            done = exchange.informational(104, {"location": "/uploads/1"})
            total = 0
            while size := await exchange.body.read_into(memoryview(bytearray(100))):
                total += size
            await exchange.start(200, {"x-interim": str(done)})
            await exchange.end(str(total).encode())

        return ExchangeResponse(handler)

    @app.post("/whole")
    async def _whole(request: Request) -> JSONResponse:
        body = await request.body()
        return JSONResponse(
            {
                "body": body.decode(),
                "headers": [a.decode() for a, _ in request.scope["headers"]],
            }
        )

    @app.post("/json")
    async def _json(item: dict[str, Any]) -> dict[str, Any]:
        return item

    @app.post("/plain")
    async def _plain(request: Request) -> StreamingResponse:
        async def rows() -> Any:  # noqa: ANN401
            total = 0
            async for piece in request.stream():
                total += len(piece)
                yield b""
            yield str(total).encode()

        return StreamingResponse(rows())

    @app.get("/hello")
    async def _hello() -> dict[str, str]:
        return {"hello": "world"}

    return app


class Harness:
    """A server on a free port of loopback."""

    def __init__(
        self,
        kind: str = "ours",
        limits: ServerLimits | None = None,
        app: Any = None,  # noqa: ANN401
    ) -> None:
        _, _, loop = kind.partition("-")
        self.limits = limits or ServerLimits()
        self.factory: Callable[[], asyncio.AbstractEventLoop] = (
            asyncio.new_event_loop if loop == "asyncio" else uvloop.new_event_loop
        )
        config = uvicorn.Config(
            app or make_app(),
            http=protocol_class(self.limits),
            log_config=None,
            access_log=False,
            loop="none",
        )
        seen: Any = config
        seen.slot, seen.drain = Board().workers[0], Drain()
        self.server = uvicorn.Server(config)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        wait_until(lambda: self.server.started)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self.factory) as runner:
            runner.run(self.server.serve([self.socket]))

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(15)
        self.socket.close()
        assert not self.thread.is_alive()

    def quiet(self) -> bool:
        """Whether no connection and no task is left."""
        state = self.server.server_state
        return not state.connections and not state.tasks

    @contextlib.contextmanager
    def connect(self, receive_buffer: int = 0) -> Iterator[socket.socket]:
        with socket.socket() as client:
            if receive_buffer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            client.settimeout(15)
            client.connect(("127.0.0.1", self.port))
            yield client


@contextlib.contextmanager
def serving(
    kind: str = "ours",
    limits: ServerLimits | None = None,
    app: Any = None,  # noqa: ANN401
) -> Iterator[Harness]:
    """A server; at its end nothing of it may be left."""
    LOG.clear()
    with nothing_left_open():
        harness = Harness(kind, limits, app)
        try:
            yield harness
            wait_until(harness.quiet)
        finally:
            harness.stop()


def wait_until(true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def head(path: str, *headers: str, method: str = "POST", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: test", *headers, "", ""]).encode()


def chunked(data: bytes, size: int) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class Answer(http.client.HTTPResponse):
    """An answer read to its end; ``body`` is what came, ``whole`` whether that is all."""

    def __init__(self, client: socket.socket, method: str = "POST") -> None:
        super().__init__(client, method=method)
        with self:
            self.begin()
            self.whole = True
            try:
                self.body = self.read()
            except http.client.IncompleteRead as error:
                self.body = error.partial
                self.whole = False

    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


def rest(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data
