"""Several loss sets as one: a joint calendar, and what happens at each of its occurrences.

Sets of the same catalogue of events are added by event and sample. Those of another catalogue
are independent of the first: they are added by period, in a pairing that is drawn at random,
so that no year of one is tied to a year of the other. With P joint periods, period j of the joint
calendar takes ``order(j) mod p`` of a catalogue of p periods, where ``order`` is
``rng.Permutation(P, rng.derive(seed, "portfolio", catalogue, "periods"))``, and likewise each
sample becomes another one (path ``"samples"``). The first catalogue stays as it is. Every period
is taken P / p times, so means are those of the sets added. Years of independent catalogues are no
dates that go together: a period's dates count from 1 March of the year of its first occurrence. So
they keep their distances, those across the end of a year too, and their day of the year but for
January and February of a leap year. Occurrences without dates come before all others.

Or sets are models of the same risk, each of which has a share of the years: a blend. Its calendar
has the periods of one model after those of the other; in each, nothing of other models happens.
Of a model with share w and p equally likely periods, each weighs w / p. So every number is that of
the mixture: its mean is that of the means, and the chance of an excess that of the chances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Floats, Indices, Mask
from ..budget import current
from ..errors import InputError
from ..losses.inputs import calendar_dates, day_ids
from ..losses.inputs.rows import INT_MAX
from ..rng import Permutation, derive
from ..slices import slices
from ..sorting import order_of, starts_of
from .assembling import picked, places_of
from .losses import Calendar, Int32s, LossTable, Occurrences

_MINUTES = 1440
_BEFORE = 61 * _MINUTES
"""More than from 1 January to 1 March, in days or minutes."""
_OCCURRENCE_BYTES = 24
_WEIGHT_BYTES = 32
_SAMPLE_BYTES = 96
"""What all that has a value for each sample takes for one."""
_COMPARED = 64
"""Occurrences of a calendar that are looked for in another."""
_NEARLY_ALL = 0.95
_ROUNDING = 1e-9
"""By which part a quotient may miss the whole number that was meant."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A loss set, and what of it counts."""

    table: LossTable
    calendar: Calendar
    summaries: Int32s
    """Ids of the summaries that have a group, ascending."""
    groups: Int32s
    """Group of each from 0 on, or -1 to leave it out."""
    samples: int
    """len_sample."""
    factor: float = 1.0
    """By which losses are multiplied: a rate of exchange times a weight; above 0."""
    kept: Mask | None = None
    """Which occurrences of the calendar count, shape (occurrences,); all if None."""
    model: tuple[str, float] | None = None
    """In a blend the name of its model, and the share of that in the years."""


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """A calendar that several members share."""

    calendar: Calendar
    events: Int32s
    """Index of the event at each occurrence, of the events of all members one after the other; -1
    for none. Members of one catalogue have a row each; shape (rows, occurrences)."""
    sources: Int32s
    """Number of the catalogue of each occurrence, shape (occurrences,)."""
    mapped: list[Int32s]
    """Sample that each sample of a member becomes, from 0 on."""
    in_order: bool
    """Whether all samples stay as they are."""


def join(members: Sequence[Member], seed: int = 0, counted: Sequence[int] | None = None) -> Joint:
    """Bring the occurrences of members into one order.

    Args:
        members: one at least.
        seed: of the pairing of catalogues.
        counted: first and last joint period whose losses count; all without.

    Raises:
        InputError: the members do not go together, a factor is not above 0 and finite, or
            there is no such period.
        WorkStoppedError: the joint calendar does not fit, or nobody waits for it.
    """
    _check(members)
    joint = _joined(members, seed)
    if counted is not None:
        _leave_out(joint, *counted)
    return joint


