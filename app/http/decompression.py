"""Decompress request bodies in bounded memory, and stop decompression bombs early.

A compressed body is an amplifier: 1 MiB of zstd can decode to 30 GiB of zeros, and 1 MiB
of empty gzip members costs the set-up of 50,000 decoders without yielding a byte. A limit
on the size of the body as sent catches neither, and a limit on the decoded size alone
would refuse honest loss streams, which may be of any length. So the decoder weighs its
output against its input, and stops as soon as

    decoded bytes + 8 KiB x frames  >  64 MiB + 200 x sent bytes

Honest bodies stay far below the slope: loss streams compress to a half or a third, sparse
ones to a twentieth. The 64 MiB let small, highly compressible bodies pass, such as a table
of zeros. Each frame (gzip: member) weighs as much as 8 KiB because starting a decoder takes
about as long as decoding that much.

Memory is bounded apart from that balance. Output leaves in pieces of at most 1 MiB:

    body as sent    |- frame --|- frame -----------|- fra      <- cut anywhere
    pieces          [1 MiB][..][1 MiB][1 MiB][....][..]        <- the balance is checked at each

A zstd frame may demand a window of 2 GiB before its first byte, so windows above 8 MiB are
refused. And a decoder returns a copy of the bytes after the end of its frame; in a body of
tiny frames, handing the whole buffer to each would copy it once per frame, so the first
call for a frame passes no more than 4 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from isal import igzip_lib, isal_zlib

from app.errors import BombError, CodingError, TooLargeError, UnsupportedCodingError

CODINGS = ("gzip", "zstd", "identity")

_PIECE_BYTES = 1 << 20
_ALLOWANCE = 64 << 20
_RATIO = 200
_FRAME_WEIGHT = 8 << 10
_FIRST_BYTES = 4 << 10
_WINDOW_LOG = 23
"""Base-2 logarithm of the largest zstd window, 8 MiB: that of level 19."""


class Decoder(Protocol):
    """Decodes one body, buffer by buffer."""

    def decode(self, data: memoryview) -> Iterator[Any]:
        """Yield the decoded pieces of a buffer; each is valid until the next.

        Raises:
            CodingError: the body is not valid in its coding.
            TooLargeError: it exceeds the limit, as sent or as decoded.
            BombError: it decodes to too much for its size.
        """

    def end(self) -> None:
        """Check that the body may end here.

        Raises:
            CodingError: it ends inside a frame.
        """


class _Balance:
    """Weighs decoded bytes and frames against sent bytes."""

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
        if self._decoded + _FRAME_WEIGHT * self._frames > _ALLOWANCE + _RATIO * self._sent:
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
        self._balance = _Balance(limit)

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        self._balance.sent(len(data))
        yield data

    def end(self) -> None:
        """Accept any end."""


class _Compressed:
    """Decodes concatenated zstd frames or gzip members."""

    def __init__(self, name: str, limit: int | None) -> None:
        self._balance = _Balance(limit)
        self._name = name
        self._frame: _Frame | None = None

    def decode(self, data: memoryview) -> Iterator[bytes]:
        self._balance.sent(len(data))
        at = 0
        while at < len(data):
            end = len(data) if self._frame else at + _FIRST_BYTES
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
        self._balance.frame()
        return _FRAMES[self._name]()

    def _step(self, frame: _Frame, data: bytes | memoryview) -> bytes:
        try:
            piece = frame.decompress(data, _PIECE_BYTES)
        except (ZstdError, isal_zlib.error) as e:  # type: ignore[misc]
            raise CodingError(f"the body is not valid {self._name}: {e}") from e
        self._balance.decoded(len(piece))
        return piece

    def end(self) -> None:
        if self._frame is not None:
            raise CodingError(
                f"the body ends inside its {self._name} data",
                hint="Post it again: the connection or the compressor was interrupted",
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
    "zstd": lambda: ZstdDecompressor(options={DecompressionParameter.window_log_max: _WINDOW_LOG}),
}


def decoder(coding: str | None, limit: int | None) -> Decoder:
    """Return a decoder for a Content-Encoding.

    Args:
        coding: value of the header, None if it is absent.
        limit: maximum bytes to accept, as sent and as decoded; None for no limit.

    Raises:
        UnsupportedCodingError: the coding is not one of CODINGS.
    """
    name = (coding or "identity").strip().lower()
    if name == "identity":
        return _Identity(limit)
    if name in _FRAMES:
        return _Compressed(name, limit)
    raise UnsupportedCodingError(
        f"Content-Encoding {name!r} is not supported", hint=f"Use {', '.join(CODINGS)}"
    )
