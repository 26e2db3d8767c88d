"""Compressed bodies, decoded in bounded memory and only as far as they are honest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from isal import igzip_lib, isal_zlib

from app.errors import BombError, CodingError, TooLargeError, UnsupportedCodingError

CODINGS = ("gzip", "zstd", "identity")

_STEP = 1 << 20
"""Bytes decoded at a time."""
_ALLOWANCE = 64 << 20
"""Bytes that may be decoded whatever was sent."""
_RATIO = 200
"""Bytes that may be decoded for each one that was sent. Loss streams come to 2 or 3,
sparse ones to 20."""
_FRAME = 8 << 10
"""Bytes that beginning a frame counts for: it takes as long as decoding them."""
_FIRST = 4 << 10
"""Bytes a frame begins with: it hands back a copy of what is behind its end."""
_WINDOW = 23
"""log2 of the largest zstd window: what level 19 uses."""


class Decoder(Protocol):
    """Turns a body as sent into the stream, piece by piece."""

    def decode(self, data: memoryview) -> Iterator[Any]:
        """Pieces of the stream, each valid until the next is asked for.

        Raises:
            CodingError: the body is not what it says.
            TooLargeError, BombError: it is larger than is accepted.
        """

    def end(self) -> None:
        """The body ended.

        Raises:
            CodingError: it was cut.
        """


class _Gauge:
    """Bytes in and out, and what is too many."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._sent = 0
        self._decoded = 0
        self._frames = 0

    def sent(self, count: int) -> None:
        self._sent += count
        self._check(self._sent)

    def decoded(self, count: int) -> None:
        self._decoded += count
        self._check(self._decoded)
        self._weigh()

    def frame(self) -> None:
        self._frames += 1
        self._weigh()

    def _weigh(self) -> None:
        if self._decoded + _FRAME * self._frames > _ALLOWANCE + _RATIO * self._sent:
            raise BombError(
                f"the body decodes to more than {_RATIO} times its size, or has too many frames",
                hint="Post it uncompressed, or in parts of a few megabytes",
            )

    def _check(self, count: int) -> None:
        if self._limit is not None and count > self._limit:
            raise TooLargeError(
                f"the body is larger than {self._limit} bytes",
                hint="Post it in parts, with Upload-Complete: ?0",
            )


class _Identity:
    def __init__(self, limit: int | None) -> None:
        self._gauge = _Gauge(limit)

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        self._gauge.sent(len(data))
        yield data

    def end(self) -> None:
        """Nothing can be cut."""


class _Compressed:
    """Frames (zstd) or members (gzip), one after the other."""

    def __init__(self, name: str, limit: int | None) -> None:
        self._gauge = _Gauge(limit)
        self._name = name
        self._frame: _Frame | None = None

    def decode(self, data: memoryview) -> Iterator[bytes]:
        self._gauge.sent(len(data))
        at = 0
        while at < len(data):
            end = len(data) if self._frame else at + _FIRST
            frame = self._frame = self._frame or self._begin()
            part: bytes | memoryview = data[at:end]
            at += len(part)
            while True:
                piece = self._step(frame, part)
                part = b""
                if piece:
                    yield piece
                if frame.eof or frame.needs_input:
                    break
            if frame.eof:
                at -= len(frame.unused_data)
                self._frame = None

    def _begin(self) -> _Frame:
        self._gauge.frame()
        return _FRAMES[self._name]()

    def _step(self, frame: _Frame, data: bytes | memoryview) -> bytes:
        try:
            piece = frame.decompress(data, _STEP)
        except (ZstdError, isal_zlib.error) as e:  # type: ignore[misc]
            raise CodingError(f"the body is not the {self._name} that is accepted: {e}") from e
        self._gauge.decoded(len(piece))
        return piece

    def end(self) -> None:
        if self._frame is not None:
            raise CodingError(
                f"the body ends inside its {self._name} data",
                hint="The connection or its writer failed",
            )


class _Frame(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes: ...


_FRAMES: dict[str, Callable[[], _Frame]] = {
    "gzip": lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
    "zstd": lambda: ZstdDecompressor(options={DecompressionParameter.window_log_max: _WINDOW}),
}


def decoder(coding: str | None, limit: int | None) -> Decoder:
    """A decoder for a Content-Encoding.

    Args:
        coding: as the header has it, None if it is absent.
        limit: bytes that are accepted, as sent and as decoded; None for any number.

    Raises:
        UnsupportedCodingError: it is not one of CODINGS.
    """
    name = (coding or "identity").strip().lower()
    if name == "identity":
        return _Identity(limit)
    if name in _FRAMES:
        return _Compressed(name, limit)
    raise UnsupportedCodingError(
        f"Content-Encoding {name!r} is not understood", hint=f"Use {', '.join(CODINGS)}"
    )
