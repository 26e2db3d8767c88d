"""Generated loss streams and matching auxiliary files, for trials and measurements.

The portfolio is invented but behaves like one: an event touches some of the
summaries or items, a severity common to all of them makes some events far worse
than others, losses are heavy-tailed and capped by exposure, and samples without a
loss are left out. The same specification gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from core.errors import InputError

from . import inputs
from .format import (
    FLOAT_WIDTHS,
    LOSS_DTYPES,
    MAX_SAMPLES,
    SIDX_CHANCE,
    SIDX_MAX_LOSS,
    SIDX_MEAN,
    SIDX_STD_DEV,
    SIDX_TIV,
    SOURCE_LOSS,
    SOURCE_SUMMARY,
    Kind,
    pair_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    _Floats = NDArray[np.floating[Any]]

T = TypeVar("T")
_MAX_EVENTS: Final = 10_000_000
_MAX_SUMMARIES: Final = 1_000_000
_HINT: Final = "Correct the specification of the sample"

_SPECIALS: Final = {
    Kind.SUMMARY: (SIDX_MAX_LOSS, SIDX_CHANCE, SIDX_MEAN),
    Kind.GUL: (SIDX_MAX_LOSS, SIDX_CHANCE, SIDX_TIV, SIDX_STD_DEV, SIDX_MEAN),
}
"""Special sidx of a block, in the order they are written."""

_CHUNK_SIZE: Final = 1 << 20
_CELLS_AT_ONCE: Final = 1 << 21
"""Samples, with a loss or without, made together; bounds the memory of sparse streams."""
_TOUCHES_AT_ONCE: Final = 1 << 18
"""Pairs of event and summary decided on together."""

_EXPOSURE_MEDIAN: Final = 1.0e6
_DAMAGE_MEDIAN: Final = 0.01
# Standard deviations of the logarithm, each of a lognormal factor.
_EXPOSURE_SPREAD: Final = 1.2
_EVENT_SPREAD: Final = 1.3
_BLOCK_SPREAD: Final = 0.6
_SAMPLE_SPREAD: Final = 0.8
_DENSITY_WEIGHT: Final = 8.0
"""Sum of the parameters of the beta distribution of a block's density: a wide bell."""
_MEAN_ERROR: Final = 0.02
"""Share by which the analytical mean misses the mean of the samples at the most."""
_MAX_RISKS: Final = 20
"""A summary stream has the number of affected risks where an item stream has the chance."""

_MIN_PERIODS: Final = 1000
_MAX_PERIODS: Final = 1_000_000
_PERIODS_PER_EVENT: Final = 10
_MEAN_REPEATS: Final = 1.5
"""How often an event occurs after the first time, on average."""
_DAYS: Final = 28
"""Days of a month that events occur on: those that all months have."""
_REGIONS: Final = 10
"""Regions that summaries, or the items of a gul stream, lie in."""
_RETURN_PERIODS: Final = (1000, 500, 250, 200, 100, 50, 25, 10, 5, 2)
_QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