def _joined(members: Sequence[Member], seed: int) -> Joint:
    catalogues: list[list[int]] = []
    for m, member in enumerate(members):
        own = next((c for c in catalogues if _together(members[c[0]], member)), None)
        if own is None:
            catalogues.append([m])
        else:
            own.append(m)
    bases = np.cumsum([0, *(len(member.table.event_ids) for member in members)])
    found = [[_find(members[m], int(bases[m])) for m in c] for c in catalogues]
    samples = members[0].samples
    current().hold("samples", _SAMPLE_BYTES * (samples + 1))
    mapped = [np.arange(samples + 1, dtype=np.int32)] * len(members)
    if len(catalogues) == 1:
        calendar = members[0].calendar
        sources = np.zeros(len(calendar.occurrences.periods), np.int32)
        return Joint(calendar, np.stack(found[0]), sources, mapped, in_order=True)
    calendars = [members[c[0]].calendar for c in catalogues]
    if any(member.model for member in members):
        joint, events, sources = _interleave(calendars, found, None)
        shares = [members[c[0]].model for c in catalogues]
        joint = replace(joint, weights=_blended(calendars, shares))
        return Joint(joint, events, sources, mapped, in_order=True)
    _check_pairing(calendars)
    for k, of_catalogue in enumerate(catalogues[1:], 1):
        order = Permutation(samples, derive(seed, "portfolio", k, "samples"))
        drawn = np.append(0, 1 + order.at(np.arange(samples))).astype(np.int32)
        for m in of_catalogue:
            mapped[m] = drawn
    joint, events, sources = _interleave(calendars, found, seed)
    return Joint(joint, events, sources, mapped, in_order=False)


def _leave_out(joint: Joint, low: int, high: int) -> None:
    """Let no event happen before one joint period and after another."""
    periods, numbers = joint.calendar.periods, joint.calendar.occurrences.periods
    if high > periods:
        message = f"filter.periods ends with {high}, and there are {periods:,} periods"
        raise InputError(message, parameter="filter.periods", hint=f"End with {periods}")
    joint.events[:, : np.searchsorted(numbers, low)] = -1
    joint.events[:, np.searchsorted(numbers, high, side="right") :] = -1


def _together(a: Member, b: Member) -> bool:
    """Whether two members are added event by event.

    Raises:
        InputError: those of one model are not of one catalogue.
    """
    if a.model != b.model:
        return False
    match = _match(a.calendar, b.calendar)
    if a.model is not None and not match:
        message = f"the model {a.model[0]} of the blend has loss sets of several catalogues"
        raise InputError(message, hint="Sets of a model have the same occurrences")
    return match


def _blended(calendars: Sequence[Calendar], models: Sequence[tuple[str, float] | None]) -> Floats:
    """Weights of the periods of all models; empty if they are equal."""
    shares = [model[1] for model in models if model is not None]
    current().hold("calendar", _WEIGHT_BYTES * sum(calendar.periods for calendar in calendars))
    weights = np.concatenate(
        [share * weights_of(calendar) for share, calendar in zip(shares, calendars, strict=True)]
    )
    weights /= weights.sum()
    equal = np.allclose(weights, 1 / len(weights), rtol=1e-12, atol=0)
    return np.zeros(0) if equal else weights


def _check(members: Sequence[Member]) -> None:
    for number, member in enumerate(members, 1):
        if not (0 < member.factor < np.inf):
            raise InputError(
                f"the factor of loss set {number} is {member.factor}",
                hint="Use a finite number above 0; leave out sets that do not count",
            )
        if member.samples != members[0].samples:
            raise InputError(
                f"loss set {number} has {member.samples} samples, but the first has"
                f" {members[0].samples}",
                hint="Losses are added sample by sample: run both with the same number",
            )


def _match(a: Calendar, b: Calendar) -> bool:
    """Whether two calendars are of one catalogue.

    Raises:
        InputError: they are but for the weights of their periods.
    """
    if a is b:
        return True
    current().check("calendar")
    own, other = a.occurrences, b.occurrences
    equal = (
        a.periods == b.periods
        and np.array_equal(own.periods, other.periods)
        and np.array_equal(own.event_ids, other.event_ids)
        and np.array_equal(own.dates, other.dates)
    )
    if equal and not np.array_equal(a.weights, b.weights):
        raise InputError(
            "two loss sets have the same occurrences, but other weights of periods",
            hint="Give both sets the same periods file",
        )
    return equal


