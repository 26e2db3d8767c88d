"""Which losses of several sets count, in which group, and by which factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations

import numpy as np
import numpy.typing as npt

from app.errors import InvalidOptionError, TooLargeError
from app.losses.selection import parse_ids
from core.arrays import Mask
from core.budget import Scope
from core.errors import names_hint
from core.losses.inputs import SummaryInfo, calendar_dates, number_of
from core.portfolio.assembling import places_of, repeated
from core.portfolio.joining import Joint, Member
from core.portfolio.losses import Calendar
from core.slices import slices

from .contents import OpenSet, likeness
from .files import STAGE
from .query import SUMMARY, Filter, Query, SetPart

Texts = npt.NDArray[np.str_]
Key = tuple[str, ...]
"""Values of the dimensions that groups are of."""
_SHOWN = 60
_SUMMARIES = 1 << 15
"""Summaries whose keys are made together."""
_SUMMARY_BYTES = 200
"""Memory for each summary while it is put into a group: texts, and a key."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Losses that count, and their groups."""

    members: Sequence[Member]
    names: Sequence[str]
    """Dimensions that groups are of."""
    keys: Sequence[Key]
    """Values of each group, in the order of their numbers; at least one."""

    @property
    def info(self) -> SummaryInfo | None:
        """What groups are, as columns to join to rows; None if there is only the whole."""
        if not self.names or self.is_by_summary:
            return None
        columns = zip(*self.keys, strict=True)
        texts = {name: np.array(column) for name, column in zip(self.names, columns, strict=True)}
        return SummaryInfo(np.arange(1, len(self.keys) + 1, dtype=np.int32), texts)

    @property
    def is_by_summary(self) -> bool:
        """Whether groups are summaries, whose ids their numbers are then."""
        return list(self.names) == [SUMMARY]

    @property
    def labels(self) -> list[str]:
        """Text of each group, for layers to name it by."""
        return [" / ".join(key) for key in self.keys]


def group(query: Query, sets: Sequence[OpenSet], most: int) -> Grouping:
    """Put the summaries of sets into groups.

    Args:
        query: names the sets, the groups, and which losses count.
        sets: in its order.
        most: number of groups at most.

    Raises:
        InvalidOptionError: the sets do not go together, a currency has no rate, or there is no
            such dimension or value.
        TooLargeError: there are too many groups.
    """
    _check_sets(sets)
    _check_seed(query, sets)
    samples = _count_samples(query, sets)
    _check_currencies(query, sets)
    names = query.group_by
    if SUMMARY in names and (len(names) > 1 or len(sets) > 1):
        raise InvalidOptionError(
            f"{SUMMARY} groups the summaries of one loss set, and stands alone",
            hint="Group by dimensions, which are names that several sets share",
            option="group_by",
        )
    total = sum(len(each.summaries) for each in sets)
    with Scope(STAGE, _SUMMARY_BYTES * total):
        _check_values(query.filter, sets)
        _check_events(query.filter, sets)
        keys = [_keys(each, names, query.filter) for each in sets]
        found = sorted({key for of_set in keys for key in of_set if key is not None}, key=_rank)
        if len(found) > most:
            raise TooLargeError(
                f"there are {len(found)} groups by {', '.join(names)}, and may be {most}",
                hint="Group by fewer dimensions, or filter",
                limit="groups",
                allowed=most,
                setting="THALWEG_MAX_GROUPS",
            )
        if not found:
            raise InvalidOptionError(
                "no summary with a loss passes the filter",
                hint="Filter less: each has none of the values of dimensions, or one of exclude",
                option="filter",
            )
        numbers = {key: number for number, key in enumerate(found)}
        members = [
            _member(part, each, of_set, numbers, query)
            for part, each, of_set in zip(query.loss_sets, sets, keys, strict=True)
        ]
    members = [
        m if m.samples == samples else replace(m, table=repeated(m.table, samples), samples=samples)
        for m in members
    ]
    return Grouping(members, names, found)


