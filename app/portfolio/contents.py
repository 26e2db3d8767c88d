"""What a loss set holds besides its description: losses, calendar, dimensions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.engine.ledger import Kept
from app.engine.request_budget import keep_for_request
from app.state.base import StoreDamagedError, damaged
from app.state.blobs import GrowingBlobs
from core.arrays import Floats, Indices
from core.losses.indexing import LossColumns
from core.losses.inputs import SummaryInfo
from core.portfolio.assembling import ends_of, places_of, spread
from core.portfolio.building import Part, TableBuilder
from core.portfolio.losses import Calendar, LossTable, Occurrences
from core.rng import bits, derive, uniform
from core.slices import digest, grouped, slices
from core.sorting import distinct

from .files import STAGE, LossesWriter, StoredLosses, decode_table, encode_table, read_losses
from .records import DIMENSIONS, KIND, LOSSES, OCCURRENCES, WEIGHTS, LossSet, LossSets, SetWriter

_ROWS = 1 << 16
"""Rows that are copied together."""
_LIKENESS = derive(0, "likeness of loss sets")
_GOLDEN = np.uint32(2654435769)
"""Whose multiples are spread evenly: a cheap number of each sample."""
_ROUNDING = 1e-6
"""By which sums of the same losses differ, in another width or added up otherwise."""
_PRINTED = 0.01
"""By which each may differ that was printed with two decimals; errors of many cancel."""
_MOST = 1e-4
"""Part of the sums by which other losses, of small amounts, may not differ as if printed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the losses of a set are counted and stored."""

    samples: int
    """Number of samples, beside the numerical mean."""
    width: int
    """Bytes of a loss."""


def write_contents(
    writer: SetWriter,
    parts: Iterable[Part],
    shape: Shape,
    calendar: Calendar,
    info: SummaryInfo | None,
) -> dict[str, Any]:
    """Write what a set holds; return what is to be said of it.

    Raises:
        CoreError, ServiceError: what yields the parts failed, or a store did.
    """
    metadata = {"thalweg": "loss set 1", "samples": str(shape.samples)}
    happens = calendar.occurrences
    means, sums, (known, _) = False, np.zeros(2), distinct(happens.event_ids, STAGE)
    with writer.part(LOSSES) as append:
        losses = LossesWriter(append, shape.width, metadata)
        for part in parts:
            losses.add(part)
            means = means or not part.samples.all()
            sums += _sums(part, known)
        losses.close()
    octets = encode_table(happens._asdict())
    writer.write(OCCURRENCES, octets)
    if len(calendar.weights):
        writer.write(WEIGHTS, encode_table({"weight": calendar.weights}))
    if info is not None:
        columns = {name: texts.tolist() for name, texts in info.columns.items()}
        writer.write(DIMENSIONS, encode_table({"summary_id": info.summary_ids, **columns}))
    catalogue = hashlib.blake2b(
        f"{calendar.periods} {calendar.dated} {calendar.granular}".encode(), digest_size=16
    )
    for array in (*happens, calendar.weights):
        digest(catalogue, np.ascontiguousarray(array).data.cast("B"), STAGE)
    return {
        "blocks": losses.blocks,
        "rows": losses.rows,
        "samples": shape.samples,
        "means": means,
        "float_width": shape.width,
        "periods": calendar.periods,
        "occurrences": len(happens.periods),
        "weighted": len(calendar.weights) > 0,
        "dated": calendar.dated,
        "granular": calendar.granular,
        "catalogue": catalogue.hexdigest(),
        "dimensions": [] if info is None else list(info.columns),
        "sums": sums.tolist(),
    }


def _sums(part: Part, happening: Indices) -> Floats:
    """Sums of losses times a number of their event, and times one of their sample, too.

    However events are cut into summaries, rows are ordered and losses are printed, these are nearly
    the same; of other losses they are not. Events that never happen do not count.
    """
    ends, sums = ends_of(part.counts), np.zeros(2)
    weights = uniform(_LIKENESS, part.event_ids.astype(np.uint64))
    weights *= places_of(part.event_ids, happening) >= 0
    for first, last in grouped(ends, STAGE, _ROWS):
        rows, begins = slice(ends[first], ends[last]), ends[first:last] - ends[first]
        losses = part.losses[rows].astype(np.float64)
        numbers = part.samples[rows].astype(np.uint32) * _GOLDEN / 2**32
        with np.errstate(over="ignore", invalid="ignore"):
            for k, values in enumerate((losses, losses * numbers)):
                sums[k] += np.add.reduceat(values, begins) @ weights[first:last]
    return sums


def happening(events: npt.NDArray[np.int32], calendar: Calendar) -> dict[str, Any]:
    """Say how many events have losses and never happen, and what identifies when the others do."""
    found, (periods, ids, _) = np.zeros(len(events), np.bool_), calendar.occurrences
    total = calendar.periods
    for a, b in slices(len(ids), STAGE, 1 << 17):
        at = places_of(ids[a:b], events)
        found[at[at >= 0]] = True
        keys = (periods[a:b].astype(np.int64) << 32 | ids[a:b])[at >= 0]
        total += int(bits(_LIKENESS, keys.astype(np.uint64)).sum())
    weights = hashlib.blake2b(digest_size=8)
    digest(weights, np.ascontiguousarray(calendar.weights).data.cast("B"), STAGE)
    never = int(np.count_nonzero(~found))
    return {
        "events": len(events),
        "happening": f"{total % (1 << 64):x} {weights.hexdigest()}",
        "left_out": {"events that never happen": never} if never else {},
    }


def likeness(one: LossSet, other: LossSet) -> str | None:
    """Say how two sets are of the same losses, which would count twice; None if they are not."""
    a, b = one.value, other.value

    def agree(*names: str) -> bool:
        return all(a.get(name) is not None and a.get(name) == b.get(name) for name in names)

    if agree("run"):
        return "is of the same run as"
    if agree("digest"):
        return "is the same losses as"
    if agree("streams", "catalogue"):
        return "is of a run of the same streams as"
    if not agree("happening"):
        return None
    own, others = (np.array(value["sums"], np.float64) for value in (a, b))
    printed = np.minimum(_PRINTED * a["rows"] ** 0.5, _MOST * np.abs(own))
    close = np.allclose(own, others, rtol=_ROUNDING, atol=printed)
    return "has the same losses by event and sample as" if close else None


class Built:
    """Parts of the columns of a stream, checked and counted as they pass.

    Args:
        columns: whole blocks of the stream.
        samples: its samples.
        source: its name, for messages.
        info: what its summaries are; None if nothing is described.

    Attributes:
        events: ids of those there were, ascending, once all have passed.
    """

    def __init__(
        self, columns: Iterable[LossColumns], samples: int, source: str, info: SummaryInfo | None
    ) -> None:
        self._columns = columns
        self._builder = TableBuilder(samples, source)
        self._info = info
        self._unknown = np.zeros(0, np.int32)
        self._lost = self._whole = 0.0
        self.events = np.zeros(0, np.int32)

    def __iter__(self) -> Any:  # noqa: ANN401 - a generator
        for columns in self._columns:
            part = self._builder.take(columns)
            if self._info is not None:
                unknown = places_of(part.summary_ids, self._info.summary_ids) < 0
                self._whole += float(part.losses.sum(dtype=np.float64))
                if unknown.any():
                    lost = part.losses[np.repeat(unknown, part.counts)]
                    self._lost += float(lost.sum(dtype=np.float64))
                    self._unknown = np.union1d(self._unknown, part.summary_ids[unknown])
            yield part
        self.events = self._builder.finish()

    def notes(self) -> list[str]:
        """Tell of summaries that are not described, once all have passed."""
        if not len(self._unknown):
            return []
        share = 100 * self._lost / self._whole
        many = f"{len(self._unknown)} of the summaries with a loss, whose dimensions are empty"
        return [f"summary_info leaves out {many}: {share:.3g} % of the losses of all events"]


def parts_of(table: LossTable) -> Iterable[Part]:
    """Yield the rows of a table, some blocks at a time, in order of event and summary."""
    events = np.repeat(table.event_ids, np.diff(table.event_starts))
    for first, last in grouped(ends_of(table.counts), STAGE, _ROWS):
        counts = table.counts[first:last]
        yield Part(
            events[first:last],
            table.summary_ids[first:last],
            counts,
            table.samples[spread(table.samples_at[first:last], counts)],
            table.losses[spread(table.losses_at[first:last], counts)],
        )


@dataclass(frozen=True, slots=True, eq=False)
class OpenSet:
    """A loss set whose content can be computed with."""

    record: LossSet
    losses: StoredLosses
    calendar: Calendar
    info: SummaryInfo | None
    """Dimensions of its summaries."""
    summaries: npt.NDArray[np.int32]
    """Ids of those with a loss, ascending."""
    nbytes: int
    """Memory that it takes."""

    @property
    def samples(self) -> int:
        """Number of samples, beside the numerical mean."""
        samples: int = self.record.value["samples"]
        return samples


def open_set(blobs: GrowingBlobs, record: LossSet) -> OpenSet:
    """Open a loss set.

    Raises:
        StoreDamagedError: its content is not what was written.
        BlobMissingError: it was deleted.
        CoreError, ServiceError: there is no memory for it.
    """
    document = record.value
    size = record.size(LOSSES) or 0
    losses = read_losses(blobs, KIND, record.blob(LOSSES), size, document["float_width"])
    tables = {part: _table(blobs, record, part) for part in (OCCURRENCES, WEIGHTS, DIMENSIONS)}
    happens = tables[OCCURRENCES]
    calendar = Calendar(
        document["periods"],
        Occurrences(**{name: happens[name] for name in Occurrences._fields}),
        tables[WEIGHTS].get("weight", np.zeros(0)),
        dated=document["dated"],
        granular=document["granular"],
    )
    info = None
    if tables[DIMENSIONS]:
        ids = tables[DIMENSIONS].pop("summary_id")
        info = SummaryInfo(ids, tables[DIMENSIONS])
    texts = 0 if info is None else sum(column.nbytes for column in info.columns.values())
    others = sum(record.size(part) or 0 for part in tables)
    summaries = distinct(losses.table.summary_ids, STAGE)[0].astype(np.int32)
    return OpenSet(record, losses, calendar, info, summaries, losses.nbytes + others + texts)


_TEXT_COPIES = 4
"""Copies of a table in memory while it is read, those of texts as objects among them."""


def _table(blobs: GrowingBlobs, record: LossSet, part: str) -> dict[str, Any]:
    size = record.size(part)
    if size is None:
        return {}
    keep_for_request(STAGE, size * (_TEXT_COPIES if part == DIMENSIONS else 1))
    data = bytearray()
    for begin, end in slices(size, STAGE, 64 << 20):
        data += blobs.range(KIND, record.blob(part), begin, end)
    if len(data) != size:
        raise damaged(KIND, record.id)
    return decode_table(bytes(data))


@dataclass(frozen=True, slots=True)
class SetSource:
    """Loss sets, of which it keeps the last few open."""

    sets: LossSets
    opened: Kept[OpenSet]

    def open(self, record: LossSet) -> OpenSet:
        """Open a loss set.

        Raises:
            CoreError, ServiceError: its content is damaged, or there is no memory for it.
        """

        def opened() -> tuple[OpenSet, int]:
            found = open_set(self.sets.blobs, record)
            return found, found.nbytes

        return self.opened.get(record.value["attempt"], opened)

    def check(self, sets: Sequence[OpenSet]) -> None:
        """Check that the disk has delivered all that was read of sets so far.

        Raises:
            StoreDamagedError: a part was read as zeros; the set is opened anew the next time.
        """
        for each in sets:
            try:
                each.losses.check()
            except StoreDamagedError:
                self.opened.forget(each.record.value["attempt"])
                raise
