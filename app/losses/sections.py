"""Files of loss streams, cut into sections for all cores."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from core.errors import ExcessError, TruncatedError
from core.losses.events import StreamEnd, StreamHeader, certify
from core.losses.format import header_size
from core.losses.header import parse_header
from core.losses.policy import Policy
from core.losses.sections import Section

from .cuts import event_cuts
from .sources import CHUNK, Source

SECTION = 16 << 20
"""Bytes from one cut to the next: enough for hundreds of calls of kernels, and few enough for
the rows of some sections to wait in memory."""
WORTH_CUTTING = 2 * SECTION
"""Bytes of streams from which on a second core is of use."""

_HEADER = 12


def _read(source: Source, start: int, stop: int) -> bytes:
    return os.pread(source.fd, stop - start, start)


def _header(source: Source, policy: Policy) -> StreamHeader:
    header = parse_header(_read(source, 0, _HEADER), policy, source.name)
    if header is None:
        raise TruncatedError("the stream ends inside its header", source=source.name)
    return header


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
        read = partial(_read, source)
        for end in event_cuts(read, source.size or 0, header, section):
            pieces = partial(_pieces, source, begin, end, buffers)
            yield Section(index, header, begin, pieces)
            begin = end
        yield Section(index, header, begin, partial(_pieces, source, begin, None, buffers))


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