def check_some_pass(wanted: Filter, joint: Joint) -> None:
    """Refuse a filter that leaves no loss."""
    filtered = (wanted.events, wanted.periods, wanted.months) != (None, None, None)
    if filtered and joint.events.max(initial=-1) < 0:
        raise InvalidOptionError(
            "no loss passes the filter: none is in its events, periods and months",
            hint="Filter less",
            option="filter",
        )


def _check_sets(sets: Sequence[OpenSet]) -> None:
    """Refuse the same loss that is there twice, and losses before and after terms together."""
    for other, each in combinations([each.record for each in sets], 2):
        if text := likeness(each, other):
            fault = f"the loss set {each.id} {text} {other.id}, so that they would count twice"
            raise InvalidOptionError(fault, hint="Name one of them", option="loss_sets")
        own = [record.value["perspective"] for record in (other, each)]
        if own[0] != own[1] and None not in own:
            fault = f"the loss set {other.id} has the perspective {own[0]}, and {each.id} {own[1]}"
            hint = "Only losses of one perspective are added or blended: name sets of one"
            raise InvalidOptionError(fault, hint=hint, option="loss_sets")


def _check_seed(query: Query, sets: Sequence[OpenSet]) -> None:
    """Refuse a seed that pairs nothing."""
    seeded = any(part.pairing_seed is not None for part in query.loss_sets)
    if seeded and len({each.record.value["catalogue"] for each in sets}) == 1:
        raise InvalidOptionError(
            "pairing_seed pairs years of several catalogues, and there is one",
            hint="Leave pairing_seed out",
            option="loss_sets",
        )


def _count_samples(query: Query, sets: Sequence[OpenSet]) -> int:
    """Return the number of samples, which all sets have that are not repeated."""
    pairs = list(zip(query.loss_sets, sets, strict=True))
    first = next((each for part, each in pairs if not part.samples), sets[0])
    most = max(sets, key=lambda each: each.samples)
    for part, each in pairs:
        ident, own = each.record.id, each.samples
        if part.samples and (own != 1 or first.samples == 1):
            fault = (
                f"the loss set {ident} has {own} sample{'s' * (own != 1)}, and {first.record.id}"
            )
            fault += f" {first.samples}: none is to be repeated"
            raise InvalidOptionError(fault, hint="Leave samples out", option="loss_sets")
        if not part.samples and own != first.samples:
            fault = f"the number of samples of the loss set {ident} is {own}, and that of"
            fault += f" {first.record.id} is {first.samples}"
            hint = "Losses are added sample by sample: run both with as many, or import an event"
            hint += f" loss table again, with samples={most.samples}"
            if single := [e.record.id for e in (each, first) if e.samples == 1]:
                repeat = f'{{"id": "{single[0]}", "samples": "repeat"}}'
                hint += f". If losses of {single[0]} are certain, {repeat} has them in every sample"
            raise InvalidOptionError(fault, hint=hint, option="loss_sets")
    return first.samples


def _rank(key: Key) -> list[tuple[bool, Decimal, str]]:
    """Order numbers by value, before texts."""
    numbers = [Decimal(text) if text.isdecimal() else number_of(text) for text in key]
    return [(n is None, n or Decimal(0), text) for n, text in zip(numbers, key, strict=True)]


def _column(each: OpenSet, name: str, option: str) -> Texts:
    """Text of a dimension of each summary; empty where it is not described.

    Raises:
        InvalidOptionError: the set has no such dimension.
    """
    if name == SUMMARY:
        return each.summaries.astype(np.str_)
    columns: Mapping[str, Texts] = {} if each.info is None else each.info.columns
    if each.info is None or name not in columns:
        has = "It has none: give summary_info with it"
        if columns:
            has = names_hint(name, [*columns, SUMMARY])
        raise InvalidOptionError(
            f"the loss set {each.record.id} has no dimension {name[:_SHOWN]!r}",
            hint=has,
            option=option,
        )
    ids, texts = each.info.summary_ids, columns[name]
    at = np.minimum(np.searchsorted(ids, each.summaries), len(ids) - 1)
    return np.where(ids[at] == each.summaries, texts[at], "")


