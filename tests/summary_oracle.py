"""Summary streams computed slowly and obviously, to compare ours and the peer's with."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from core.losses.events import Event
from core.losses.inputs import SummaryMap, SummaryXref
from tests.streams import LETTERS, Stream

Sums = Literal["exact", "peer"]


class Pairs(NamedTuple):
    """One block of items."""

    event: int
    item: int
    losses: Mapping[int, float]
    """By sidx."""


@dataclass(frozen=True)
class Sets:
    """An xref and, if risks are counted, a map."""

    rows: tuple[tuple[int, int, int], ...]
    """(item, summary, set)."""
    risks: Mapping[int, int] | None = None
    """The location of each item."""

    @property
    def xref(self) -> SummaryXref:
        ids, summaries, sets = np.array(self.rows, np.int32).T
        return SummaryXref(ids, summaries, sets, None)

    @property
    def map(self) -> SummaryMap | None:
        if self.risks is None:
            return None
        ids, locations = np.array(list(self.risks.items()), np.int32).T
        return SummaryMap(ids, locations, np.zeros(len(ids), np.int32), "item_id")


def of_stream(stream: Stream) -> list[Pairs]:
    """The blocks of a stream as they are once encoded."""
    kind = np.dtype(f"f{stream.width}").type
    return [Pairs(b.event, b.ident, {s: float(kind(x)) for s, x in b.pairs}) for b in stream.blocks]


def of_events(events: Sequence[Event]) -> list[Pairs]:
    """The blocks of events as a reader returns them."""
    return [
        Pairs(
            event.event_id,
            int(ident),
            dict(zip(event.sidx[a:b].tolist(), event.losses[a:b].tolist(), strict=True)),
        )
        for event in events
        for ident, a, b in zip(event.block_ids, event.starts[:-1], event.starts[1:], strict=True)
    ]


class _Summary(NamedTuple):
    event: int
    ident: int
    losses: dict[int, list[float]]
    """By sidx, in the order of blocks."""
    risks: set[int]


def _gathered(blocks: Sequence[Pairs], sets: Sets, set_id: int) -> list[_Summary]:
    """The summaries of all events, in the order they are written."""
    summary_of = {item: summary for item, summary, number in sets.rows if number == set_id}
    events = {block.event: place for place, block in reversed(list(enumerate(blocks)))}
    found: dict[tuple[int, int], _Summary] = {}
    for block in blocks:
        ident = summary_of[block.item]
        summary = found.setdefault((block.event, ident), _Summary(block.event, ident, {}, set()))
        for sidx, loss in block.losses.items():
            summary.losses.setdefault(sidx, []).append(loss)
        if sets.risks is not None:
            summary.risks.add(sets.risks[block.item])
    return sorted(found.values(), key=lambda summary: (events[summary.event], summary.ident))


def _total(losses: Sequence[float], width: int, sums: Sums) -> float:
    kind = np.dtype(f"f{width}").type
    if sums == "exact":
        return float(kind(math.fsum(losses)))
    value = kind(0)
    for loss in losses:
        value = kind(value + kind(loss))
    return float(value)


def summarised(
    blocks: Sequence[Pairs],
    samples: int,
    width: int,
    sets: Sets,
    set_id: int,
    *,
    zeros: bool = False,
    sums: Sums = "exact",
) -> tuple[bytes, bytes]:
    """The stream of a set, and its index.

    Args:
        blocks: of the items.
        samples: len_sample.
        width: bytes of a loss.
        sets: the xref and the map.
        set_id: of the requested set.
        zeros: whether losses of 0 are written.
        sums: ``exact`` rounds exact sums; ``peer`` adds in float32, in the order of blocks.
    """
    letter = LETTERS[width]
    out = bytes([1, 0, 0, 3]) + struct.pack("<ii", samples, set_id)
    index = b""
    for summary in _gathered(blocks, sets, set_id):
        totals = {s: _total(losses, width, sums) for s, losses in summary.losses.items()}
        told = [loss for sidx, loss in totals.items() if sidx > 0 or sidx in {-3, -1}]
        if not (zeros or any(told)):
            continue
        index += struct.pack("<iq", summary.ident, len(out))
        pairs = [(-5, totals.get(-5, 0.0))]
        if sets.risks is not None:
            pairs.append((-4, float(len(summary.risks))))
        pairs.append((-1, totals.get(-1, 0.0)))
        pairs += [(s, totals.get(s, 0.0)) for s in range(1, samples + 1)]
        out += struct.pack(f"<ii{letter}", summary.event, summary.ident, totals.get(-3, 0.0))
        for sidx, loss in pairs:
            if sidx < 0 or zeros or loss:
                out += struct.pack(f"<i{letter}", sidx, loss)
        out += struct.pack(f"<i{letter}", 0, 0.0)
    return out, index
