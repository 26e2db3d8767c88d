"""The head of a request: its request line and headers, parsed piece by piece within limits."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

import httptools

from app.errors import ProblemError, problem

from .limits import ServerLimits

_END = b"\r\n\r\n"
_LINES = ("lines must end with CR and LF", "End each line of the head with them")
_CODING = ("only the chunked transfer coding is supported", "Send chunks, or Content-Length")
_TLS = ("the request is TLS, and this port speaks plain HTTP", "Use an address with http://")
_METHOD = ("the request does not begin with a method of HTTP/1.1", "Send one, such as GET")
_VERSION = ("the request is not of HTTP/1.1 or HTTP/1.0", "Send it as HTTP/1.1")
_PROXY = ("CONNECT is for proxies, and this is none", "Send the request itself")
_HAS_BOTH = "the request has both Content-Length and Transfer-Encoding"
_BAD_NAME = "the name of a header has a character that none can have"
_BAD_VALUE = "the value of a header has a control character"
_NO_VERSION = "the address in the request line is not followed by HTTP/1.1"
_BAD_LENGTH = "Content-Length is not a number of bytes"
_FAULTS = {
    "Duplicate Content-Length": ("there are several Content-Length headers", "Send one"),
    "Invalid character in Content-Length": (_BAD_LENGTH, "Send digits alone, without a sign"),
    "Content-Length overflow": ("Content-Length is larger than any body", "Send its size"),
    "Transfer-Encoding can't be present with Content-Length": (_HAS_BOTH, "Send one of the two"),
    "Unexpected whitespace after header value": ("a header has a second line", "Send it in one"),
    "Invalid header token": (_BAD_NAME, "Send headers as Name: value, one in a line"),
    "Invalid header value char": (_BAD_VALUE, "Leave it out, or encode it"),
    "Expected HTTP/, RTSP/ or ICE/": (_NO_VERSION, "Send spaces of the address as %20"),
    "Expected CRLF after version": _LINES,
    "Missing expected CR after header value": _LINES,
    "Invalid HTTP version": _VERSION,
    "Pause on PRI/Upgrade": _VERSION,
    "Invalid method encountered": _METHOD,
    "Request has invalid `Transfer-Encoding`": _CODING,
    "Invalid `Transfer-Encoding` header value": _CODING,
}
"""What is wrong and what to do, by what the parser says."""


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
        self._refusal: ProblemError | None = None
        self._parser = self._new_parser()

    def feed(self, data: bytes) -> tuple[Head | None, bytes]:
        """Parse the next bytes of the connection.

        Returns:
            The head, once it is complete, and the bytes after it.

        Raises:
            ProblemError: it is too long, or not HTTP.
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
            raise _too_large(
                "the request line and headers are longer than {} bytes",
                *("header_bytes", self._limits.header_bytes, "THALWEG_HEADER_BYTES"),
            )
        self._tail = (self._tail + data[-3:])[-3:] if end < 0 else b""
        self._pieces.append(data[:size])
        self._parse(data[:size])
        scope, self._scope = self._scope, None
        if scope is None:
            return None, data[size:]
        if end < 0:
            raise _refusal(_LINES)
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
        except httptools.HttpParserError as e:
            self._refusal = self._refusal or self._fault(str(e))
        if self._refusal:
            raise self._refusal

    def _fault(self, reason: str) -> ProblemError:
        """Return the refusal of what the parser does not take."""
        if b"".join(self._pieces).startswith(b"\x16\x03"):
            return _refusal(_TLS)
        unknown = (f"the request cannot be parsed: {reason}", "Send it as HTTP/1.1 has it")
        return _refusal(_FAULTS.get(reason, unknown))

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
            self._refusal = _too_large(
                "the request has more than {} headers", "headers", self._limits.header_count, None
            )
            return
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Note what the head says; what is raised here ends as an error of the parser."""
        version = self._parser.get_http_version()
        method = self._parser.get_method().decode("ascii")
        if version not in {"1.0", "1.1"} or method == "CONNECT":
            self._refusal = _refusal(_PROXY if method == "CONNECT" else _VERSION)
            return
        url = httptools.parse_url(self._url)
        # An absolute target may end with its host.
        raw = url.path or b"/"
        path = raw.decode("ascii")
        # At the end of the message the parser forgets it.
        self._keep_alive = version != "1.0" and self._parser.should_keep_alive()
        self._scope = {
            "http_version": version,
            "method": method,
            "root_path": self._root_path,
            "path": self._root_path + (urllib.parse.unquote(path) if "%" in path else path),
            "raw_path": self._root_path.encode("ascii") + raw,
            "query_string": url.query or b"",
            "headers": self._headers,
        }

    def _head(self, scope: dict[str, Any]) -> Head:
        values: dict[bytes, list[bytes]] = {}
        for name, value in self._headers:
            values.setdefault(name, []).append(value)
        codings = [value.lower() for value in values.get(b"transfer-encoding", ())]
        if codings and codings != [b"chunked"]:
            raise _refusal(_CODING)
        return Head(
            scope,
            None if codings else int(values.get(b"content-length", [b"0"])[-1]),
            keep_alive=self._keep_alive,
            expects_continue=b"100-continue" in map(bytes.lower, values.get(b"expect", ())),
            octets=b"".join(self._pieces),
        )


def _refusal(fault: tuple[str, str]) -> ProblemError:
    code = "not-implemented" if fault is _CODING else "bad-request"
    return ProblemError(problem(code, fault[0], hint=fault[1]))


def _too_large(detail: str, limit: str, allowed: int, setting: str | None) -> ProblemError:
    bound = {"limit": limit, "allowed": allowed, "setting": setting}
    hint = "Send fewer or shorter headers"
    return ProblemError(problem("headers-too-large", detail.format(allowed), hint=hint, **bound))
