"""A service with lanes in the threads of this process, and the same without."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from starlette.requests import Request
from starlette.responses import JSONResponse

from app.server.board import Board
from app.server.drain import Drain
from app.server.lanes.acceptor import Acceptor
from app.server.lanes.channel import PROCESS, Message, make_pair, send
from app.server.lanes.table import LANES, LONG, QUICK, Rule, Table
from app.server.limits import ServerLimits
from app.server.protocol import protocol_class
from app.server.worker import DrainingServer, ServerConfig
from tests.app.server.harness import LOG, make_app, wait_until
from tests.descriptors import nothing_left_open

BODIES = ("/sum", "/echo", "/refuse", "/hold", "/interim", "/whole", "/plain")
TABLE = Table(
    [
        *(Rule(f"^{path}$", {"POST": LONG, "PUT": LONG}) for path in BODIES),
        Rule("^/flood$", {"GET": LONG}),
        Rule("^/where/quick/(?P<name>.*)$", {"GET": QUICK}),
        Rule("^/where/long/(?P<name>.*)$", {"GET": LONG}),
    ]
)


def make_lane_app(lane: str) -> Any:  # noqa: ANN401 - an application
    """The application of other tests, which also tells its lane and what it knows of a client."""
    app = make_app()

    @app.get("/where/{name:path}")
    async def _where(name: str, request: Request) -> JSONResponse:
        where = lane or TABLE.lane("GET", request.url.path)
        client = None if request.client is None else request.client.host
        return JSONResponse(
            {"lane": where, "name": name, "client": client, "scheme": request.url.scheme}
        )

    return app


class Moving:
    """A server; a process with all requests if it has one lane, else an acceptor and three.

    Attributes:
        acceptor: with lanes, the acceptor, which a thread runs.
        board: load of each lane.
    """

    def __init__(self, lanes: tuple[str, ...], limits: ServerLimits, path: Path | None) -> None:
        family = socket.AF_INET if path is None else socket.AF_UNIX
        self.listener = socket.socket(family)
        self.listener.bind(("127.0.0.1", 0) if path is None else str(path))
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.address: Any = self.listener.getsockname()
        self.board = Board(lanes or ("",))
        self.limits = limits
        self.servers: list[DrainingServer] = []
        self.threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._open: list[socket.socket] = []
        slots = self.board.workers
        self.acceptor = None if not lanes else Acceptor([self.listener], limits, self._load)
        for slot in slots:
            config = self._config(slot.lane)
            config.slot = slot
            control = self._control(slot.lane, slot.index) if lanes else None
            self.servers.append(DrainingServer(config, control))
            sockets = [] if lanes else [self.listener]
            self._run(self.servers[-1].run, sockets)
        if self.acceptor is not None:
            self._run(self._accept)
        wait_until(lambda: all(server.started for server in self.servers))

    def _load(self, index: int) -> int:
        return self.board.workers[index].running

    def _config(self, lane: str) -> ServerConfig:
        config = ServerConfig(
            make_lane_app(lane),
            http=protocol_class(self.limits),
            loop="uvloop",
            log_config=None,
            access_log=False,
            proxy_headers=True,
            forwarded_allow_ips="127.0.0.1",
            server_header=False,
            date_header=False,
        )
        config.drain = Drain()
        config.drain_seconds, config.drain_delay = 5.0, 0.0
        config.table, config.address = TABLE, "here"
        return config

    def _control(self, lane: str, index: int) -> socket.socket:
        """Connect a lane with the acceptor; return the end at which it hears of that."""
        assert self.acceptor is not None
        ours, theirs = make_pair()
        self.acceptor.processes.add(lane, index, ours)
        supervisor, control = make_pair()
        with theirs:
            send(supervisor, Message(PROCESS, sock=theirs))
        self._open += supervisor, control
        return control

    def _run(self, function: Any, *args: object) -> None:  # noqa: ANN401 - a function
        self.threads.append(threading.Thread(target=function, args=args))
        self.threads[-1].start()

    def _accept(self) -> None:
        assert self.acceptor is not None
        while not self._ended.is_set():
            self.acceptor.turn(0.02)
        self.acceptor.stop_accepting()
        for _ in range(10):
            self.acceptor.turn(0.01)
        self.acceptor.close()

    @property
    def connections(self) -> int:
        """Number that the acceptor counts."""
        assert self.acceptor is not None
        return self.acceptor.connected.count

    def quiet(self) -> bool:
        states = [server.server_state for server in self.servers]
        counted = 0 if self._ended.is_set() or self.acceptor is None else self.connections
        loads = any(slot.running for slot in self.board.workers)
        return not (counted or loads or any(s.connections or s.tasks for s in states))

    def connect(self) -> socket.socket:
        client = socket.socket(self.listener.family)
        client.settimeout(15)
        client.connect(self.address)
        return client

    def end_acceptor(self) -> None:
        self._ended.set()
        if self.acceptor is not None and len(self.threads) > len(self.servers):
            self.threads.pop().join(15)

    def drain(self) -> None:
        for server in self.servers:
            server.should_exit = True

    def stop(self) -> None:
        self.end_acceptor()
        self.drain()
        for thread in self.threads:
            thread.join(15)
            assert not thread.is_alive()
        for sock in (self.listener, *self._open):
            sock.close()


@contextlib.contextmanager
def moving(
    lanes: tuple[str, ...] = LANES, limits: ServerLimits | None = None, path: Path | None = None
) -> Iterator[Moving]:
    """A server with lanes; at its end nothing of it may be left, and no connection counted."""
    LOG.clear()
    with nothing_left_open(seconds=30):
        made = Moving(lanes, limits or ServerLimits(), path)
        try:
            yield made
            wait_until(made.quiet)
        finally:
            made.stop()


class Got(NamedTuple):
    """An answer.

    Attributes:
        status: its status.
        headers: names in lower case.
        body: all of it.
    """

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)


class Client:
    """A connection whose answers are read one by one, also if they come together."""

    def __init__(self, server: Moving) -> None:
        self.socket = server.connect()
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    @contextlib.contextmanager
    def sending(self, *requests: bytes) -> Iterator[None]:
        """Send meanwhile."""
        thread = threading.Thread(target=self.socket.sendall, args=(b"".join(requests),))
        thread.start()
        yield
        thread.join()

    def ask(self, *requests: bytes) -> Got:
        """Send requests, and return the first answer."""
        self.socket.sendall(b"".join(requests))
        return self.answer()

    def answer(self) -> Got:
        status = int(self._line().split()[1])
        headers = {}
        while line := self._line():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        if "content-length" in headers:
            return Got(status, headers, self._file.read(int(headers["content-length"])))
        body = b""
        while size := int(self._line(), 16):
            body += self._file.read(size)
            self._line()
        self._line()
        return Got(status, headers, body)

    def _line(self) -> bytes:
        line = self._file.readline()
        assert line.endswith(b"\r\n"), "the connection ended"
        return line[:-2]
