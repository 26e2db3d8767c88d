"""Inspect a stream: its header, counts and order, and its first fault."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from core.arrays import Rows
from core.errors import CoreError
from core.losses.analysis import Analysis
from core.losses.events import StreamHeader
from core.losses.format import SOURCE_CDF, TYPE_SIZE, TYPES
from core.losses.policy import Policy

from .sources import Source, Sources


@dataclass(slots=True)
class Findings:
    """Facts about one stream, up to its end or its first fault."""

    source: str
    header: StreamHeader | None = None
    bytes: int = 0
    """Bytes of the header and of whole blocks."""
    events: int = 0
    blocks: int = 0
    pairs: int = 0
    first_event: int | None = None
    lowest_event: int | None = None
    highest_event: int | None = None
    most_blocks: int = 0
    """Number of blocks of the event that has the most."""
    ascending: bool = True
    fault: CoreError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the findings as a JSON object."""
        values = {name: getattr(self, name) for name in self.__slots__}
        if self.header is not None:
            values["header"] = asdict(self.header) | {"kind": self.header.kind.value}
        if self.fault is not None:
            f = self.fault
            values["fault"] = {
                "code": f.code,
                "message": f.message,
                "offset": f.offset,
                "event": f.event,
                "block": f.block,
                "hint": f.hint,
            }
        return values

    def note_events(self, rows: Rows) -> None:
        """Add rows of the ``events`` report."""
        ids = rows["EventId"]
        if self.first_event is None:
            self.first_event = int(ids[0])
        self.lowest_event = min(int(ids.min()), self.lowest_event or int(ids.min()))
        self.highest_event = max(int(ids.max()), self.highest_event or 0)
        self.most_blocks = max(self.most_blocks, int(rows["Blocks"].max()))


def looks_like_stream(name: str) -> bool:
    """Whether a file begins like a loss stream, or can be read only once.

    Raises:
        InputError: the file cannot be opened.
    """
    source = Source(name)
    try:
        if source.size is None:
            return True
        head = os.pread(source.fd, 12, 0)
    finally:
        source.close()
    if len(head) < TYPE_SIZE:
        return True
    aggregation, low, high, source_type = head[:TYPE_SIZE]
    return (source_type, aggregation) in TYPES or (low | high | source_type) == SOURCE_CDF


def inspect(name: str, policy: Policy) -> Findings:
    """Read one stream to its end or its first fault.

    Raises:
        InputError: the stream cannot be opened or read.
    """
    with Sources([name]) as sources:
        findings = Findings(sources.sources[0].name)
        analysis = Analysis(
            ["events"], lambda _name, rows: findings.note_events(rows), policy=policy
        )
        try:
            while (piece := sources.read()) is not None:
                if len(piece[1]):
                    analysis.receive(piece[1])
            analysis.close()
        except CoreError as e:
            findings.fault = e
    findings.header = analysis.header
    findings.bytes = analysis.offset
    findings.events = analysis.events
    findings.blocks = analysis.blocks
    findings.pairs = analysis.pairs
    findings.ascending = analysis.ascending
    return findings