# A generator each, so that one does not change with what another one draws.
_SEED_EXPOSURES: Final = 0
_SEED_STREAM: Final = 1
_SEED_OCCURRENCE: Final = 2
_SEED_PERIODS: Final = 3


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What to generate.

    Raises:
        InputError: a value is out of range.
    """

    events: int = 1000
    """Number of events, 1 to 10 million; their ids are 1 to this, ascending."""
    summaries: int = 10
    """Summaries, or items of a gul stream, that an event can touch; 1 to 1 million."""
    samples: int = 100
    """len_sample of the stream, 1 to 1 million."""
    density: float = 0.5
    """Mean share of samples with a loss, above 0 to 1; it varies from block to block."""
    seed: int = 1
    """Not negative."""
    kind: Kind = Kind.SUMMARY
    """SUMMARY, or GUL for an item stream as gulmc and gulpy write it: of source type 2."""
    float_width: int = 4
    """Bytes of a loss, 4 or 8."""
    periods: int = 0
    """Periods of the auxiliary files, 1,000 to 1 million; 0 chooses ten for each event within these
    bounds."""

    def __post_init__(self) -> None:
        bounds = {"events": _MAX_EVENTS, "summaries": _MAX_SUMMARIES, "samples": MAX_SAMPLES}
        if self.periods == 0:
            periods = min(max(_MIN_PERIODS, _PERIODS_PER_EVENT * self.events), _MAX_PERIODS)
            object.__setattr__(self, "periods", periods)
        if not _MIN_PERIODS <= self.periods <= _MAX_PERIODS:
            message = f"periods {self.periods} is not in {_MIN_PERIODS} to {_MAX_PERIODS}"
            raise InputError(message, hint=_HINT)
        for name, most in bounds.items():
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise InputError(f"{name} {value} is not in 1 to {most}", hint=_HINT)
        if not 0 < self.density <= 1:
            raise InputError(f"density {self.density} is not above 0 and up to 1", hint=_HINT)
        if self.seed < 0:
            raise InputError(f"seed {self.seed} is negative", hint=_HINT)
        if self.kind not in _SPECIALS:
            message = f"streams of kind {self.kind.value} are not generated"
            raise InputError(message, hint="Choose summary, or gul for an item stream")
        if self.float_width not in FLOAT_WIDTHS:
            raise InputError(f"float width {self.float_width} is not 4 or 8", hint=_HINT)


def _generator(spec: SampleSpec, *purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([spec.seed, *purpose]))


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Blocks of a stream but for their losses; arrays of shape (blocks,)."""

    event_ids: NDArray[np.int64]
    ids: NDArray[np.int64]
    """Summary or item ids."""
    damage: NDArray[np.float64]
    """Median share of the exposure that is lost in a sample with a loss."""
    density: NDArray[np.float64]
    """Share of samples with a loss."""

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> _Blocks:
        """Blocks from ``start`` to before ``stop``."""
        at = slice(start, stop)
        return _Blocks(self.event_ids[at], self.ids[at], self.damage[at], self.density[at])


