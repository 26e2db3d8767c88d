"""Partial files: a ledger as bytes that another process can merge.

A file describes itself, and every part of it has a checksum (BLAKE2b, 16 bytes)::

    TWLEDGER  version u4  length u4   header, JSON          checksum of all before it
    EVTS      0 u4        length u8   checksum   event ids, i4, ascending
    RUNS      0 u4        length u8   checksum   whole stretches by summary and period; repeated
    DONE      0 u4        length u8   checksum   counts and digests, JSON

Little endian. The header says what the sums are of: kind of stream, sample count, summary set,
float width, and the digest of the occurrences. Sums are exact, so files can be merged in any
order and grouping. The ids of events are there because an event belongs to one partition; the
digest of the content tells that the same partition comes twice.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, InputError, LimitError, MismatchError
from .._kernels.stretches import check_run
from ..events import StreamHeader
from ..format import SOURCE_SUMMARY, Kind
from .batches import LedgerReader
from .ledger import Ledger
from .runs import RunWriter, Spilled

VERSION = 1

_MAGIC = b"TWLEDGER"
_HEAD = struct.Struct("<8sII")
_SECTION = struct.Struct("<4sIQ")
_EVENTS, _RUNS, _DONE = b"EVTS", b"RUNS", b"DONE"
_DIGEST_SIZE = 16
_LARGEST_SECTION = 1 << 31
_LARGEST_HEADER = 1 << 16
_EVENTS_AT_ONCE = 1 << 20
_HINT = "Export the partition again"

Write = Callable[[bytes], object]


def _digest(*parts: bytes | memoryview) -> bytes:
    octets = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for part in parts:
        octets.update(part)
    return octets.digest()


def _describe(ledger: Ledger) -> dict[str, Any]:
    """What must be equal in all that is merged."""
    header = ledger.header
    return {
        "kind": header.kind.value,
        "samples": header.len_sample,
        "summary_set": header.summary_set,
        "float_width": header.float_width,
        "periods": ledger.calendar.periods,
        "occurrences": ledger.calendar.digest(),
    }


# -- writing ---------------------------------------------------------------------


class _Sections(Spilled):
    """Writes sections, and digests their content; each piece of a run is one."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._content = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        self.count = 0

    def put(self, tag: bytes, payload: memoryview) -> None:
        head = _SECTION.pack(tag, 0, len(payload))
        checksum = _digest(head, payload)
        self._content.update(payload)
        self._write(head + checksum)
        self._write(bytes(payload))
        self.count += 1

    @property
    def digest(self) -> str:
        return self._content.hexdigest()

    def append(self, data: memoryview) -> None:
        self.put(_RUNS, data)

    def read_into(self, offset: int, target: memoryview) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back."""


def export_ledger(ledger: Ledger, write: Write) -> str:
    """Write a ledger as a partial file.

    Args:
        ledger: to which blocks may be added later on.
        write: takes the next bytes.

    Returns:
        The digest of the content, 32 hexadecimal digits.
    """
    text = json.dumps(_describe(ledger), sort_keys=True).encode()
    head = _HEAD.pack(_MAGIC, VERSION, len(text)) + text
    write(head + _digest(head))
    sections = _Sections(write)
    events = ledger.events()
    for begin in range(0, len(events), _EVENTS_AT_ONCE):
        ids = np.ascontiguousarray(events[begin : begin + _EVENTS_AT_ONCE])
        sections.put(_EVENTS, ids.view(np.uint8).data)
    samples, width = ledger.header.len_sample, ledger.header.float_width
    writer = RunWriter(samples, width, sections)
    reader = LedgerReader(ledger, lambda cells, _references: np.zeros_like(cells))
    for part in reader.parts(ledger.budget // 8):
        arena, keys, places = reader.load(part)
        writer.write(keys, places, arena)
    end = {
        "digest": sections.digest,
        "events": len(events),
        "partitions": sorted(ledger.partitions),
        "sections": sections.count,
    }
    sections.put(_DONE, memoryview(json.dumps(end, sort_keys=True).encode()))
    return str(end["digest"])


# -- reading ---------------------------------------------------------------------


class _Section(NamedTuple):
    tag: bytes
    offset: int
    """Offset of its first byte in the file."""
    payload: bytes


class _Source:
    """Takes bytes apart, and knows where it stands."""

    def __init__(self, pieces: Iterable[bytes], name: str | None) -> None:
        self._pieces = iter(pieces)
        self._held = bytearray()
        self.offset = 0
        self.name = name

    def fault(self, message: str, offset: int) -> FormatError:
        return FormatError(message, offset=offset, hint=_HINT, source=self.name)

    def take(self, size: int, subject: str) -> bytes:
        """The next bytes.

        Raises:
            FormatError: the file ends before.
        """
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                end = self.offset + len(self._held)
                raise self.fault(f"the partial file ends inside {subject}", end)
            self._held += piece
        result = bytes(self._held[:size])
        del self._held[:size]
        self.offset += size
        return result

    def at_end(self) -> bool:
        """Whether no byte follows."""
        while not self._held and (piece := next(self._pieces, None)) is not None:
            self._held += piece
        return not self._held


def _read_header(source: _Source) -> dict[str, Any]:
    head = source.take(_HEAD.size, "its header")
    magic, version, length = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise source.fault("this is not a partial file: it does not begin with TWLEDGER", 0)
    if version != VERSION:
        raise source.fault(f"partial files of version {version} are not known", len(_MAGIC))
    if length > _LARGEST_HEADER:
        raise source.fault(f"the header is said to have {length} bytes", len(_MAGIC) + 4)
    text = source.take(length, "its header")
    if source.take(_DIGEST_SIZE, "its header") != _digest(head, text):
        raise source.fault("the header is damaged: its checksum differs", 0)
    described: dict[str, Any] = json.loads(text)
    return described


def _read_sections(source: _Source) -> Iterator[_Section]:
    tag = b""
    while tag != _DONE:
        offset = source.offset
        head = source.take(_SECTION.size, "a section's header")
        tag, _, length = _SECTION.unpack(head)
        if tag not in {_EVENTS, _RUNS, _DONE} or length > _LARGEST_SECTION:
            raise source.fault("a section is damaged: its header is of no section", offset)
        checksum = source.take(_DIGEST_SIZE, "a section's header")
        payload = source.take(length, f"its section {tag.decode()}")
        if checksum != _digest(head, payload):
            raise source.fault(f"section {tag.decode()} is damaged: its checksum differs", offset)
        yield _Section(tag, offset, payload)
    if not source.at_end():
        raise source.fault("bytes follow the end of the partial file", source.offset)


def _check_same(described: dict[str, Any], ledger: Ledger, source: _Source) -> None:
    expected = _describe(ledger)
    for name, value in expected.items():
        if described.get(name) == value:
            continue
        if name == "occurrences":
            raise InputError(
                "the partial file was made with other occurrences",
                hint="Partitions of a run have the same occurrences",
                source=source.name,
            )
        noun = name.replace("_", " ")
        raise MismatchError(
            f"the partial file has {noun} {described.get(name)}, and the run {value}",
            hint="Partitions of one run have the same kind, sample count, set and periods",
            source=source.name,
        )


def header_of(pieces: Iterable[bytes], name: str | None = None) -> StreamHeader:
    """What stream a partial file is of.

    Raises:
        FormatError: it is damaged or foreign.
    """
    described = _read_header(_Source(pieces, name))
    return StreamHeader(
        Kind(described["kind"]),
        1,
        SOURCE_SUMMARY,
        described["samples"],
        described["summary_set"],
        described["float_width"],
    )


def import_ledger(
    ledger: Ledger, pieces: Iterable[bytes], name: str | None = None, *, merges: bool = True
) -> None:
    """Add a partial file to a ledger; after an error the ledger must not be used.

    Args:
        ledger: of the same kind of run.
        pieces: bytes of the file, in any pieces.
        name: of the file, for messages.
        merges: whether it is another partition, rather than the ledger's own earlier state.

    Raises:
        FormatError: the file is damaged or foreign; with the byte offset.
        MismatchError: it is of other streams, the same partition again, or has an event that
            another partition has.
        InputError: it was made with other occurrences.
        LimitError: it is larger than the memory budget, and nothing can be spilled.
    """
    source = _Source(pieces, name)
    _check_same(_read_header(source), ledger, source)
    samples, width = ledger.header.len_sample, ledger.header.float_width
    octets = None if ledger.spill is None else ledger.spill.create()
    writer = RunWriter(samples, width, octets)
    events: list[npt.NDArray[np.int32]] = []
    end: dict[str, Any] = {}
    words_in_all = sum(run.words for run in ledger.runs)
    for section in _read_sections(source):
        if section.tag == _EVENTS:
            events.append(_checked_events(section, events, source))
        elif section.tag == _RUNS:
            words = _checked_words(section, ledger, source)
            words_in_all += len(words)
            if octets is None and 4 * words_in_all > ledger.budget:
                raise LimitError(
                    f"the partial files need more memory than the budget of {ledger.budget} bytes",
                    limit="memory",
                    allowed=ledger.budget,
                    hint="Raise the memory budget, or let the ledger spill to a disk",
                    source=name,
                )
            unsorted = writer.append(words)
            if unsorted is not None:
                place = section.offset + 4 * unsorted
                raise source.fault("summaries or periods of a section do not ascend", place)
        else:
            end = json.loads(section.payload)
    ids = np.concatenate([np.zeros(0, np.int32), *events])
    if merges:
        _check_new(ledger, ids, end, source)
    if len(ids):
        ledger.partitions += end["partitions"] or ([end["digest"]] if merges else [])
    ledger.add_run(writer.finish(), ids)


def _checked_events(
    section: _Section, before: list[npt.NDArray[np.int32]], source: _Source
) -> npt.NDArray[np.int32]:
    if len(section.payload) % 4:
        raise source.fault("a section of events is cut", section.offset)
    ids = np.frombuffer(section.payload, np.int32)
    last = int(before[-1][-1]) if before else 0
    if len(ids) == 0 or ids[0] <= last or np.any(np.diff(ids) <= 0):
        raise source.fault("ids of events do not ascend", section.offset)
    return ids


def _checked_words(section: _Section, ledger: Ledger, source: _Source) -> npt.NDArray[np.int32]:
    longs = np.zeros(-(-len(section.payload) // 8), np.int64)
    longs.view(np.uint8)[: len(section.payload)] = np.frombuffer(section.payload, np.uint8)
    words = longs.view(np.int32)
    sizes = (ledger.header.len_sample, ledger.header.float_width, ledger.calendar.periods)
    status = check_run(words, longs, longs.view(np.float64), longs.view(np.float32), *sizes)
    if status < 0 or len(section.payload) % 8:
        raise source.fault(
            "a section holds a stretch that cannot be one", section.offset + 4 * (-1 - status)
        )
    return words


def _check_new(
    ledger: Ledger, ids: npt.NDArray[np.int32], end: dict[str, Any], source: _Source
) -> None:
    """Refuse a partition, or an event, that is in the ledger already."""
    if len(ids) == 0:
        return
    digests = set(end["partitions"] or [end["digest"]])
    if digests & set(ledger.partitions):
        raise MismatchError(
            "the same partition comes a second time",
            hint="Name each partial file once; a merged file holds the partitions it was made of",
            source=source.name,
        )
    both = np.intersect1d(ids, ledger.events(), assume_unique=True)
    if len(both):
        raise MismatchError(
            f"{len(both)} of its events are in another partition too, the first is event {both[0]}",
            event=int(both[0]),
            hint="An event belongs to one partition: its losses would count twice",
            source=source.name,
        )
