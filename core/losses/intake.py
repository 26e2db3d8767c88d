"""Bringing the pieces of a stream before a scanner, read in place where possible."""

from __future__ import annotations

from ..arrays import Octets
from .buffer import ByteBuffer, as_octets, is_aligned
from .format import SUMMARY_HEADER_SIZE
from .scanner import Scanner, Step

_BRIDGE = 1 << 14
"""First bytes copied to complete a block that was cut; doubled until it is whole. More
than most blocks have, because a second call costs more than the copy."""
_CUT = 1 << 8
"""Bytes there is room for at first: a stream that comes slowly may never need more."""
_COPY = 1 << 18
"""Bytes copied at a time where a piece cannot be read in place: a quarter of the
second-level cache, so that the copy is read while it is hot."""


class Intake:
    """Runs a scanner over pieces of any size; keeps only what a piece cut off.

    Args:
        scanner: whose stream it is.
        step: runs the consumer's kernel; it must take every whole block.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._tail = ByteBuffer(_CUT)

    @property
    def rest(self) -> Octets:
        """Bytes after the last whole block; valid until more are taken."""
        return self._tail.view

    def take_header(self, octets: Octets) -> Octets | None:
        """Take the header; return the bytes after it, or None if it is not whole yet."""
        held = len(self._tail)
        self._tail.append(octets[:SUMMARY_HEADER_SIZE])
        size = self._scanner.take_header(self._tail.view[:SUMMARY_HEADER_SIZE].tobytes())
        if size is None:
            return None
        self._tail.clear()
        return octets[size - held :]

    def take_blocks(self, octets: Octets, step: Step) -> None:
        """Take every block that is whole by now."""
        octets = self._bridge(octets, step)
        if is_aligned(octets):
            consumed, _ = self._scanner.run(octets, step)
            self._tail.append(octets[consumed:])
            return
        while len(octets):
            self._tail.append(octets[:_COPY])
            octets = octets[_COPY:]
            self._run_tail(step)

    def finish(self, step: Step) -> None:
        """Close the last block of an ended stream, if its end is missing and may be."""
        end = self._scanner.implied_end(self._tail.view)
        if end:
            self._tail.append(as_octets(end))
            self._run_tail(step)

    def _bridge(self, octets: Octets, step: Step) -> Octets:
        """Complete the block that the last piece cut; return the bytes after it."""
        size = _BRIDGE
        while len(self._tail) and len(octets):
            before = len(self._tail)
            self._tail.append(octets[:size])
            consumed = self._run_tail(step)
            if consumed >= before:
                # What the tail still holds lies in `octets` too.
                octets = octets[consumed - before :]
                self._tail.clear()
                break
            octets = octets[size:]
            size *= 2
        return octets

    def _run_tail(self, step: Step) -> int:
        consumed, _ = self._scanner.run(self._tail.view, step)
        self._tail.consume(consumed)
        return consumed
