"""One request to the small service and its answer, which a script may break."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .frames import Frames, octets


@dataclass
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    size: int = 0

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {k: v[0] for k, v in parse_qs(urlsplit(self.target).query).items()}

    @property
    def partial(self) -> bool:
        return self.headers.get("upload-complete") == "?0"


@dataclass
class Fault:
    """What goes wrong with one request.

    Attributes:
        cut: bytes of the answer, its head included, before the connection is closed.
        stop_reading: bytes of the body after which the connection is reset.
        status: refuse with this instead.
        headers: of the refusal.
        problem: of the refusal.
        change: does something to the whole answer.
        early: refuse before the body is read.
        drain: events after which the answer ends because the service stops.
        end: members of the END frame that are not as they should be.
        hang: bytes of the answer after which nothing comes until the client goes.
    """

    cut: int | None = None
    stop_reading: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    problem: dict[str, Any] = field(default_factory=dict)
    change: Callable[[bytes], bytes] | None = None
    early: bool = False
    drain: int | None = None
    end: dict[str, Any] = field(default_factory=dict)
    hang: int | None = None


class Gone(Exception):  # noqa: N818
    """The connection is over."""


class Refusal(Exception):  # noqa: N818
    """An answer that is a problem document."""

    def __init__(self, status: int, code: str, detail: str = "", offset: int | None = None) -> None:
        super().__init__(detail or code)
        self.status = status
        self.problem: dict[str, Any] = {"code": code, "title": code, "status": status}
        self.problem["detail"] = detail or code
        if offset is not None:
            self.problem["offset"] = offset


class Exchange:
    """One request and its answer.

    Args:
        connection: to the client.
        file: the same, for reading.
    """

    def __init__(self, connection: socket.socket, file: Any) -> None:  # noqa: ANN401
        self.connection = connection
        self.file = file
        self.fault = Fault()
        self.sent = 0

    def read_head(self) -> Seen | None:
        """The request; None if there is no other one."""
        line = self.file.readline().decode()
        if not line:
            return None
        method, target, _ = line.split()
        headers = {}
        while (field_line := self.file.readline().decode().strip()) != "":
            name, _, value = field_line.partition(":")
            headers[name.lower()] = value.strip()
        self.seen = Seen(method, target, headers)
        return self.seen

    @property
    def path(self) -> str:
        return self.seen.path

    def body(self) -> Iterator[bytes]:
        for piece in self._pieces():
            self.seen.size += len(piece)
            limit = self.fault.stop_reading
            if limit is not None and self.seen.size >= limit:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                raise Gone
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        if self.seen.headers.get("transfer-encoding") != "chunked":
            left = int(self.seen.headers.get("content-length", "0"))
            while left:
                piece = self.file.read1(min(left, 1 << 16))
                if not piece:
                    raise Gone
                left -= len(piece)
                yield piece
            return
        while size := int(self.file.readline() or b"x", 16):
            piece = self.file.read(size)
            self.file.readline()
            yield piece
        self.file.readline()

    def json(
        self, status: int, content: Mapping[str, Any], more: Mapping[str, str] | None = None
    ) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        body = json.dumps(content).encode()
        self.head(status, {"Content-Type": kind, **(more or {})}, len(body))
        self.write(body)

    def head(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        how = (
            {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        )
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, **how}.items()]
        self.write(f"HTTP/1.1 {status} X\r\n{''.join(lines)}\r\n".encode())

    def write(self, data: bytes) -> None:
        hang = self.fault.hang
        if hang is not None and self.sent + len(data) >= hang:
            self.connection.sendall(data[: hang - self.sent])
            self.file.read(1)
            raise Gone
        cut = self.fault.cut
        if cut is not None and self.sent + len(data) >= cut:
            self.connection.sendall(data[: cut - self.sent])
            self.connection.shutdown(socket.SHUT_RDWR)
            raise Gone
        self.connection.sendall(data)
        self.sent += len(data)

    def chunk(self, data: bytes, *, last: bool) -> None:
        """A chunk of an answer without a length; and its end."""
        octets = b"%x\r\n%s\r\n" % (len(data), data) if data else b""
        self.write(octets + (b"0\r\n\r\n" if last else b""))

    def refuse(self) -> bool:
        """Refuse the request, if its fault says so."""
        if self.fault.status is None:
            return False
        problem = {"code": "scripted", "detail": "scripted", "status": self.fault.status}
        self.json(self.fault.status, problem | self.fault.problem, self.fault.headers)
        return True

    def frames(
        self,
        frames: Frames,
        headers: Mapping[str, str] | None = None,
        pauses: Mapping[int, float] | None = None,
    ) -> None:
        """Answer with frames, some after a pause in seconds, unless the request is refused."""
        if self.refuse():
            return
        data = octets(frames)
        if self.fault.change:
            data = self.fault.change(data)
        self.head(200, {"Content-Type": "application/vnd.thalweg.frames", **(headers or {})}, None)
        begin = 0
        for number, seconds in (pauses or {}).items():
            end = len(octets(frames[:number]))
            self.chunk(data[begin:end], last=False)
            begin = end
            time.sleep(seconds)
        self.chunk(data[begin:], last=True)
