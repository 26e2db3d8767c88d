"""The service as users run it, in a process of its own; and a client made of a socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import os
import secrets
import socket
import struct
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from app.command.main import main
from tests.server_process import HOST, ServerProcess

KEY = f"7:sign:{secrets.token_hex(32)}"
"""Signs the tokens of most servers here: each goes on where another one stopped."""


def serve_observed(arguments: Sequence[str]) -> int:
    """Run the command, with a thread in each process that tells what is alive when asked."""
    # In the processes, which are forked.
    os.register_at_fork(
        after_in_child=lambda: threading.Thread(target=_answer, daemon=True).start()
    )
    return main(arguments)


def _answer() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_questions(os.getpid()))
        listener.listen()
        while True:
            with listener.accept()[0] as asker:
                asker.sendall(_describe_alive())


def _questions(pid: int) -> str:
    """Address at which a process is asked."""
    return f"\0thalweg-observed-{pid}"


def _describe_alive() -> bytes:
    # What is looked at here must not be kept alive by it.
    gc.collect()
    objects = gc.get_objects()
    tasks = [o for o in objects if isinstance(o, asyncio.Task) and not o.done()]
    ours = [type(o).__qualname__ for o in objects if str(type(o).__module__).startswith("app.")]
    alive = {
        "tasks": sorted(getattr(t.get_coro(), "__qualname__", "?") for t in tasks),
        "objects": Counter(ours),
        "total": len(objects),
        "pooled": sum(thread.name.startswith("uvloop_") for thread in threading.enumerate()),
    }
    return json.dumps(alive).encode()


class Alive(NamedTuple):
    """What is alive in a server.

    Attributes:
        tasks: unfinished tasks of the event loop, by their coroutines' names.
        objects: how many there are of the service's own classes.
        total: how many there are of all classes, as far as the collector knows them.
        pooled: how many threads the event loop has in its pool, which grows to a few and stays.
    """

    tasks: list[str]
    objects: Counter[str]
    total: int
    pooled: int


class Service(ServerProcess):
    beside: Sequence[int] = ()
    """Processes on other machines, as it were, that work for it."""

    """A server, and requests to it."""

    def connect(self, **how: Any) -> Connection:  # noqa: ANN401 - arguments passed on
        return Connection(self.port, **how)

    def get(self, path: str) -> Answer:
        with self.connect() as connection:
            return connection.request("GET", path)

    def post(self, target: str, body: bytes, *headers: str) -> Answer:
        with self.connect() as connection:
            return connection.request("POST", target, body, *headers)

    def holder_of(self, remote: int, but: int = 0) -> int:
        """Pid of the process that has a socket of ours, by the port of its peer; 0 if none has."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ends = [f":{port:04X}" for port in (self.port, remote)]
        inodes = {x[9] for x in lines if x[1].endswith(ends[0]) and x[2].endswith(ends[1])} - {"0"}
        for pid in set(self.worker_pids()) - {but}:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for entry in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        if str(entry.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                            return pid
        return 0

    def acceptor(self) -> int:
        """Pid of the process that listens."""
        return self.holder_of(0)

    def lane_of(self, connection: Connection) -> int:
        """Pid of the process that serves a connection; 0 if it has died."""
        # The acceptor may have it too, until it has heard that it is taken.
        return self.holder_of(connection.port, self.acceptor())

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels, as the page has them."""
        lines = self.get("/metrics").body.decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


class ObservedService(Service):
    """A server that tells what is alive in it."""

    command = staticmethod(serve_observed)

    def alive(self) -> Alive:
        """What is alive in all processes together."""
        each = [Alive(**_ask(pid)) for pid in self.worker_pids()]
        tasks = sorted(task for alive in each for task in alive.tasks)
        objects = sum((Counter(alive.objects) for alive in each), Counter[str]())
        total, pooled = (sum(counts) for counts in zip(*(a[2:] for a in each), strict=True))
        return Alive(tasks, objects, total, pooled)


def _ask(pid: int) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(30)
        asker.connect(_questions(pid))
        with asker.makefile("rb") as answer:
            told: dict[str, Any] = json.load(answer)
    return told


# -- HTTP over a socket --------------------------------------------------------------


class AnswerCut(ConnectionError):  # noqa: N818 - says what happened
    """The connection ended before the answer."""


class Head(NamedTuple):
    status: int
    headers: dict[str, str]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)


class Connection:
    """A client that does what it is told: sends while it reads, stops, sends nonsense.

    One thread may send while another one reads.

    Args:
        port: of the server, or of what stands before it.
        timeout: seconds without a byte after which a test has failed.
        room: bytes of the receive buffer, for clients that shall be slow.
    """

    def __init__(self, port: int, *, timeout: float = 30.0, room: int | None = None) -> None:
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if room is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            self._socket.settimeout(timeout)
            self._socket.connect((HOST, port))
        except BaseException:
            self._socket.close()
            raise
        self._raw = bytearray()
        self._size: int | None = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- ends ------------------------------------------------------------------------

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Leave without a word."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    @property
    def port(self) -> int:
        """Ours."""
        return int(self._socket.getsockname()[1])

    def unacknowledged(self) -> int:
        """Bytes sent that the server's machine has not acknowledged; only then follows the end."""
        (count,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        return int(count)

    def stop_sending(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def break_off(self) -> None:
        """Have a thread that sends or reads fail."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    # -- there -----------------------------------------------------------------------

    def send(self, data: bytes | memoryview) -> None:
        self._socket.sendall(data)

    def begin(self, method: str, target: str, *headers: str, size: int | None = None) -> None:
        """Send a head; of a chunked body if there is no size."""
        framing = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        lines = [f"{method} {target} HTTP/1.1", f"Host: {HOST}", framing, *headers]
        self.send("".join(f"{line}\r\n" for line in [*lines, ""]).encode())

    def send_chunk(self, data: bytes | memoryview) -> None:
        self.send(b"%x\r\n" % len(data) + bytes(data) + b"\r\n")

    def end_chunks(self) -> None:
        self.send(b"0\r\n\r\n")

    def send_paced(self, pieces: Iterable[bytes], seconds: float) -> None:
        """Send a chunked body with pauses."""
        for piece in pieces:
            self.send_chunk(piece)
            time.sleep(seconds)
        self.end_chunks()

    @contextlib.contextmanager
    def sending(self, send: Callable[[], None]) -> Iterator[None]:
        """Run ``send`` in a thread; that the connection broke is the reader's to notice."""

        def run() -> None:
            with contextlib.suppress(OSError):
                send()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        except BaseException:
            self.break_off()
            raise
        finally:
            thread.join()

    # -- back ------------------------------------------------------------------------

    def _receive(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise AnswerCut("the connection ended before the answer")
        self._raw += data

    def _line(self) -> bytes:
        while (end := self._raw.find(b"\r\n")) < 0:
            self._receive()
        line = bytes(self._raw[:end])
        del self._raw[: end + 2]
        return line

    def _some(self, most: int) -> bytes:
        if not self._raw:
            self._receive()
        piece = bytes(self._raw[:most])
        del self._raw[:most]
        return piece

    def read_head(self) -> Head:
        """The next head that is not an interim one."""
        while True:
            status = int(self._line().split()[1])
            headers = {}
            while line := self._line().decode():
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            if status != 100:
                break
        chunked = headers.get("transfer-encoding") == "chunked"
        self._size = None if chunked else int(headers.get("content-length", "0"))
        return Head(status, headers)

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes.

        Raises:
            AnswerCut: it has no end.
        """
        if self._size is not None:
            left = self._size
            while left:
                piece = self._some(left)
                left -= len(piece)
                yield piece
            return
        while left := int(self._line(), 16):
            while left:
                piece = self._some(left)
                left -= len(piece)
                yield piece
            assert self._line() == b""
        assert self._line() == b""

    def answer(self) -> Answer:
        head = self.read_head()
        return Answer(*head, b"".join(self.pieces()))

    def request(self, method: str, target: str, body: bytes = b"", *headers: str) -> Answer:
        """A whole request and its answer, read while the body is sent."""
        self.begin(method, target, *headers, size=len(body))
        if not body:
            return self.answer()
        with self.sending(lambda: self.send(body)):
            return self.answer()


def aggregate(directory: Path, data: bytes, report: str, *options: str, form: str = "csv") -> bytes:
    """The table that the command makes of a stream: what every answer must be."""
    path = directory / "stream.bin"
    path.write_bytes(data)
    out = directory / "tables"
    flags = [
        "--reports",
        report,
        "--out",
        str(out),
        "--format",
        form,
        "--no-progress",
        "--force",
        *options,
    ]
    assert main(["--log-level", "warning", "aggregate", str(path), *flags]) == 0
    return (out / f"{report}.{form}").read_bytes()


def until(done: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Wait for something to become true; whether it did."""
    deadline = time.monotonic() + seconds
    while not (is_done := done()) and time.monotonic() < deadline:
        time.sleep(pause)
    return is_done


def in_pieces(data: bytes, count: int) -> Sequence[bytes]:
    """So many pieces of a size, the last one perhaps shorter."""
    size = -(-len(data) // count)
    return [data[at : at + size] for at in range(0, len(data), size)]
