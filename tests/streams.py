"""Loss streams made by hand, strategies that draw them, and ways of feeding them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from core.arrays import Rows
from core.errors import CoreError
from core.losses.analysis import Analysis
from core.losses.events import END, NEED_DATA, Event, StreamEnd
from core.losses.inputs import EventRates
from core.losses.reader import LossReader

LETTERS = {4: "f", 8: "d"}
TYPES = {"gul": (1, 1), "coverage": (2, 1), "loss": (1, 2), "summary": (1, 3)}
"""(aggregation, source) of each kind of stream."""

QUANTILES = np.array([0.0, 0.005, 0.1, 0.25, 0.5, 0.77, 0.9, 0.995, 1.0], np.float32)
ALL_REPORTS = ("events", "selt", "melt", "qelt")
Pairs = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Block:
    event: int
    ident: int
    pairs: Pairs = ()
    exposure: float = 100.0


@dataclass(frozen=True)
class Stream:
    kind: str
    samples: int
    width: int
    blocks: tuple[Block, ...]
    summary_set: int = 1

    @property
    def reports(self) -> tuple[str, ...]:
        return ALL_REPORTS if self.kind == "summary" else ("events",)

    @property
    def header(self) -> bytes:
        return make_header(self.kind, self.samples, self.summary_set)

    def encode_block(self, block: Block) -> bytes:
        letter = LETTERS[self.width]
        octets = struct.pack("<ii", block.event, block.ident)
        if self.kind == "summary":
            octets += struct.pack(f"<{letter}", block.exposure)
        pairs = itertools.chain(*block.pairs, (0, 0.0))
        return octets + struct.pack("<" + f"i{letter}" * (len(block.pairs) + 1), *pairs)

    def encode(self) -> bytes:
        return self.header + b"".join(map(self.encode_block, self.blocks))

    def boundaries(self) -> list[int]:
        """Offset behind the header and behind every block."""
        sizes = [len(self.encode_block(block)) for block in self.blocks]
        return list(itertools.accumulate(sizes, initial=len(self.header)))

    def with_blocks(self, blocks: Iterable[Block]) -> Stream:
        return replace(self, blocks=tuple(blocks))

    def sorted(self) -> Stream:
        """The same with its events in ascending order."""
        return self.with_blocks(sorted(self.blocks, key=lambda block: block.event))


def make_header(kind: str, samples: int, summary_set: int = 1) -> bytes:
    aggregation, source = TYPES[kind]
    octets = bytes([aggregation, 0, 0, source]) + struct.pack("<i", samples)
    return octets + (struct.pack("<i", summary_set) if kind == "summary" else b"")


# -- random streams ------------------------------------------------------------------


def random_losses(
    rng: np.random.Generator, count: int, values: str, negative: bool = False
) -> list[float]:
    if values == "zero":
        drawn = np.zeros(count)
    elif values == "equal":
        drawn = np.full(count, rng.uniform(0, 1e6))
    elif values == "few":
        drawn = rng.choice([0.0, 1.0, 2.5, 1000.0], count)
    elif values == "wide":
        drawn = 10.0 ** rng.uniform(-12, 12, count)
    else:
        drawn = rng.exponential(1e4, count) * (rng.random(count) > 0.1)
    if negative:
        drawn *= rng.choice([1.0, -1.0], count)
    return [float(x) for x in drawn]


VALUES = ("zero", "equal", "few", "wide", "any")


def random_pairs(
    rng: np.random.Generator,
    samples: int,
    density: float,
    values: str,
    negative: bool = False,
) -> Pairs:
    specials = [-s for s in rng.permutation(np.arange(1, 6))[: rng.integers(0, 6)].tolist()]
    present = np.flatnonzero(rng.random(samples) < density) + 1
    sidx = [*specials, *present.tolist()]
    return tuple(zip(sidx, random_losses(rng, len(sidx), values, negative), strict=True))


def random_stream(
    rng: np.random.Generator,
    *,
    kind: str = "summary",
    width: int = 4,
    samples: int = 100,
    events: int = 5,
    blocks: int = 4,
    negative: bool = False,
    highest: int = 2**31 - 1,
) -> Stream:
    """A valid stream: events in any order, ids anywhere, blocks of every density."""
    ids = set(rng.integers(1, highest, events, endpoint=True).tolist())
    made = []
    for event in rng.permutation(sorted(ids)).tolist():
        count = int(rng.integers(1, blocks, endpoint=True))
        idents = set(rng.integers(1, 2**31 - 1, count, endpoint=True).tolist())
        for ident in rng.permutation(sorted(idents)).tolist():
            density = float(rng.choice([0.0, 0.05, 0.5, 1.0]))
            pairs = random_pairs(rng, samples, density, str(rng.choice(VALUES)), negative)
            exposure = float(rng.choice([0.0, 1.0, 12345.678, 2e9]))
            made.append(Block(event, ident, pairs, exposure))
    return Stream(kind, samples, width, tuple(made))


_IDS = st.one_of(st.integers(1, 40), st.integers(4090, 4100), st.integers(1, 2**31 - 1))
_SAMPLES = st.one_of(
    st.integers(1, 9),
    st.sampled_from([63, 64, 65, 127, 128, 129]),
    st.integers(1, 200),
    st.integers(1000, 1100),
)


@st.composite
def streams(
    draw: st.DrawFn,
    kinds: Sequence[str] = tuple(TYPES),
    widths: Sequence[int] = (4, 8),
    max_samples: int = 1100,
    max_events: int = 5,
    *,
    negative: bool = False,
) -> Stream:
    """Valid streams of any kind, with a small structure that shrinks well."""
    kind = draw(st.sampled_from(list(kinds)))
    width = draw(st.sampled_from(list(widths)))
    samples = min(draw(_SAMPLES), max_samples)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    blocks = []
    for event in draw(st.lists(_IDS, max_size=max_events, unique=True)):
        for ident in draw(st.lists(_IDS, min_size=1, max_size=4, unique=True)):
            density = draw(st.sampled_from([0.0, 0.04, 0.5, 1.0]))
            values = draw(st.sampled_from(VALUES))
            pairs = random_pairs(rng, samples, density, values, negative)
            exposure = draw(st.sampled_from([0.0, 1.0, 0.1, 54321.0]))
            blocks.append(Block(event, ident, pairs, exposure))
    return Stream(kind, samples, width, tuple(blocks), draw(st.integers(0, 9)))


# -- feeding -------------------------------------------------------------------------


def bytewise(data: bytes) -> Iterator[bytes]:
    return (data[i : i + 1] for i in range(len(data)))


def in_threes(data: bytes) -> Iterator[bytes]:
    """Pieces whose cuts fall everywhere in an item, in a third of the calls that bytes take."""
    return (data[i : i + 3] for i in range(0, len(data), 3))


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def random_cuts(rng: np.random.Generator, data: bytes, cuts: int) -> list[bytes]:
    """Pieces between so many random places, which may coincide: empty pieces too."""
    return cut_at(data, rng.integers(0, len(data), cuts, endpoint=True).tolist())


Signature = tuple[str, str, str, int | None, int | None, int | None]
"""Class, code, message, offset, event and block of an error."""


def signature(error: CoreError) -> Signature:
    place = (error.offset, error.event, error.block)
    return (type(error).__name__, error.code, error.message, *place)


class Outcome(NamedTuple):
    rows: dict[str, bytes]
    end: StreamEnd | None
    error: Signature | None


class Collector:
    """A sink that keeps the bytes of the rows of each report."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def __call__(self, report: str, rows: Rows) -> None:
        assert len(rows), "the sink was given no rows"
        self.rows[report] = self.rows.get(report, b"") + rows.tobytes()


