"""Programmes run over the losses of a subject, priority after priority.

A subject may consist of *parts*, such as regions or risks, so that layers can cover some of them
only. Losses of an occurrence are then several rows, one for each part::

    cells         | period 1, sample 1            | period 1, sample 2 |
    occurrences   |  0     0     2                |  0                 |
    parts         | north south north             | south              |

What a layer cedes of an occurrence is taken from the rows that it covers, in proportion to what
they bring in.

Hours clauses join occurrences. A loss occurrence is of one peril and lasts at most H hours; windows
do not overlap. With ``first-loss`` a window begins at the first loss that no earlier one has. With
``cedant`` windows begin at losses such that the layer, taken alone, recovers most, each when the
one before has run its H hours at the earliest; losses in none are not recovered. H hours are
H / 24 dates of the calendar if dates are days: with 72 hours, the day of the first loss and the
two that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, Floats, Indices
from ..budget import Scope, current
from ..errors import InputError, LimitError
from ..losses.finishing import ParallelMap
from ..slices import SLICE, grouped, slices
from ..sorting import order_of, starts_of
from ._kernels import layers as kernel
from ._kernels.windows import TERMS, Items
from .assembling import picked
from .combining import check_finite
from .layers import Recoveries, read_only
from .losses import Calendar, Int32s, OccurrenceLosses
from .programme import Layer, Programme, nearest

MOST_IN_CELL = 1 << 23
"""Rows of a period and sample, times layers: what one call of the kernel may come to."""
_STAGE = "layers"
_SHOWN = 3
"""Labels that a hint has."""
_HOURS_PER_DAY = 24
_MINUTES_PER_HOUR = 60


class Perils(NamedTuple):
    """Perils of occurrences."""

    names: Sequence[str]
    of_occurrences: Int32s
    """Index of the name of each occurrence's peril; -1 if it is not known."""


class Subject(NamedTuple):
    """Losses that a programme applies to."""

    losses: OccurrenceLosses
    """With several parts, the rows of an occurrence follow each other."""
    names: Sequence[str] = ()
    """Labels of the parts, which layers have in their scope; empty if there are none."""
    parts: Int32s = np.zeros(0, np.int32)
    """Index of each row's label; empty if there are none."""
    values: Floats | None = None
    """Insured value of the risk of each row; None if rows are no risks, or it is not known."""
    perils: Perils | None = None
    """Of the occurrences; None if all are of the same."""


