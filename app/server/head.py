"""The head of a request: its request line and headers, parsed piece by piece within limits."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

import httptools

from .limits import ServerLimits

_END = b"\r\n\r\n"


class Refusal(Exception):  # noqa: N818 - an answer rather than a mistake
    """The head cannot be accepted.

    Attributes:
        status: status of the answer.
        code: code of its problem.
        detail: what is wrong.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


@dataclass(frozen=True, slots=True)
class Head:
    """A complete head.

    Attributes:
        scope: the part of the ASGI scope that it determines.
        size: length of the body in bytes; None if chunked.
        keep_alive: whether the client wants to use the connection again.
        expects_continue: whether it waits for 100 Continue before the body.
        octets: the head itself.
    """

    scope: dict[str, Any]
    size: int | None
    keep_alive: bool
    expects_continue: bool
    octets: bytes

    @property
    def route(self) -> tuple[str, str]:
        """Method and path, below the root."""
        return self.scope["method"], self.scope["path"][len(self.scope["root_path"]) :]

    def first(self, name: bytes) -> bytes | None:
        """Return the first value of a header; None without it."""
        return next((value for other, value in self.scope["headers"] if other == name), None)


class HeadParser:
    """Parses the heads of one connection, one after the other.

    Args:
        limits: limits of size and number.
        root_path: path below which a proxy shows the application.

    Attributes:
        begun: bytes of the current head so far; 0 between requests.
    """

    def __init__(self, limits: ServerLimits, root_path: str = "") -> None:
        self.begun = 0
        self._limits = limits
        self._root_path = root_path
        self._tail = b""
        """The last bytes before this piece, which its end may begin with."""
        self._pieces: list[bytes] = []
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._scope: dict[str, Any] | None = None
        self._keep_alive = False
        self._refusal: Refusal | None = None
        self._parser = self._new_parser()

    def feed(self, data: bytes) -> tuple[Head | None, bytes]:
        """Parse the next bytes of the connection.

        Returns:
            The head, once it is complete, and the bytes after it.

        Raises:
            Refusal: it is too long, or not HTTP.
        """
        while data:
            head, data = self._feed(data)
            if head is not None:
                return head, data
        return None, b""

    def _feed(self, data: bytes) -> tuple[Head | None, bytes]:
        """Parse up to the next end of a head, or an empty line before one."""
        known = len(self._tail)
        end = (self._tail + data).find(_END)
        size = len(data) if end < 0 else end + len(_END) - known
        self.begun += size
        if self.begun > self._limits.header_bytes:
            raise Refusal(431, "headers-too-large", "the request line and headers are too long")
        self._tail = (self._tail + data[-3:])[-3:] if end < 0 else b""
        self._pieces.append(data[:size])
        self._parse(data[:size])
        scope, self._scope = self._scope, None
        if scope is None:
            return None, data[size:]
        if end < 0:
            raise Refusal(400, "bad-request", "lines must end with CR and LF")
        self.begun = 0
        head, self._headers, self._pieces = self._head(scope), [], []
        if head.size != 0 or self._parser.should_upgrade():
            # It waits for a body that it will not see.
            self._parser = self._new_parser()
        return head, data[size:]

    def close(self) -> None:
        """Forget the parser, which refers back to this object."""
        self._parser = None

    def _new_parser(self) -> Any:  # noqa: ANN401 - httptools has no types
        parser = httptools.HttpRequestParser(self)
        # A request may be pipelined after one that asks to close: it is not read.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # To other protocols: the request is answered as if it had not asked.
            pass
        except httptools.HttpParserError:
            self._refusal = self._refusal or Refusal(
                400, "bad-request", "the request is not HTTP/1.1"
            )
        if self._refusal:
            raise self._refusal

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Collect a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, within the limit on their number."""
        if len(self._headers) >= self._limits.header_count:
            self._refusal = Refusal(431, "headers-too-large", "the request has too many headers")
            return
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note what the head says; what is raised here ends as an error of the parser."""
        version = self._parser.get_http_version()
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        # At the end of the message the parser forgets it.
        self._keep_alive = version != "1.0" and self._parser.should_keep_alive()
        self._scope = {
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "root_path": self._root_path,
            "path": self._root_path + (urllib.parse.unquote(path) if "%" in path else path),
            "raw_path": self._root_path.encode("ascii") + url.path,
            "query_string": url.query or b"",
            "headers": self._headers,
        }

    def _head(self, scope: dict[str, Any]) -> Head:
        values: dict[bytes, list[bytes]] = {}
        for name, value in self._headers:
            values.setdefault(name, []).append(value)
        codings = [value.lower() for value in values.get(b"transfer-encoding", ())]
        if codings and codings != [b"chunked"]:
            raise Refusal(501, "not-implemented", "only the chunked transfer coding is supported")
        return Head(
            scope,
            None if codings else int(values.get(b"content-length", [b"0"])[-1]),
            keep_alive=self._keep_alive,
            expects_continue=b"100-continue" in map(bytes.lower, values.get(b"expect", ())),
            octets=b"".join(self._pieces),
        )