def analysis_options(reports: Sequence[str], rates: EventRates | None = None) -> dict[str, Any]:
    """What an analysis of these reports has to be given."""
    options: dict[str, Any] = {}
    if "qelt" in reports:
        options["quantiles"] = QUANTILES
    if "melt" in reports and rates is not None:
        options["event_rates"] = rates
    return options


def feed(pieces: Iterable[Any], reports: Sequence[str], **options: Any) -> Outcome:  # noqa: ANN401
    """Run an analysis over the pieces; a CoreError is part of the outcome."""
    collector = Collector()
    options = analysis_options(reports) | options
    analysis = Analysis(reports, collector, **options)
    end = error = None
    try:
        for piece in pieces:
            analysis.receive(piece)
        end = analysis.close()
    except CoreError as e:
        error = signature(e)
    return Outcome(collector.rows, end, error)


def rows_of(outcome: Outcome, report: str, dtype: npt.DTypeLike) -> Rows:
    rows: Rows = np.frombuffer(outcome.rows.get(report, b""), dtype)
    return rows


class Reading(NamedTuple):
    events: list[Event]
    end: StreamEnd | None
    error: Signature | None


def read(pieces: Iterable[Any], reader: LossReader) -> Reading:
    """Take every event of the pieces, as soon as each is whole."""
    events: list[Event] = []
    try:
        for piece in pieces:
            reader.receive(piece)
            while isinstance(got := reader.next_event(), Event):
                events.append(got)
            assert got is NEED_DATA
        reader.close()
        while isinstance(got := reader.next_event(), Event):
            events.append(got)
        assert got is END
    except CoreError as e:
        return Reading(events, None, signature(e))
    return Reading(events, reader.end, None)


def event_key(event: Event) -> tuple[Any, ...]:
    """An event as a value that compares."""
    arrays = (event.block_ids, event.exposures, event.starts, event.sidx, event.losses)
    return (event.event_id, event.offset, *(a.tobytes() for a in arrays))