def join_parts(
    parts: Mapping[str, OccurrenceLosses],
    calendar: Calendar,
    samples: int,
    values: Mapping[str, float] | None = None,
) -> Subject:
    """Make one subject of several.

    Args:
        parts: losses by label.
        calendar: of all of them.
        samples: largest number of a sample.
        values: insured value of each part, if parts are risks.
    """
    rows = sum(len(part.losses) for part in parts.values())
    current().hold(_STAGE, rows * 8 * 8)
    periods = calendar.occurrences.periods
    places = np.zeros(rows, np.int64)
    span = _longest(np.flatnonzero(np.diff(periods, prepend=-1, append=-1)).astype(np.int64)) + 1
    at = 0
    for part in parts.values():
        for a, b in slices(len(part.losses), _STAGE, SLICE >> 2):
            occurrences = part.occurrences[a:b].astype(np.int64)
            of_period = periods[occurrences].astype(np.int64)
            cells = np.searchsorted(part.starts, np.arange(a, b), side="right") - 1
            keys = of_period * (samples + 1) + part.samples[cells]
            first = np.searchsorted(periods, of_period)
            places[at + a : at + b] = keys * span + occurrences - first
        at += len(part.losses)
    ordered, order = order_of(places, _STAGE)
    return _joined(parts, ordered // span, order, samples, values or {})


def _joined(
    parts: Mapping[str, OccurrenceLosses],
    cells: Indices,
    order: Indices,
    samples: int,
    values: Mapping[str, float],
) -> Subject:
    current().check(_STAGE)
    starts = starts_of(cells) if len(cells) else np.zeros(1, np.int64)
    firsts = cells[starts[:-1]]
    sizes = [len(part.losses) for part in parts.values()]
    labels = picked(np.repeat(np.arange(len(parts), dtype=np.int32), sizes), order, _STAGE)
    current().check(_STAGE)
    losses = OccurrenceLosses(
        starts,
        (firsts // (samples + 1)).astype(np.int32),
        (firsts % (samples + 1)).astype(np.int32),
        picked(np.concatenate([part.occurrences for part in parts.values()]), order, _STAGE),
        picked(np.concatenate([part.losses for part in parts.values()]), order, _STAGE),
    )
    of_parts = np.array([values[name] for name in parts]) if values else None
    insured = None if of_parts is None else picked(of_parts, labels, _STAGE)
    return Subject(losses, tuple(parts), labels, insured)


def run_programme(
    programme: Programme,
    subject: Subject | OccurrenceLosses,
    calendar: Calendar,
    samples: int,
    apply: ParallelMap[Any, Any] = map,
) -> Recoveries:
    """Apply the layers of a programme to every period and sample.

    Args:
        programme: the layers.
        subject: gross losses.
        calendar: of its occurrences.
        samples: number of samples, those without a loss included.
        apply: calls a function for each task, in any number of threads.

    Raises:
        InputError: a layer does not fit the subject or the calendar, layers of a priority cede
            more than there is, or sums overflow.
        LimitError: a period has more occurrences than can be worked on.
        WorkStoppedError: the budget is used up, or nobody waits for the result.
    """
    subject = Subject(subject) if isinstance(subject, OccurrenceLosses) else subject
    layers, losses = programme.layers, subject.losses
    longest = _longest(losses.starts)
    if longest * len(layers) > MOST_IN_CELL:
        raise LimitError(
            f"{longest} losses of one period and sample are too many for {len(layers)} layers",
            limit="losses of a period and sample, times layers",
            allowed=MOST_IN_CELL,
            hint="Use fewer layers, or groups instead of risks.",
        )
    terms = _layers(programme, subject, calendar)
    rows = _rows(subject)
    timing = kernel.When(
        read_only(calendar.occurrences.dates, np.int64), _perils(layers, subject.perils, calendar)
    )
    has_clause = any(layer.hours for layer in layers)
    results = _results(len(layers), losses, len(losses.losses) if has_clause else 0)

    def cede(cells: tuple[int, int]) -> None:
        cell, end = cells
        with Scope(_STAGE):
            scratch = _scratch(longest, *terms.insures.shape)
            state = np.zeros(kernel.STATE, np.int64)
            while cell < end:
                current().check(_STAGE)
                cell = kernel.cede(rows, terms, timing, cell, end, SLICE, scratch, results, state)
                if state[0] != kernel.DONE:
                    raise _fault(programme, subject, calendar, state)

    for _ in apply(cede, grouped(losses.starts, _STAGE)):
        """Results are written where they belong."""
    # Beside an infinite sum every recovery is taken for the rounding of one, and is 0.
    check_finite(results.gross_sums)
    joined = results.joined if has_clause else None
    return Recoveries(programme, losses, calendar, samples, *results[:-1], joined)


def _longest(starts: Indices) -> int:
    return max((int(np.diff(starts[a : b + 1]).max(initial=0))
                for a, b in slices(len(starts) - 1, _STAGE)), default=0)  # fmt: skip


def _rows(subject: Subject) -> kernel.Rows:
    losses = subject.losses
    values = np.zeros(0) if subject.values is None else subject.values
    for a, b in slices(len(values), _STAGE):
        good = np.isfinite(values[a:b]) & (values[a:b] > 0)
        if not good.all():
            name = subject.names[subject.parts[a + int(np.argmin(good))]]
            raise InputError(
                f"the insured value of {name} is not above 0 and finite",
                hint="Give every risk its insured value.",
            )
    return kernel.Rows(
        read_only(losses.starts, np.int64),
        read_only(losses.occurrences, np.int32),
        read_only(subject.parts, np.int32),
        read_only(values, np.float64),
        read_only(losses.losses, np.float64),
    )


def _results(layers: int, losses: OccurrenceLosses, joined: int) -> kernel.Results:
    cells, rows = len(losses.starts) - 1, len(losses.losses)
    current().hold(_STAGE, 8 * rows + 4 * joined + cells * (9 * layers + 8))
    by_layer = np.empty((layers, cells)), np.empty((layers, cells), np.uint8)
    sums = np.empty(cells)
    return kernel.Results(np.empty(rows), *by_layer, sums, np.empty(joined, np.int32))


def _scratch(longest: int, layers: int, perils: int) -> kernel.Scratch:
    current().hold(_STAGE, 80 * longest + 8 * (perils + layers * kernel.RUNNING))
    brought, cessions, losses, totals, best = (np.zeros(longest) for _ in range(5))
    integers = (np.zeros(longest, np.int64) for _ in range(5))
    rows, occurrences, windows, following, begins = integers
    seen = np.zeros(perils, np.int64)
    items = Items(losses, totals, best, rows, occurrences, windows, following, begins, seen)
    return kernel.Scratch(brought, cessions, np.zeros((layers, kernel.RUNNING)), items)


def _layers(programme: Programme, subject: Subject, calendar: Calendar) -> kernel.Layers:
    layers, perils = programme.layers, subject.perils
    priorities = np.array([layer.priority for layer in layers])
    peril_names = perils.names if perils else [""]
    covers = np.zeros((len(layers), max(len(subject.names), 1)), np.uint8)
    insures = np.zeros((len(layers), len(peril_names)), np.uint8)
    terms, rules = np.zeros((len(layers), TERMS)), np.zeros((len(layers), kernel.RULES), np.int64)
    for k, layer in enumerate(layers):
        covers[k] = _chosen(layer, "Scope", layer.scope, subject.names, "part")
        insures[k] = _chosen(layer, "ReinsPeril", layer.perils, perils and perils.names, "peril")
        terms[k] = list(layer.terms.values())
        needs_values = layer.kind == "SS" and subject.values is None
        if layer.of_risks and (needs_values or not subject.names):
            raise InputError(
                f"{layer.place} has terms of risks, and the losses are of no risks"
                + " whose insured value is known" * needs_values,
                hint="Use a loss set whose summaries are risks, and give their insured values.",
                parameter="programme",
            )
        length = _window_length(layer, calendar)
        joined = layer.of_risks or length or len(subject.names) or subject.values is not None
        plain = not joined and bool(insures[k].all())
        surplus = layer.kind == "SS"
        rules[k] = plain, layer.of_risks, surplus, length, layer.cedant
    return kernel.Layers(starts_of(priorities), terms, rules, covers, insures)


def _window_length(layer: Layer, calendar: Calendar) -> int:
    """Length of the windows of a layer, in units of the calendar; 0 if it has no hours clause.

    Raises:
        InputError: the calendar has no dates, or none that are fine enough.
    """
    if layer.hours == 0:
        return 0
    path = f"{layer.place}.HoursClause"
    if not calendar.dated:
        raise InputError(
            f"{path} needs dates, and the occurrences of the loss set have none",
            hint="Leave it out, or use a loss set whose occurrences have dates.",
            parameter="programme",
        )
    length = layer.hours
    length = length * _MINUTES_PER_HOUR if calendar.granular else length / _HOURS_PER_DAY
    if length != int(length):
        unit = "whole minutes" if calendar.granular else "a multiple of 24, as dates are days"
        raise InputError(
            f"{path}.Hours is {layer.hours:g}", hint=f"Give {unit}.", parameter="programme"
        )
    return int(length)


def _chosen(
    layer: Layer, field: str, wanted: Sequence[str], known: Sequence[str] | None, subject: str
) -> Array:
    """Which of the known names a layer covers."""
    if not wanted:
        return np.ones(max(len(known or ()), 1), np.uint8)
    missing = sorted(set(wanted).difference(known or ()))
    if missing:
        some = ", ".join(map(repr, filter(None, list(known or ())[:_SHOWN])))
        others = (
            f"Use the label of a {subject}, such as {some}."
            if some
            else f"No {subject} has a label."
        )
        raise InputError(
            f"{layer.place}.{field} has {missing[0]!r}, which no {subject} is",
            hint=nearest(missing[0], known or ()).strip() or others,
            parameter="programme",
        )
    covered = set(wanted)
    return np.array([name in covered for name in known or ()], np.uint8)


def _perils(layers: Sequence[Layer], perils: Perils | None, calendar: Calendar) -> Array:
    if perils is None:
        return read_only(np.zeros(len(calendar.occurrences.dates), np.int32), np.int32)
    dependents = [layer for layer in layers if layer.perils or layer.hours]
    of_occurrences = perils.of_occurrences.copy()
    for a, b in slices(len(of_occurrences), _STAGE):
        unknown = np.flatnonzero(of_occurrences[a:b] < 0)
        if dependents and len(unknown):
            event = int(calendar.occurrences.event_ids[a + unknown[0]])
            raise InputError(
                f"{dependents[0].place} depends on perils, and that of event {event} is not known",
                hint="Give the peril of every event.",
                event=event,
                parameter="programme",
            )
        of_occurrences[a:b][unknown] = 0
    return read_only(of_occurrences, np.int32)


def _fault(
    programme: Programme, subject: Subject, calendar: Calendar, state: Indices
) -> InputError | LimitError:
    """The error of a state that the kernel has left."""
    status, cell, row, number = state.tolist()
    losses = subject.losses
    period, sample = losses.periods[cell], losses.samples[cell]
    place = f"in period {period} (sample {sample})"
    layer = programme.layers[number]
    if status == kernel.EXCEEDED:
        priority = layer.priority
        named = [str(one) for one in programme.layers if one.priority == priority]
        event = int(calendar.occurrences.event_ids[losses.occurrences[row]])
        return InputError(
            f"the layers of priority {priority} cede more than the loss of event {event} {place}: "
            + ", ".join(named),
            hint="Lower their shares, or give one of them a later InuringPriority.",
            event=event,
            parameter="programme",
        )
    if status == kernel.INFINITE:
        return InputError(
            f"the losses to {layer} {place} add up to more than a number can hold",
            hint="Give losses in a larger unit.",
        )
    return LimitError(
        f"the occurrences {place} are too many for the windows of {layer}",
        limit="steps of choosing windows",
        allowed=kernel.MOST_STEPS,
        hint="Use first-loss, or fewer hours.",
    )