def generate_stream(spec: SampleSpec, part: int = 1, of: int = 1) -> Iterator[bytes]:
    """Generate a loss stream, or one of several that share its events.

    Args:
        spec: what to generate.
        part: number of the partition, from 1.
        of: number of partitions, at most the number of events.

    Yields:
        The header, then whole blocks: about 1 MiB at a time, and at least one.
    """
    is_summary = spec.kind is Kind.SUMMARY
    source = SOURCE_SUMMARY if is_summary else SOURCE_LOSS
    header = [source << 24 | 1, spec.samples, *([1] if is_summary else [])]
    yield np.array(header, "<i4").tobytes()
    exposures = _make_exposures(spec)
    rng = _generator(spec, _SEED_STREAM, *([part] if of > 1 else []))
    begin, end = (1 + spec.events * k // of for k in (part - 1, part))
    absent = (1 - spec.density) * spec.samples * pair_size(spec.float_width)
    mean_size = _block_layout(spec).itemsize - absent
    step = max(1, min(int(_CHUNK_SIZE / mean_size), _CELLS_AT_ONCE // spec.samples))
    events_at_once = max(1, _TOUCHES_AT_ONCE // spec.summaries)
    for first in range(begin, end, events_at_once):
        event_ids = np.arange(first, min(first + events_at_once, end))
        blocks = _make_blocks(spec, rng, event_ids)
        for start in range(0, len(blocks), step):
            yield _encode(spec, rng, exposures, blocks.part(start, start + step))


def _make_exposures(spec: SampleSpec) -> _Floats:
    """Exposure of each summary or item, as the stream has it so that it caps exactly."""
    rng = _generator(spec, _SEED_EXPOSURES)
    exposures = rng.lognormal(np.log(_EXPOSURE_MEDIAN), _EXPOSURE_SPREAD, spec.summaries)
    whole_thousands = np.ceil(exposures / 1000) * 1000
    return whole_thousands.astype(LOSS_DTYPES[spec.float_width])


def _make_blocks(
    spec: SampleSpec, rng: np.random.Generator, event_ids: NDArray[np.int64]
) -> _Blocks:
    """Decide what the events touch and how badly, in the order of the stream."""
    events = len(event_ids)
    footprint = rng.random((events, 1))
    touched = rng.random((events, spec.summaries)) < footprint
    touched[np.arange(events), rng.integers(spec.summaries, size=events)] = True
    rows, columns = np.nonzero(touched)
    severity = rng.normal(0, _EVENT_SPREAD, events)[rows]
    severity += rng.normal(0, _BLOCK_SPREAD, len(rows))
    density = np.ones(len(rows))
    if spec.density < 1:
        with_loss = _DENSITY_WEIGHT * spec.density
        density = rng.beta(with_loss, _DENSITY_WEIGHT - with_loss, len(rows))
        # The beta distribution of a low density underflows to 0, when nothing is lost.
        density = np.maximum(density, spec.density / 1000)
    damage = _DAMAGE_MEDIAN * np.exp(severity)
    return _Blocks(event_ids[rows], columns + 1, damage, density)


def _block_layout(spec: SampleSpec) -> np.dtype[np.void]:
    """Record of a block in which every sample has a loss."""
    loss = LOSS_DTYPES[spec.float_width]
    pairs = len(_SPECIALS[spec.kind]) + spec.samples + 1
    exposure = [("exposure", loss)] if spec.kind is Kind.SUMMARY else []
    pair = np.dtype([("sidx", "<i4"), ("loss", loss)])
    return np.dtype([("event_id", "<i4"), ("id", "<i4"), *exposure, ("pairs", pair, (pairs,))])


def _encode(
    spec: SampleSpec, rng: np.random.Generator, all_exposures: _Floats, blocks: _Blocks
) -> bytes:
    """Draw the losses of the blocks and pack those that are not 0."""
    exposures = all_exposures[blocks.ids - 1]
    losses = _draw_losses(spec, rng, exposures, blocks)
    specials = _special_losses(rng, losses, exposures, blocks)
    sidx = _SPECIALS[spec.kind]
    records = np.zeros(len(blocks), _block_layout(spec))
    records["event_id"] = blocks.event_ids
    records["id"] = blocks.ids
    if spec.kind is Kind.SUMMARY:
        records["exposure"] = exposures
        specials[SIDX_CHANCE] = rng.integers(1, _MAX_RISKS, len(blocks), endpoint=True)
    pairs = records["pairs"]
    pairs["sidx"][:, :-1] = [*sidx, *range(1, spec.samples + 1)]
    for column, special in enumerate(sidx):
        pairs["loss"][:, column] = specials[special]
    pairs["loss"][:, len(sidx) : -1] = losses
    # All fields are whole words of four bytes, and so are the gaps to squeeze out.
    words = records.view("<i4").reshape(len(blocks), -1)
    keep = np.ones(words.shape, np.bool_)
    with_loss = losses > 0
    pair_words = pairs.dtype.itemsize // 4
    stop = words.shape[1] - pair_words
    start = stop - spec.samples * pair_words
    for word in range(pair_words):
        keep[:, start + word : stop : pair_words] = with_loss
    return words[keep].tobytes()


def _draw_losses(
    spec: SampleSpec, rng: np.random.Generator, exposures: _Floats, blocks: _Blocks
) -> _Floats:
    """Losses of all samples, 0 where there is none; shape (blocks, samples)."""
    shape = (len(blocks), spec.samples)
    losses = rng.standard_normal(shape, dtype=exposures.dtype.type)
    losses *= _SAMPLE_SPREAD
    losses += np.log(blocks.damage)[:, None].astype(exposures.dtype)
    np.exp(losses, out=losses)
    np.minimum(losses, 1, out=losses)
    losses *= exposures[:, None]
    losses *= rng.random(shape, dtype=np.float32) < blocks.density[:, None].astype(np.float32)
    return losses


def _special_losses(
    rng: np.random.Generator, losses: _Floats, exposures: _Floats, blocks: _Blocks
) -> dict[int, NDArray[Any]]:
    """Losses of the special sidx of an item stream, each of shape (blocks,)."""
    sampled = losses.mean(axis=1, dtype=np.float64)
    error = rng.uniform(1 - _MEAN_ERROR, 1 + _MEAN_ERROR, len(blocks))
    expected = np.minimum(blocks.damage, 1) * blocks.density * exposures
    means = np.where(sampled > 0, sampled * error, expected)
    return {
        SIDX_MAX_LOSS: exposures,
        SIDX_CHANCE: blocks.density,
        SIDX_TIV: exposures,
        SIDX_STD_DEV: losses.std(axis=1, dtype=np.float64),
        SIDX_MEAN: np.minimum(means, exposures),
    }


def generate_inputs(spec: SampleSpec) -> dict[str, bytes]:
    """Generate auxiliary files for the events of a stream.

    Args:
        spec: of the stream; its samples and losses do not matter.

    Returns:
        Contents by file name: ``occurrence``, ``periods``, ``returnperiods`` and
        ``quantile``, each as ``.bin`` and ``.csv``, ``event_rates.csv`` and ``summary_info.csv``,
        and of a gul stream ``gulsummaryxref``, with the items by region in set 1 and all of
        them in set 2. Every event occurs, its rate is its occurrences over the number of periods,
        and the weights of the periods add up to 1.
    """
    weights = _generator(spec, _SEED_PERIODS).gamma(4, size=spec.periods)
    years = inputs.ReturnPeriods(np.array(_RETURN_PERIODS, np.int32))
    return {
        **_occurrence_files(spec),
        **_files("periods", inputs.encode_periods, inputs.Periods(weights / weights.sum())),
        **_files("returnperiods", inputs.encode_return_periods, years),
        **_files("quantile", inputs.encode_quantiles, np.array(_QUANTILES)),
        **_summary_files(spec),
    }


def _summary_files(spec: SampleSpec) -> dict[str, bytes]:
    """What summaries are and, of a stream of items, which items they are of."""
    items = np.arange(1, spec.summaries + 1, dtype=np.int32)
    regions = 1 + (items - 1) % _REGIONS
    has_items = spec.kind is Kind.GUL
    ids = np.unique(regions) if has_items else items
    info = inputs.SummaryInfo(ids, {"Region": (1 + (ids - 1) % _REGIONS).astype(np.str_)})
    files = {"summary_info.csv": inputs.encode_summary_info(info)}
    if has_items:
        summaries = np.concatenate([regions, np.ones_like(items)])
        sets = np.repeat(np.array([1, 2], np.int32), len(items))
        xref = inputs.SummaryXref(np.tile(items, 2), summaries, sets, "item_id")
        files |= _files("gulsummaryxref", inputs.encode_summary_xref, xref)
    return files


def _occurrence_files(spec: SampleSpec) -> dict[str, bytes]:
    """Occurrences by event and then period; the year is the period."""
    rng = _generator(spec, _SEED_OCCURRENCE)
    counts = 1 + rng.poisson(_MEAN_REPEATS, spec.events)
    events = np.arange(1, spec.events + 1, dtype=np.int32)
    event_ids = np.repeat(events, counts)
    years = rng.integers(1, spec.periods, len(event_ids), endpoint=True)
    years = years[np.lexsort((years, event_ids))]
    months = rng.integers(1, 12, len(event_ids), endpoint=True)
    days = rng.integers(1, _DAYS, len(event_ids), endpoint=True)
    dates = inputs.day_ids(years, months, days)
    occurrence = inputs.Occurrence(spec.periods, event_ids, years.astype(np.int32), dates)
    rates = inputs.EventRates(events, counts / spec.periods)
    return {
        **_files("occurrence", inputs.encode_occurrence, occurrence),
        "event_rates.csv": inputs.encode_event_rates(rates, "csv"),
    }


def _files(stem: str, encode: Callable[[T, inputs.Form], bytes], table: T) -> dict[str, bytes]:
    """One table, packed and as csv."""
    return {f"{stem}.bin": encode(table, "bin"), f"{stem}.csv": encode(table, "csv")}
