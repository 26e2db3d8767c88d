"""Files of loss streams, cut into sections for all cores."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import structlog

from core.errors import CoreError, ExcessError, InputError, TruncatedError
from core.losses.analysis import Analysis
from core.losses.events import StreamEnd, StreamHeader, certify
from core.losses.format import header_size
from core.losses.header import parse_header
from core.losses.policy import Policy
from core.losses.sections import Section, SectionEnd, find_boundary
from core.losses.summaries import Summariser

from .sources import CHUNK, Source

_WINDOW = 1 << 18
"""Bytes that are searched for a cut at a time."""

Read = Callable[[int, int], bytes]
"""Returns the bytes of a stream between two offsets."""


def event_cuts(
    read: Read, size: int, header: StreamHeader, step: int, *, complete: bool = True
) -> Iterator[int]:
    """Yield offsets at which an event begins, the next at least ``step`` bytes after the last.

    The cuts follow from the bytes of the stream alone: those of its first part are cuts of the
    whole.

    Args:
        read: reads the stream.
        size: its bytes, as far as they are known.
        header: its header.
        step: bytes from one cut to the next, a multiple of 4.
        complete: whether these are all bytes. If not, the last window is not searched.
    """
    target = header_size(header.kind) + step
    while target < size:
        end = target + _WINDOW
        if end > size and not complete:
            return
        found = find_boundary(
            np.frombuffer(read(target, min(end, size)), np.uint8), header.float_width
        )
        if found is None:
            # Half a window on, so that two blocks that are cut apart are looked at together.
            target += _WINDOW // 2
            continue
        yield target + found
        # Boundaries are searched for word by word.
        target += found + step - (found & 3)


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


def are_worth_cutting(names: Sequence[str], policy: Policy, threads: int) -> bool:
    """Return whether all cores can share the pass over streams, and gain by it."""
    size = sum(file_size(name) for name in names)
    return threads > 1 and policy.missing_end == "error" and size >= WORTH_CUTTING


def cut_or_whole(
    cut: Callable[[], list[StreamEnd]] | None, whole: Callable[[], list[StreamEnd]]
) -> list[StreamEnd]:
    """Try a pass by all cores, if there is one, then one over whole streams; return its ends.

    A second pass cannot be avoided. Each core knows its section alone, and an event that comes
    again in another section, or below the last one of it, is found after all sections; in one
    pass, it may be the first fault. Budgets and limits are of each core, so that one pass may keep
    what several exceed. It stops at the fault, so it reads no more than the bytes before.

    Raises:
        CoreError: a stream or an output is faulty.
    """
    if cut is not None:
        try:
            return cut()
        except InputError:
            # An output or a partial file, not a stream: another pass would end there too.
            raise
        except (CoreError, OSError) as e:
            structlog.get_logger().debug("one pass follows that of all cores", reason=str(e))
    return whole()


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


@dataclass(slots=True)
class Progress:
    """Progress of a running job."""

    total: int | None
    """Bytes to read, None if unknown."""
    bytes: int = 0
    events: int = 0


Observer = Callable[[Progress], None]


def section_observer(
    sources: Sequence[Source], total: int | None, observer: Observer | None
) -> Callable[[SectionEnd], None]:
    """Return what a pass over sections of these files calls after each, to tell the observer."""
    progress = Progress(total)

    def observe(result: SectionEnd) -> None:
        if observer is not None:
            progress.bytes = sum(source.size or 0 for source in sources[: result.stream])
            progress.bytes += result.end.bytes
            progress.events += result.end.events
            observer(progress)

    return observe


def stream_observer(
    readers: Sequence[Analysis | Summariser], total: int | None, observer: Observer | None
) -> Callable[[int], None]:
    """Return what a pass over whole streams calls with the bytes of each piece."""
    progress = Progress(total)

    def observe(count: int) -> None:
        if observer is not None:
            progress.bytes += count
            progress.events = sum(reader.events for reader in readers)
            observer(progress)

    return observe
