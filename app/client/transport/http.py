"""HTTP with blocking calls: large writes, reads into the caller's memory.

It builds on http.client rather than on httpx or requests because those read nothing before
they have sent everything, and copy each piece of an answer. Here an early refusal stops an
upload, a duplex request is sent by a second thread while its answer is read, and a payload
is received where it stays.
"""

from __future__ import annotations

import contextlib
import io
import re
import selectors
import socket
import ssl
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, parse_headers
from threading import TIMEOUT_MAX
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConnectionFailed, ThalwegError
from .requests import Body, Head, Interim, Request

TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as broken."""


_BUFFER = 1 << 16
"""Bytes that are read at once where frames are small."""


class _WholeLines(io.BufferedReader):
    """Reads lines, and fails on one that is cut.

    http.client takes the end of the connection for the end of the head: an answer cut
    there would look whole, but lack headers.
    """

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size:
            raise ConnectionError("closed by the service")
        return line


class _Response(HTTPResponse):
    """An answer that notices a cut in its head, and takes interim answers for what they are."""

    def __init__(
        self,
        interim: Interim | None,
        sock: socket.socket,
        *args: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(sock, *args, **named)
        self._interim = interim
        self.fp = _WholeLines(self.fp.detach(), _BUFFER)

    def _read_status(self) -> tuple[str, int, str]:
        # http.client takes any status but 100 for that of the answer.
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if status // 100 != 1:
                return version, status, reason
            head = Head(status, _lowered(parse_headers(self.fp).items()))
            if self._interim is not None:
                self._interim(head)


@dataclass(frozen=True)
class Address:
    """Where a service is and how to talk to it.

    Attributes:
        url: of the service, without a trailing slash.
        host: name or IP address.
        port: TCP port.
        path: prefix of all routes, without a trailing slash.
        key: bearer key, or None.
        timeout: seconds without a byte after which a connection counts as broken.
        context: of TLS; None for plain HTTP.
    """

    url: str
    host: str
    port: int
    path: str
    key: str | None = field(repr=False)
    timeout: float
    context: ssl.SSLContext | None

    @classmethod
    def parse(
        cls, url: str, key: str | None, timeout: float, context: ssl.SSLContext | None
    ) -> Address:
        """Parse an http or https URL.

        Raises:
            TypeError, ValueError: it is not one, or another argument is wrong; a key is not shown.
        """
        if not isinstance(url, str):
            raise TypeError(f"the URL of a service is a text, not {type(url).__name__}")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a service: http://host:port is one")
        secure = parts.scheme == "https"
        value: Any = timeout
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= TIMEOUT_MAX:
            raise ValueError(f"timeout is {timeout!r}: give seconds, a number above 0")
        try:
            port = parts.port or (443 if secure else 80)
        except ValueError as e:
            raise ValueError(f"the port of {url!r} is none: ports are numbers up to 65535") from e
        used = (context or ssl.create_default_context()) if secure else None
        return cls(
            url.rstrip("/"),
            parts.hostname,
            port,
            parts.path.rstrip("/"),
            None if key is None else _checked_key(key),
            timeout,
            used,
        )

    @property
    def headers(self) -> dict[str, str]:
        """Sent with every request."""
        authorization = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {"Accept-Encoding": "identity", "User-Agent": "thalweg-python", **authorization}

    def __reduce__(self) -> tuple[Any, ...]:
        # Contexts cannot be copied: another process trusts what its system does.
        return Address.parse, (self.url, self.key, self.timeout, None)


def _checked_key(key: str) -> str:
    """The key without white space around it, as files have it; an error does not show it."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a text, not {type(key).__name__}")
    key = key.strip()
    if not re.fullmatch("[!-~]+", key):
        raise ValueError("the key is not one word of ASCII characters: give the key, nothing else")
    return key


