from __future__ import annotations

import asyncio
import errno
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest

from app.client import AsyncClient, Client
from app.client.errors import ConnectionFailed
from app.client.transport.asynchronous import HttpxConnector
from app.client.transport.blocking import SocketConnector
from app.client.transport.http import Address, Connection
from app.client.transport.requests import Body, Request

from ..fakes.service import FakeService

GET = Request("GET", "/x")
READY = Request("GET", "/readyz")


def status(connector: SocketConnector) -> int:
    with connector.channel() as channel:
        return channel.exchange(READY).head.status


class Raw:
    """Gives each connection to a function that is to speak HTTP."""

    def __init__(self, speak: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(speak,), daemon=True)
        self._thread.start()

    def _run(self, speak: Callable[[socket.socket], None]) -> None:
        connection, _ = self._listener.accept()
        with connection, self._listener:
            speak(connection)


def waited(done: threading.Event) -> None:
    done.wait(10)


def answering(octets: bytes) -> Raw:
    def speak(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(octets)

    return Raw(speak)


def connect(port: int, timeout: float = 5) -> Connection:
    return Connection(Address.parse(f"http://127.0.0.1:{port}", None, timeout, None))


def receive(connection: Connection) -> bytes:
    out = b""
    buffer = memoryview(bytearray(7))
    while count := connection.receive(buffer):
        out += buffer[:count]
    return out


def body(pieces: Iterator[bytes], length: int | None = None) -> Body:
    """A body of given pieces."""
    return Body(length, lambda: map(memoryview, pieces), lambda: None)


@pytest.mark.parametrize(
    ("octets", "whole"),
    [
        (b"Content-Length: 10\r\n\r\n0123456789", True),
        (b"Content-Length: 10\r\n\r\n012345678", False),
        (b"Content-Length: 10\r\n\r\n", False),
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7\r\n3456789\r\n0\r\n\r\n", True),
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7\r\n3456789\r\n", False),
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7\r\n345", False),
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\nx", False),
        (b"Transfer-Encoding: chunked\r\n\r\n", False),
    ],
)
def test_a_cut_answer_is_an_error(octets: bytes, whole: bool) -> None:
    connection = connect(answering(b"HTTP/1.1 200 OK\r\n" + octets).port)
    assert connection.send(GET).status == 200
    if whole:
        assert receive(connection) == b"0123456789"
        connection.finish()
    else:
        with pytest.raises(ConnectionFailed):
            receive(connection)
    connection.close()


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nThalweg-Offset: 12",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nas much as comes",
    ],
)
def test_what_is_no_answer(octets: bytes) -> None:
    connection = connect(answering(octets).port)
    with pytest.raises(ConnectionFailed):
        connection.send(GET)
    connection.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1"):
        connect(port).send(GET)


def test_silence_is_a_fault() -> None:
    done = threading.Event()
    server = Raw(lambda _: waited(done))
    connection = connect(server.port, timeout=0.2)
    with pytest.raises(ConnectionFailed, match="timed out"):
        connection.send(GET)
    connection.close()
    done.set()


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_an_answer_that_takes_long_is_awaited_where_that_is_known(
    client: type[Client | AsyncClient],
) -> None:
    body = b'{"report": "summary", "tables": {}}'

    def speak(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        time.sleep(0.6)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    server = Raw(speak)
    url = f"http://127.0.0.1:{server.port}"

    async def summary() -> object:
        async with AsyncClient(url, timeout=0.2, retries=0) as waiting:
            return (await waiting.portfolios.query("book", "summary")).document

    if client is AsyncClient:
        assert asyncio.run(summary()) == {"report": "summary"}
    else:
        with Client(url, timeout=0.2, retries=0) as waiting:
            assert waiting.portfolios.query("book", "summary").document == {"report": "summary"}


def test_a_server_that_stops_reading_is_a_fault() -> None:
    done = threading.Event()
    server = Raw(lambda _: waited(done))
    connection = connect(server.port, timeout=0.2)
    with pytest.raises(ConnectionFailed, match="stopped reading"):
        connection.send(Request("POST", "/", stream=body(iter([bytes(1 << 20)] * 64), 64 << 20)))
    connection.close()
    done.set()


def test_an_answer_before_the_body_is_read() -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\nno")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield bytes(1 << 20)

    connection = connect(Raw(speak).port)
    assert connection.send(Request("POST", "/", stream=body(pieces()))).status == 413
    assert receive(connection) == b"no"
    assert not connection.finish()
    assert sent < 1000


def test_an_answer_before_a_whole_body_was_sent_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that refuses a body by its size closes while it is being sent."""
    send = HTTPConnection.endheaders

    def break_off(self: HTTPConnection, message_body: object = None) -> None:
        send(self)
        if message_body:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(HTTPConnection, "endheaders", break_off)
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno"
    connection, request = connect(answering(refusal).port), Request("POST", "/x", body=b"much")
    assert connection.send(request).status == 413
    assert receive(connection) == b"no"
    connection.close()
    silent = connect(answering(b"").port)
    with pytest.raises(ConnectionFailed):
        silent.send(request)
    silent.close()


def test_connections_are_used_again(service: FakeService) -> None:
    connector = SocketConnector(Address.parse(service.url, "k", 5, None), 0)
    for _ in range(3):
        assert status(connector) == 200
    assert len(service._connections) == 1
    assert service.seen[0].headers["authorization"] == "Bearer k"
    service.cut_all()
    assert status(connector) == 200
    assert len(service._connections) == 2
    connector.close()


def test_many_threads_share_a_pool(service: FakeService) -> None:
    connector = SocketConnector(Address.parse(service.url, None, 5, None), 0)
    got: list[int] = []

    def work() -> None:
        got.extend(status(connector) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [200] * 160
    assert len(connector._idle) <= 4
    connector.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://a", "http://"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Address.parse(url, None, 1, None)


def test_urls() -> None:
    address = Address.parse("https://example.org/base/", None, 1, None)
    assert (address.host, address.port, address.path) == ("example.org", 443, "/base")
    assert address.context is not None
    assert Address.parse("http://[::1]:80", None, 1, None).host == "::1"


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
def test_a_reader_is_freed_by_hanging_up_whatever_the_answer_says_of_the_connection(
    last: bytes,
) -> None:
    done = threading.Event()

    def speak(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + last + b"\r\n")
        waited(done)

    connection = connect(Raw(speak).port, timeout=60)
    connection.send(GET)
    failed: list[Exception] = []

    def read() -> None:
        try:
            connection.receive(memoryview(bytearray(8)))
        except ConnectionFailed as e:
            failed.append(e)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    time.sleep(0.1)
    connection.hang_up()
    # Well before the service closes the connection.
    reader.join(4)
    assert not reader.is_alive()
    assert failed
    done.set()
    connection.close()


def test_what_a_cancelled_operation_ends_with_is_no_complaint() -> None:
    complaints: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        woken = threading.Event()

        def work() -> None:
            woken.wait(10)
            raise InterruptedError

        address = Address.parse("http://127.0.0.1:9", None, 5, None)
        async with HttpxConnector("http://127.0.0.1:9", address, 0).channel() as channel:
            task = asyncio.create_task(channel.work(work, woken.set))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        del task
        gc.collect()

    asyncio.run(run())
    gc.collect()
    assert complaints == []
