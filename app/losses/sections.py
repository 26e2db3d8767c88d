"""Files of loss streams, cut into sections for all cores."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from core.errors import ExcessError, TruncatedError
from core.losses.completeness import certify
from core.losses.events import StreamEnd, StreamHeader
from core.losses.format import header_size
from core.losses.header import parse_header
from core.losses.policy import Policy
from core.losses.sections import Section, find_boundary

from .sources import CHUNK, Source

SECTION = 8 << 20
"""Bytes from one cut to the next: enough for hundreds of calls of kernels, and few enough for
the rows of some sections to wait in memory."""
WORTH_CUTTING = 2 * SECTION
"""Bytes of streams from which on a second core is of use."""

_WINDOW = 1 << 18
"""Bytes that are searched for a cut at a time."""
_HEADER = 12


def _read(source: Source, size: int, offset: int) -> bytes:
    return os.pread(source.fd, size, offset)


def _header(source: Source, policy: Policy) -> StreamHeader:
    header = parse_header(_read(source, _HEADER, 0), policy, source.name)
    if header is None:
        raise TruncatedError("the stream ends inside its header", source=source.name)
    return header


def _cuts(source: Source, header: StreamHeader, size: int, section: int) -> Iterator[int]:
    """Offsets of events, about ``section`` bytes apart."""
    target = header_size(header.kind) + section
    while target < size:
        octets = np.frombuffer(_read(source, _WINDOW, target), np.uint8)
        found = find_boundary(octets, header.float_width)
        if found is None:
            # Half a window on, so that two blocks that are cut apart are looked at together.
            target += _WINDOW // 2
            continue
        yield target + found
        target += found + section - (found & 3)


def _pieces(
    source: Source, begin: int, end: int | None, buffers: list[memoryview]
) -> Iterator[memoryview]:
    """The bytes of a file from ``begin`` up to ``end``, or to the end of the file.

    Buffers are used again: the pages of a new one cost half as much as reading into them.
    """
    try:
        buffer = buffers.pop()
    except IndexError:
        buffer = memoryview(bytearray(CHUNK))
    while end is None or begin < end:
        room = buffer if end is None else buffer[: end - begin]
        count = os.preadv(source.fd, [room], begin)
        if not count:
            break
        yield room[:count]
        begin += count
    buffers.append(buffer)


def sections_of(sources: Sequence[Source], policy: Policy, section: int) -> Iterator[Section]:
    """The sections of files, in order.

    Args:
        sources: files of a known size.
        policy: what to accept.
        section: bytes of a section, about.

    Raises:
        CoreError: a file has no header of a loss stream.
        OSError: it cannot be read.
    """
    buffers: list[memoryview] = []
    for index, source in enumerate(sources):
        header = _header(source, policy)
        begin = header_size(header.kind)
        pieces: Callable[[], Iterator[memoryview]]
        for end in _cuts(source, header, source.size or 0, section):
            pieces = partial(_pieces, source, begin, end, buffers)
            yield Section(index, header, begin, pieces)
            begin = end
        yield Section(index, header, begin, partial(_pieces, source, begin, None, buffers))


def is_special(path: Path) -> bool:
    """Whether there is a pipe or device at the path."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def file_size(name: str) -> float:
    """Bytes of a file; below every number for anything else."""
    try:
        status = Path(name).stat()
    except OSError:
        return -math.inf
    return status.st_size if stat.S_ISREG(status.st_mode) else -math.inf


def declared(end: StreamEnd, expect_events: int | None, expect_bytes: int | None) -> StreamEnd:
    """Return the end of a stream that is as long as it was declared to be.

    Raises:
        ExcessError: it is longer.
        IncompleteError: it is shorter.
    """
    for expected, counted in ((expect_bytes, end.bytes), (expect_events, end.events)):
        if expected is not None and counted > expected:
            raise ExcessError("the stream is longer than declared")
    return certify(end, expect_events, expect_bytes, None)
