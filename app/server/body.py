"""How bodies fail, and decoding of the chunked transfer coding, in place."""

from __future__ import annotations

import re

BODY_EXTENSION = "thalweg.body"
_LINE_BYTES = 4096
_LARGE_BYTES = 1 << 16
"""Size of chunks whose payload is worth a system call to be where it belongs."""
_NEVER = b"no line of a chunk"
"""A value that no line equals."""
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_SIZE_PREFIX = re.compile(rb"[0-9A-Fa-f]{0,15}(?:[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r?)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")


class ClientDisconnected(ConnectionError):  # noqa: N818 - an event rather than a mistake
    """The client left, or the answer was aborted."""


class BodyStalled(Exception):  # noqa: N818 - an event rather than a mistake
    """The body did not continue within the time allowed."""


class FramingError(Exception):
    """The body violates the framing its headers declare, for example by a bad chunk size."""


class ChunkDecoder:
    """Extracts the payload of a chunked body, and passes over its trailers.

    Senders tend to use chunks of one size. Its line is compared as bytes rather than
    parsed, which makes small chunks cheap.

    Args:
        trailer_bytes: Maximum size of all trailers together.

    Attributes:
        done: Whether the end of the body was reached.
    """

    def __init__(self, trailer_bytes: int) -> None:
        self.done = False
        self._trailer_bytes = trailer_bytes
        self._left = 0
        self._pending = b""
        self._ending = b""
        self._in_trailers = False
        self._usual_line = _NEVER
        self._usual_size = 0

    def stretch(self) -> int:
        """Return the number of bytes to the next end of a line or a large chunk.

        Whoever reads no more has nothing to move: ``decode`` finds either payload or a line.

        Returns:
            The number; 0 if it is not known, or chunks are small.
        """
        if self._usual_size < _LARGE_BYTES or self._usual_line is _NEVER:
            return 0
        return self._left or len(self._usual_line)

    def decode(self, view: memoryview, size: int) -> tuple[int, int]:
        """Move the payload within the first ``size`` bytes of a view to its front.

        Returns:
            Number of payload bytes, and of bytes consumed: fewer than ``size`` only if the
            body ends before.

        Raises:
            FramingError: The bytes are not chunked.
        """
        at = out = 0
        usual, usual_bytes = self._usual_line, len(self._usual_line)
        left = self._left
        while at < size:
            if left:
                take = min(left, size - at)
                if out != at:
                    view[out : out + take] = view[at : at + take]
                out += take
                at += take
                left -= take
                if left:
                    break
                self._ending = b"\r\n"
            elif at + usual_bytes <= size and view[at : at + usual_bytes] == usual:
                at += usual_bytes
                left = self._usual_size
            else:
                at = self._line(view, at, size)
                if self.done:
                    break
                usual, usual_bytes, left = self._usual_line, len(self._usual_line), self._left
        self._left = left
        return out, at

    def _line(self, view: memoryview, at: int, size: int) -> int:
        """Consume a line, or the beginning of one; return the offset after it."""
        if self._in_trailers:
            return self._trailer(view, at, size)
        known = len(self._pending)
        head = self._pending + bytes(view[at : min(at + _LINE_BYTES, size)])
        start = len(self._ending)
        if head[:start] != self._ending[: len(head)]:
            raise FramingError("a chunk is longer than its size")
        end = head.find(b"\r\n", start)
        if end < 0:
            if len(head) >= _LINE_BYTES or not _SIZE_PREFIX.fullmatch(head, start):
                raise FramingError("the size of a chunk is malformed")
            self._pending, self._usual_line, self._left = head, _NEVER, 0
            return size
        match = _SIZE.fullmatch(head, start, end + 2)
        if not match:
            raise FramingError("the size of a chunk is malformed")
        self._pending = b""
        self._left = int(match[1], 16)
        if self._left:
            self._usual_line, self._usual_size = b"\r\n" + head[start : end + 2], self._left
        else:
            self._in_trailers, self._usual_line = True, _NEVER
        return at + end + 2 - known

    def _trailer(self, view: memoryview, at: int, size: int) -> int:
        known = len(self._pending)
        head = self._pending + bytes(view[at : min(at + self._trailer_bytes, size)])
        end = head.find(b"\r\n")
        if end < 0:
            self._trailer_bytes -= size - at
            if self._trailer_bytes <= 0 or b"\n" in head:
                raise FramingError("trailers are too long or malformed")
            self._pending = head
            return size
        self._pending = b""
        used = end + 2 - known
        self._trailer_bytes -= used
        if end == 0:
            self.done = True
            return at + used
        if not _TRAILER.fullmatch(head, 0, end) or self._trailer_bytes <= 0:
            raise FramingError("trailers are too long or malformed")
        return at + used
