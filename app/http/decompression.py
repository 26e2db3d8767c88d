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
refused, and smaller ones are entered in the ledger before the decoder takes them. And a decoder
returns a copy of the bytes after the end of its frame; in a body of tiny frames, handing the
whole buffer to each would copy it once per frame, so the first call for a frame passes no more
than 4 KiB.

A decoder is some 35 KiB, more than all else that a client holds who sends a little and waits. So
none outlives a call while its frame is short: the frame is kept as it was sent, decoded again
once more of it has come, and what is known of it is dropped. It also means that the header of a
frame is always seen in one piece.
"""

from __future__ import annotations

import re
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
_SHORT_BYTES = 4 << 10
"""Length up to which an open frame is kept instead of its decoder."""
_SHORT_DECODED = 64 << 10
"""Bytes that it may have yielded: so many are decoded again for each piece that comes."""
_NUMBERED = re.compile(r"^Error -?\d+ ")
"""How a library begins its messages."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BEGINNINGS = {
    "gzip": re.compile(rb"\x1f\x8b?"),
    "zstd": re.compile(rb"\x28(\xb5(\x2f\xfd?)?)?|[\x50-\x5f](\x2a(\x4d\x18?)?)?", re.DOTALL),
}
"""How frames begin, or as much of that as there is; in zstd also those that are skipped."""
_ZSTD_HEADER_LEAST, ZSTD_HEADER = 6, 18
MAX_WINDOW = 8 << 20
"""Bytes of the largest zstd window: that of level 19."""
_WINDOW_LOG = MAX_WINDOW.bit_length() - 1
MAX_BODY, MAX_INPUT = "THALWEG_MAX_BODY", "THALWEG_MAX_INPUT"
_HINTS: dict[str | None, str] = {MAX_BODY: "Post it in parts, with Upload-Complete: ?0"}
"""What to do where a limit with a setting is exceeded."""


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

    def __init__(self, limit: int | None, setting: str | None) -> None:
        self._limit = limit
        self._setting = setting
        self._sent = 0
        self._decoded = 0
        self._frames = 0

    def sent(self, count: int) -> int:
        """Count sent bytes; return how many were before them."""
        self._sent += count
        self._check(self._sent)
        return self._sent - count

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
                limit="expansion",
                allowed=_RATIO,
                setting=None,
            )

    def _check(self, count: int) -> None:
        if self._limit is not None and count > self._limit:
            raise TooLargeError(
                f"the body is larger than {self._limit} bytes",
                hint=_HINTS.get(self._setting),
                limit="body",
                allowed=self._limit,
                setting=self._setting,
            )


class _Identity:
    def __init__(self, balance: _Balance) -> None:
        self._balance = balance

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        self._balance.sent(len(data))
        yield data

    def end(self) -> None:
        """Accept any end."""


