"""HTTP/1.1 to the byte: requests that stop half-way, answers with everything before them.

Libraries hide interim answers, refuse heads that break the rules, and send bodies whole. A check
of a protocol wants all three in its own hands.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Self
from urllib.parse import urljoin, urlsplit

TIMEOUT = 30.0
_LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        status: code.
        headers: by names in lower case; repeated ones are joined.
        body: whole.
        interim: answers of 1xx that came before.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    interim: tuple[Answer, ...] = ()

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())


class NoAnswer(Exception):  # noqa: N818 - says what happened
    """The server closed the connection, or was silent for too long."""


class Connection:
    """One connection to the server of a URL."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        plain = socket.create_connection((host, parts.port or (443 if secure else 80)), timeout)
        self._socket = plain
        if secure:
            self._socket = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        self._host = parts.netloc
        self._file: BinaryIO = self._socket.makefile("rb")
        self._method = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def head(self, method: str, url: str, headers: Mapping[str, str]) -> None:
        """Send a request up to its body."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._method = method
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reset(self) -> None:
        """Break the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()

    def interim(self, seconds: float) -> Answer | None:
        """The next answer if it is interim and comes soon."""
        self._socket.settimeout(seconds)
        try:
            if not self._file.peek(1)[:1]:  # type: ignore[attr-defined]
                return None
            status, headers = self._read_head()
        except (TimeoutError, OSError):
            return None
        finally:
            self._socket.settimeout(TIMEOUT)
        return Answer(status, headers) if status < 200 else None

    def answer(self) -> Answer:
        """The answer, with those before it.

        Raises:
            NoAnswer: there is none.
        """
        interim: list[Answer] = []
        try:
            while True:
                status, headers = self._read_head()
                if status >= 200:
                    break
                interim.append(Answer(status, headers))
            return Answer(status, headers, self._read_body(status, headers), tuple(interim))
        except OSError as e:
            raise NoAnswer(str(e) or type(e).__name__) from e

    def _read_head(self) -> tuple[int, dict[str, str]]:
        line = self._file.readline().decode("latin-1")
        if not line.startswith("HTTP/1."):
            raise NoAnswer("the connection was closed without an answer")
        headers: dict[str, str] = {}
        while text := self._file.readline().decode("latin-1").strip():
            name, _, value = text.partition(":")
            known = headers.get(name.lower())
            headers[name.lower()] = f"{known}, {value.strip()}" if known else value.strip()
        return int(line.split()[1]), headers

    def _read_body(self, status: int, headers: Mapping[str, str]) -> bytes:
        if self._method == "HEAD" or status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int(self._file.readline().split(b";")[0] or b"0", 16):
                body += self._file.read(size)
                self._file.readline()
            self._file.readline()
            return body
        if "content-length" in headers:
            return self._file.read(int(headers["content-length"]))
        return self._file.read()


def ask(method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
    """Send a request on a connection of its own.

    Raises:
        NoAnswer: the server gave none.
    """
    sized = dict(headers)
    if body is not None or method in {"POST", "PATCH", "PUT"}:
        sized.setdefault("Content-Length", str(len(body or b"")))
    with Connection(url) as connection:
        connection.head(method, url, sized)
        # A server may answer before it has read everything.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(body or b"")
        return connection.answer()


def absolute(base: str, location: str) -> str:
    """The URL that a Location names."""
    return urljoin(base, location)