def are_parts(a: Calendar, b: Calendar) -> bool:
    """Whether two calendars look like parts of one: most that happens in one does in the other.

    Told by some occurrences of the shorter. Events that are numbered by periods tell nothing unless
    they are nearly all of the longer, and happen there.
    """
    few, many = sorted((a.occurrences, b.occurrences), key=lambda each: len(each.periods))
    numbered = np.array_equal(few.event_ids, few.periods)
    if numbered and len(few.periods) <= _NEARLY_ALL * len(many.periods):
        return False
    chosen = np.unique(np.linspace(0, len(few.periods) - 1, _COMPARED).astype(np.int64))
    periods, ids, dates = (column[chosen] for column in few)
    begins, ends = (np.searchsorted(many.periods, periods, side) for side in ("left", "right"))
    shared = sum(
        bool(((many.event_ids[begin:end] == ident) & (many.dates[begin:end] == date)).any())
        for begin, end, ident, date in zip(begins, ends, ids, dates, strict=True)
    )
    return shared > (_NEARLY_ALL if numbered else 1 / 2) * len(chosen)


def _check_pairing(calendars: Sequence[Calendar]) -> None:
    most = max(calendar.periods for calendar in calendars)
    for number, calendar in enumerate(calendars, 1):
        if most % calendar.periods:
            raise InputError(
                f"catalogue {number} has {calendar.periods} periods and another {most}, which is"
                " no multiple of it",
                hint="Catalogues are added period by period, so that each period has to be there"
                " equally often: ask about the sets one by one or, of an event loss table, import"
                f" it again with no_of_periods={most}",
            )
        if len(calendar.weights):
            raise InputError(
                f"catalogue {number} has weights of periods, and is added to another catalogue",
                hint="Only sets of the same events can be added where periods have weights",
            )


def _find(member: Member, base: int) -> Int32s:
    """Index of the event of each occurrence; -1 if it has no losses or does not count."""
    wanted, known = member.calendar.occurrences.event_ids, member.table.event_ids
    current().hold("calendar", 4 * len(wanted))
    found = np.full(len(wanted), -1, np.int32)
    if len(known) == 0:
        return found
    for a, b in slices(len(wanted), "calendar", 1 << 17):
        at = places_of(wanted[a:b], known)
        mask = at >= 0 if member.kept is None else (at >= 0) & member.kept[a:b]
        found[a:b] = np.where(mask, at + base, -1)
    return found