class _Compressed:
    """Decodes concatenated zstd frames or gzip members."""

    def __init__(self, name: str, balance: _Balance, grow: Callable[[int], None] | None) -> None:
        self._balance = balance
        self._name = name
        self._grow = grow
        self._window = 0
        """The largest window so far, in bytes."""
        self._frame: _Frame | None = None
        self._decoded = 0
        """Bytes that the open frame has yielded."""
        self._short = b""
        """The open frame as far as it has come, if no decoder is kept for it."""

    def decode(self, data: memoryview) -> Iterator[memoryview]:
        origin = self._balance.sent(len(data)) - len(self._short)
        known, begin = 0, None if self._frame else 0
        if self._short and data:
            data, known, self._short = memoryview(self._short + data), self._decoded, b""
            self._frame = self._start(data, origin)
        at = 0
        while at < len(data):
            if self._frame is None:
                begin, self._decoded = at, 0
                self._balance.frame()
                self._frame = self._start(data[at:], origin + at)
            end = at + _FIRST_BYTES if at == begin else len(data)
            part = data[at:end]
            at += len(part)
            for piece in self._pieces(self._frame, part):
                new = piece[known:]
                known -= len(piece) - len(new)
                if new:
                    self._count(len(new))
                    yield new
            if self._frame.eof:
                at -= len(self._frame.unused_data)
                self._frame = None
        if self._frame is not None and begin is not None:
            self._forget(data[begin:])

    def _start(self, begin: memoryview, offset: int) -> _Frame:
        """Return a decoder for a frame that begins with these bytes, at an offset of the body."""
        size = 2 if self._name == "gzip" else 4
        if offset and not _BEGINNINGS[self._name].fullmatch(begin[:size]):
            raise CodingError(
                f"other bytes follow the {self._name} data, which ends before byte {offset}",
                hint=f"End the body there, or compress what follows with {self._name} too",
                offset=offset,
            )
        window = zstd_window(begin) if self._name == "zstd" else 0
        if window > MAX_WINDOW:
            raise CodingError(
                f"the body demands a zstd window of {window} bytes, more than {MAX_WINDOW}",
                hint="Compress it at a level up to 19, without --long",
            )
        if self._grow is not None and window > self._window:
            self._grow(window - self._window)
            self._window = window
        return _FRAMES[self._name]()

    def _pieces(self, frame: _Frame, data: bytes | memoryview) -> Iterator[memoryview]:
        """Yield what a decoder makes of some bytes."""
        while True:
            try:
                piece = frame.decompress(data, _PIECE_BYTES)
            except (ZstdError, isal_zlib.error) as e:  # type: ignore[misc]
                reason = _NUMBERED.sub("", str(e))
                raise CodingError(
                    f"the body is not valid {self._name}: {reason}",
                    hint="Its bytes were damaged after they were compressed: send the file anew",
                ) from e
            yield memoryview(piece)
            if frame.eof or frame.needs_input:
                return
            data = b""

    def _count(self, nbytes: int) -> None:
        self._balance.decoded(nbytes)
        self._decoded += nbytes

    def _forget(self, frame: memoryview) -> None:
        """Keep an open frame instead of its decoder, if it is short."""
        if len(frame) <= _SHORT_BYTES and self._decoded <= _SHORT_DECODED:
            self._short, self._frame = bytes(frame), None

    def end(self) -> None:
        if self._frame is not None or self._short:
            raise CodingError(
                f"the body ends inside its {self._name} data",
                hint="Post it again: the connection or the compressor was interrupted",
            )


def zstd_window(frame: bytes | memoryview) -> int:
    """Return the window that a zstd frame demands; 0 if its header is cut, or another's.

    See RFC 8878, 3.1.1.1.
    """
    octets = bytes(frame[:ZSTD_HEADER])
    if octets[:4] != _ZSTD_MAGIC or len(octets) < _ZSTD_HEADER_LEAST:
        return 0
    flags, window = octets[4:6]
    if not flags & 0x20:
        base = 1 << 10 + (window >> 3)
        return base + base // 8 * (window & 7)
    # A frame in a single segment is its own window, and says how long it is.
    at = 5 + (0, 1, 2, 4)[flags & 3]
    size = 1 << (flags >> 6)
    if len(octets) < at + size:
        return 0
    length = int.from_bytes(octets[at : at + size], "little")
    return length + (256 if size == 2 else 0)  # noqa: PLR2004 - of two bytes


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


def decoder(
    coding: str | None,
    limit: int | None,
    grow: Callable[[int], None] | None = None,
    setting: str | None = None,
) -> Decoder:
    """Return a decoder for a Content-Encoding.

    Args:
        coding: value of the header, None if it is absent.
        limit: maximum bytes to accept, as sent and as decoded; None for no limit.
        grow: enters memory in the ledger that a body demands of its decoder; None for no ledger.
        setting: variable of the limit; None where nobody can change it.

    Raises:
        UnsupportedCodingError: the coding is not one of CODINGS.
    """
    name = (coding or "identity").strip().lower()
    name = "gzip" if name == "x-gzip" else name
    if name == "identity":
        return _Identity(_Balance(limit, setting))
    if name in _FRAMES:
        return _Compressed(name, _Balance(limit, setting), grow)
    raise UnsupportedCodingError(
        f"Content-Encoding {name!r} is not supported", hint=f"Use {', '.join(CODINGS)}"
    )