def described(sets: Sequence[OpenSet], names: Sequence[str]) -> set[str]:
    """Labels that summaries of any set have, those without a loss too."""
    infos = [each.info for each in sets if each.info is not None]
    columns = [
        [
            info.summary_ids.astype(np.str_) if name == SUMMARY else info.columns[name]
            for name in names
        ]
        for info in infos
    ]
    return {" / ".join(key) for of_set in columns for key in zip(*of_set, strict=True)}


def _check_values(wanted: Filter, sets: Sequence[OpenSet]) -> None:
    """Refuse a value that no summary of any set has."""
    named = [("dimensions", *item) for item in wanted.dimensions.items()]
    for member, name, values in named + [("exclude", *item) for item in wanted.exclude.items()]:
        option = f"filter.{member}.{name[:_SHOWN]}"
        known = {text for each in sets for text in _column(each, name, option).tolist()}
        known |= described(sets, [name])
        if not values:
            raise InvalidOptionError(f"{option} is empty", hint="Leave it out", option=option)
        for value in values:
            if known.isdisjoint(_texts([value], known)):
                nearest = names_hint(str(value), sorted(known)[:_SHOWN])
                raise InvalidOptionError(
                    f"no summary has {name[:_SHOWN]} {str(value)[:_SHOWN]!r}",
                    hint=nearest[:500],
                    option=option,
                )


def _texts(values: Sequence[str | float], known: set[str]) -> list[str]:
    """Texts that a filter names: a number is all that are equal to it."""
    numbers = {number_of(str(value)) for value in values if not isinstance(value, str)}
    equal = [text for text in known if number_of(text) in numbers] if numbers else []
    return [*map(str, values), *equal]


def absent(wanted: Filter, sets: Sequence[OpenSet]) -> Iterator[tuple[str, str]]:
    """Yield a dimension and a value in it by which losses are filtered, and none has."""
    for name, values in wanted.dimensions.items():
        known = {text for each in sets for text in _column(each, name, "filter").tolist()}
        yield from ((name, str(v)) for v in values if known.isdisjoint(_texts([v], known)))


def _check_events(wanted: Filter, sets: Sequence[OpenSet]) -> None:
    """Refuse events of which none is in any set."""
    if wanted.events is None:
        return
    known = np.concatenate([each.losses.table.event_ids for each in sets])
    if not np.isin(known, parse_ids(wanted.events, "filter.events", least=0)).any():
        ids = f"{known.min()} to {known.max()}" if len(known) else "no number"
        fault = f"no event of filter.events {wanted.events[:_SHOWN]!r} has a loss in any loss set"
        hint = f"Events with losses have ids of {ids}"
        raise InvalidOptionError(fault, hint=hint, option="filter.events")


def _keys(each: OpenSet, names: Sequence[str], wanted: Filter) -> list[Key | None]:
    """Key of each summary; None where it is filtered out."""
    columns = [_column(each, name, "group_by") for name in names]
    conditions = [
        (column := _column(each, name, "filter"), _texts(values, set(column.tolist())), not_these)
        for lists, not_these in ((wanted.dimensions, False), (wanted.exclude, True))
        for name, values in lists.items()
    ]
    keys: list[Key | None] = []
    for begin, end in slices(len(each.summaries), STAGE, _SUMMARIES):
        kept = np.ones(end - begin, np.bool_)
        for texts, values, not_these in conditions:
            kept &= np.isin(texts[begin:end], values, invert=not_these)
        parts = [column[begin:end].tolist() for column in columns]
        found = zip(*parts, strict=True) if parts else iter([()] * (end - begin))
        keys += [key if keep else None for key, keep in zip(found, kept.tolist(), strict=True)]
    return keys