def _interleave(
    calendars: Sequence[Calendar], found: Sequence[Sequence[Int32s]], seed: int | None
) -> tuple[Calendar, Int32s, Int32s]:
    """Occurrences of several catalogues, by period, date, event and catalogue.

    Without a seed, periods of a catalogue follow those of the one before.
    """
    before = np.cumsum([0, *(calendar.periods for calendar in calendars)])
    periods = int(before[-1])
    if seed is None and periods > INT_MAX:
        message = f"the models of the blend have {periods} periods"
        raise InputError(message, hint=f"Together they may have {INT_MAX}")
    times = [1 for _ in calendars]
    if seed is not None:
        periods = max(calendar.periods for calendar in calendars)
        times = [periods // calendar.periods for calendar in calendars]
    counts = [n * len(c.occurrences.periods) for n, c in zip(times, calendars, strict=True)]
    rows = max(map(len, found))
    current().hold("calendar", (_OCCURRENCE_BYTES + 4 * rows) * sum(counts))
    granular = any(calendar.granular for calendar in calendars)
    numbers = [
        calendar.occurrences.periods.astype(np.int64) + before[k]
        if seed is None
        else _paired(calendar, periods, None if k == 0 else seed, k)
        for k, calendar in enumerate(calendars)
    ]
    dates = [
        np.tile(_within_year(c) * (_MINUTES if granular and not c.granular else 1), n)
        for c, n in zip(calendars, times, strict=True)
    ]
    ids = [np.tile(c.occurrences.event_ids, n) for c, n in zip(calendars, times, strict=True)]
    events = [
        np.vstack(
            [*(np.tile(row, n) for row in own), np.full((rows - len(own), count), -1, np.int32)]
        )
        for own, n, count in zip(found, times, counts, strict=True)
    ]
    of_all, days, names = np.concatenate(numbers), np.concatenate(dates), np.concatenate(ids)
    order = _order(of_all, days, names)
    numbered = picked(of_all.astype(np.int32), order, "calendar")
    joint = Calendar(
        periods,
        Occurrences(numbered, picked(names, order, "calendar"), picked(days, order, "calendar")),
        np.zeros(0),
        dated=all(calendar.dated for calendar in calendars),
        granular=granular,
    )
    sources = np.repeat(np.arange(len(counts)), counts)[order].astype(np.int32)
    placed = [picked(row, order, "calendar") for row in np.concatenate(events, axis=1)]
    return joint, np.stack(placed), sources


def _within_year(calendar: Calendar) -> Indices:
    """Dates from 1 March of the year in which their period begins; before these, ids of none."""
    periods, _, dates = calendar.occurrences
    if not calendar.dated:
        own: Indices = dates - dates.max(initial=0) - _BEFORE
        return own
    starts = starts_of(periods.astype(np.int64))
    years = calendar_dates(dates[starts[:-1]], granular=calendar.granular).year
    march = day_ids(years, np.full_like(years, 3), np.ones_like(years))
    begins = march * (_MINUTES if calendar.granular else 1)
    within: Indices = dates - np.repeat(begins, np.diff(starts))
    return within


def _paired(calendar: Calendar, periods: int, seed: int | None, catalogue: int) -> Indices:
    """Joint period of each occurrence, as often as a period of the catalogue is taken."""
    own = calendar.occurrences.periods.astype(np.int64) - 1
    copies = [own + k * calendar.periods for k in range(periods // calendar.periods)]
    places = np.concatenate(copies)
    if seed is None:
        return places + 1
    order = Permutation(periods, derive(seed, "portfolio", catalogue, "periods"))
    for a, b in slices(len(places), "pairing"):
        places[a:b] = order.inverse(places[a:b]) + 1
    return places


def _order(periods: Indices, dates: Indices, ids: Int32s) -> Indices:
    """Order by period, then date, then event; occurrences of equal ones stay in theirs."""
    _, order = order_of(ids, "calendar")
    for keys in (dates - dates.min(initial=0), periods):
        _, further = order_of(picked(keys, order, "calendar"), "calendar")
        order = picked(order, further, "calendar")
    return order


def weights_of(calendar: Calendar) -> Floats:
    """Weight of each period, shape (periods,); equal ones too."""
    if len(calendar.weights):
        return calendar.weights
    return np.full(calendar.periods, 1 / calendar.periods)


def check_return_periods(years: Sequence[int], calendar: Calendar, samples: int) -> None:
    """Refuse return periods that no curve of a calendar reaches.

    Args:
        years: return periods.
        calendar: periods.
        samples: of each period that are in the curve.

    Raises:
        InputError: one of them is longer than all periods and samples together.
    """
    longest, most = max(years, default=0), longest_return_period(calendar, samples)
    if longest > most:
        raise InputError(
            f"a return period of {longest} years is beyond {calendar.periods} periods of"
            f" {samples} samples",
            parameter="return_periods",
            hint=f"Ask for at most {most} years",
        )


def longest_return_period(calendar: Calendar, samples: int = 1) -> int:
    """Years that periods and samples together tell of: 1 / the least probability of one."""
    if not len(calendar.weights):
        return calendar.periods * samples
    least = float(calendar.weights.min(where=calendar.weights > 0, initial=1.0))
    return int(samples / least * (1 + _ROUNDING))