class Connection:
    """One connection, one request at a time.

    Args:
        address: of the service.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        if address.context is not None:
            self._http: HTTPConnection = HTTPSConnection(
                address.host, address.port, timeout=address.timeout, context=address.context
            )
        else:
            self._http = HTTPConnection(address.host, address.port, timeout=address.timeout)
        self._response: HTTPResponse | None = None
        self._sender: _Sender | None = None
        # http.client forgets it once an answer is the last one, which is still to be read.
        self._socket: socket.socket | None = None
        self._whole = True

    def send(self, request: Request) -> Head:
        """Send a request and read the head of its answer.

        In duplex, another thread sends, and this returns as soon as the head is there.

        Raises:
            ConnectionFailed: the connection could not be opened, or broke.
            ThalwegError: raised by the body.
        """
        self._http.response_class = partial(_Response, request.interim)  # type: ignore[assignment]
        try:
            self._send_head(request)
            if request.stream is not None:
                self._sender = _Sender(self._http, request.stream)
                self._sender.start() if request.duplex else self._sender.run()
            with self._patient(request.patience):
                self._response = self._http.getresponse()
            if self._response.length is None and not self._response.chunked:
                raise ConnectionError("the answer does not say how long it is")
        except (OSError, HTTPException) as e:
            raise self._failed(e) from e
        return Head(self._response.status, _lowered(self._response.getheaders()))

    @contextlib.contextmanager
    def _patient(self, seconds: float) -> Iterator[None]:
        """Wait that long for the next byte, where it is longer than usual."""
        sock, usual = self._http.sock, self._address.timeout
        if sock is None or seconds <= usual:
            yield
            return
        # Meanwhile a machine that is gone is noticed by the system.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.settimeout(seconds)
        yield
        sock.settimeout(usual)

    def _send_head(self, request: Request) -> None:
        http, body = self._http, request.stream
        self._whole = False
        if http.sock is None:
            http.connect()
        self._socket = http.sock
        target = self._address.path + request.target
        http.putrequest(request.method, target, skip_accept_encoding=True)
        for name, value in {**self._address.headers, **request.headers}.items():
            http.putheader(name, value)
        length = len(request.body or b"") if body is None else body.length
        if length is None:
            http.putheader("Transfer-Encoding", "chunked")
        else:
            http.putheader("Content-Length", str(length))
        try:
            http.endheaders(request.body or None)
        except (BrokenPipeError, ConnectionResetError):
            # The service may have answered before it closed.
            if not request.body:
                raise

    def receive(self, view: memoryview) -> int:
        """Fill a view with the next bytes of the answer.

        Returns:
            Their number: less than the view holds only where the answer ends.

        Raises:
            ConnectionFailed: the connection broke, or the answer was cut.
        """
        response = self._response
        assert response is not None  # noqa: S101 - for the type checker
        try:
            count = response.readinto(view)
            if not count and response.length:
                raise ConnectionError(f"{response.length} bytes of the answer are missing")
        except (OSError, HTTPException) as e:
            raise self._failed(e) from e
        return count

    def finish(self) -> bool:
        """End an answer that has been read; whether the connection can be used again."""
        response, sender = self._response, self._sender
        self._whole = (
            response is not None
            and (sender is None or sender.sent_all())
            and self._at_end(response)
            and not response.will_close
        )
        if not self._whole:
            self.close()
        self._response = self._sender = None
        return self._whole

    @staticmethod
    def _at_end(response: HTTPResponse) -> bool:
        try:
            return not response.read(1)
        except (OSError, HTTPException):
            return False

    def is_usable(self) -> bool:
        """Whether the connection waits for a request; one that is readable was closed."""
        if not self._whole or self._http.sock is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._http.sock, selectors.EVENT_READ)
            return not selector.select(0)

    def hang_up(self) -> None:
        """Make another thread that uses the connection fail at once."""
        if self._socket is not None:
            _hang_up(self._socket)

    def close(self) -> None:
        """Close the connection and wait for the thread that sends."""
        if self._sender is not None:
            self._sender.stop()
            self._sender = None
        if self._response is not None:
            self._response.close()
            self._response = None
        self._http.close()

    def _failed(self, error: Exception) -> ThalwegError:
        """The error to report: what the body raised, else that of the connection."""
        cause = self._sender.stop() if self._sender else None
        if isinstance(cause, ThalwegError):
            return cause
        if cause is not None:
            raise cause
        return ConnectionFailed.to(self._address.host, self._address.port, error)


class _Sender:
    """Sends the body of a request, in the caller's thread or one of its own."""

    def __init__(self, http: HTTPConnection, body: Body) -> None:
        self._socket: socket.socket = http.sock
        self._body = body
        self._chunked = body.length is None
        self._future: Future[None] | None = None
        self._sent = False
        # On TLS, a readable socket need not mean an answer.
        self._watch = not isinstance(self._socket, ssl.SSLSocket)

    def start(self) -> None:
        """Send in another thread."""
        self._watch = False
        executor = ThreadPoolExecutor(1, "thalweg-send")
        self._future = executor.submit(self._send_or_hang_up)
        executor.shutdown(wait=False)

    def run(self) -> None:
        """Send in this thread; an early answer stops it."""
        try:
            self._sent = self._send()
        except (BrokenPipeError, ConnectionResetError):
            # The service may have answered before it closed.
            return

    def sent_all(self) -> bool:
        """Whether the whole body has been sent."""
        return self._sent

    def stop(self) -> BaseException | None:
        """Stop the thread and wait for it; the error that the body raised there."""
        if self._future is None:
            return None
        if not self._future.done():
            _hang_up(self._socket)
            self._body.interrupt()
        error = self._future.exception()
        return None if isinstance(error, OSError) else error

    def _send_or_hang_up(self) -> None:
        try:
            self._sent = self._send()
        except BaseException:
            # The service must not take what it got for the whole stream.
            _hang_up(self._socket)
            raise

    def _send(self) -> bool:
        for view in self._body.views():
            if self._chunked:
                self._socket.sendall(b"%x\r\n" % len(view))
            if not self._write(view):
                return False
            if self._chunked:
                self._socket.sendall(b"\r\n")
        if self._chunked:
            self._socket.sendall(b"0\r\n\r\n")
        return True

    def _write(self, view: memoryview) -> bool:
        """Send a piece; False if an answer arrived instead."""
        if not self._watch:
            while len(view):
                view = view[self._socket.send(view) :]
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while len(view):
                ready = selector.select(self._socket.gettimeout())
                if not ready:
                    raise TimeoutError("the service has stopped reading")
                if ready[0][1] & selectors.EVENT_READ:
                    return False
                view = view[self._socket.send(view) :]
        return True


def _lowered(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def _hang_up(sock: socket.socket) -> None:
    """Close both directions of a socket that another thread may be using."""
    with contextlib.suppress(OSError):  # it may be closed already
        sock.shutdown(socket.SHUT_RDWR)