def _member(
    part: SetPart,
    each: OpenSet,
    keys: Sequence[Key | None],
    numbers: Mapping[Key, int],
    query: Query,
) -> Member:
    groups = np.array([-1 if key is None else numbers[key] for key in keys], np.int32)
    name = part.model or part.id
    return Member(
        each.losses.table,
        each.calendar,
        each.summaries,
        groups,
        each.samples,
        part.weight * rate_of(query, each),
        _kept(query.filter, each),
        (name, query.blend[name]) if query.blend else None,
    )


def rate_of(query: Query, each: OpenSet) -> float:
    """What one unit of a set's currency is in that of the answer."""
    own = each.record.value["currency"]
    if query.currency is None or own == query.currency:
        return 1.0
    if own is None:
        raise InvalidOptionError(
            f"the currency of the loss set {each.record.id} is not known",
            hint="Make the set again with its currency, or, of one set, leave currency out",
            option="currency",
        )
    if own not in query.rates:
        raise InvalidOptionError(
            f"the loss set {each.record.id} is in {own}, of which there is no rate",
            hint=f'Say what one {own} is in {query.currency}: {{"rates": {{"{own}": …}}}}',
            option="rates",
        )
    return query.rates[own]


def _check_currencies(query: Query, sets: Sequence[OpenSet]) -> None:
    """Refuse to add amounts of several currencies as they are, and rates that change nothing."""
    own = sorted({str(each.record.value["currency"]) for each in sets})
    if query.rates.get(query.currency or "", 1) != 1:
        fault = f"rates has {query.currency}, which is the currency of the answer"
        raise InvalidOptionError(fault, hint="Its rate is 1: leave it out", option="rates")
    if unused := sorted(query.rates.keys() - {*own, query.currency}):
        fault = f"rates has {unused[0]}, and no loss set is in {unused[0]}"
        hint = f"Leave it out: they are in {' and '.join(own)}".replace("None", "no known currency")
        raise InvalidOptionError(fault, hint=hint, option="rates")
    unknown = [each.record.id for each in sets if each.record.value["currency"] is None]
    if len(own) > 1 and unknown:
        known = " and ".join(code for code in own if code != "None")
        raise InvalidOptionError(
            f"the currency of the loss set {unknown[0]} is not known, and others are in {known}",
            hint="Make it again with its currency: amounts are only added in one that is known",
            option="currency",
        )
    if query.currency is None and len(own) > 1:
        raise InvalidOptionError(
            f"the loss sets are in {' and '.join(own)}",
            hint="Give the currency of the answer, and rates of the others",
            option="currency",
        )


def _kept(wanted: Filter, each: OpenSet) -> Mask | None:
    """Which occurrences count, of those with losses, whatever their period; None for all."""
    calendar = each.calendar
    conditions: list[Callable[[slice], Mask]] = []
    if wanted.months is not None and not calendar.dated:
        raise InvalidOptionError(
            f"the occurrences of the loss set {each.record.id} have no dates",
            hint="Leave months out: they are those of dates",
            option="filter.months",
        )
    if wanted.events is not None:
        ids = parse_ids(wanted.events, "filter.events", least=0)
        conditions.append(lambda part: np.isin(calendar.occurrences.event_ids[part], ids))
    if wanted.months is not None:
        months = wanted.months
        conditions.append(lambda part: np.isin(_months(calendar, part), months))
    if not conditions:
        return None
    kept = np.empty(len(calendar.occurrences.periods), np.bool_)
    for begin, end in slices(len(kept), STAGE, 1 << 17):
        part = slice(begin, end)
        happening = calendar.occurrences.event_ids[part]
        kept[part] = places_of(happening, each.losses.table.event_ids) >= 0
        for condition in conditions:
            kept[part] &= condition(part)
    return kept


def _months(calendar: Calendar, part: slice) -> npt.NDArray[np.int64]:
    return calendar_dates(calendar.occurrences.dates[part], granular=calendar.granular).month
