"""Questions about loss sets: the sets they are about, and what they ask of the engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson

from app.errors import InvalidOptionError
from app.losses.pictures.options import PictureForm, PictureOptions, Theme
from app.losses.tables import packed_texts
from core.losses.inputs import ReturnPeriods
from core.losses.reports.report import RunOptions
from core.portfolio.combining import Subject
from core.portfolio.curves import Question

from .query import SUMMARY, Query
from .records import LossSet

_ALGORITHM = b"portfolio 11"
"""Changes whenever an answer does, to equal questions."""
_FULL, _PER_SAMPLE = frozenset("Ff"), frozenset("Ww")
"""Letters of curves."""
_FULL_HINT = ", or for curves of F and f, where samples of the same periods reach further"
_USUAL = (1, 2, 5, 10, 20, 50, 100, 200, 250, 500, 1000, 5000, 10_000)
"""Return periods of a summary that names none."""
_LOSSES = {"net": "loss net of the programme", "ceded": "loss ceded to the programme"}
"""Words in titles."""
_REPORTS: Mapping[str, tuple[str, ...]] = {
    "averages": ("aal",),
    "curves": ("ept",),
    "periods": ("plt",),
    "summary": ("aal", "ept"),
}
"""Reports of groups, by what is asked for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the sets that it is about."""

    query: Query
    sets: Sequence[LossSet]

    def etag(self, form: str) -> str:
        """Return the strong entity tag of the answer."""
        values = self.query.model_dump(exclude={"loss_sets": {"__all__": {"id"}}})
        digests = [each.digest for each in self.sets]
        text = orjson.dumps([digests, values, form], option=orjson.OPT_SORT_KEYS)
        hashed = hashlib.blake2b(_ALGORITHM + text, digest_size=16)
        return f'"{hashed.hexdigest()}"'

    @property
    def width(self) -> int:
        """Bytes of an amount: those of the sets, unless others are asked for."""
        own: int = max(each.value["float_width"] for each in self.sets)
        return self.query.float_width or own

    def describe(self, notes: Sequence[str]) -> dict[str, Any]:
        """Describe the answer: all of it but its tables."""
        sets = [{"id": each.id, "digest": each.digest} for each in self.sets]
        query = self.query
        return {"report": query.report, "of": query.of, "loss_sets": sets, "notes": list(notes)}

    @property
    def without_means(self) -> list[str]:
        """Ids of the sets for which the answer can have no rows of numerical means."""
        if self.query.report in {"contributions", "uncertainty"}:
            return []
        parts = zip(self.query.loss_sets, self.sets, strict=True)
        # Of repeated losses the mean is known.
        lacking = [e for p, e in parts if not (p.samples or e.value.get("means", True))]
        return [each.id for each in lacking]

    @property
    def has_samples(self) -> bool:
        """Whether there are more than numerical means."""
        return any(each.value["samples"] for each in self.sets)

    def check_form(self, form: str) -> None:
        """Refuse a format that cannot say what groups are, before anything is computed."""
        of_layers = self.query.report in {"layers", "recoveries"}
        if form == "bin" and not of_layers and self.query.group_by not in ([], [SUMMARY]):
            raise packed_texts()

    def picture(self, form: PictureForm, theme: Theme) -> PictureOptions:
        """Return how its curves are drawn."""
        value = self.sets[0].value
        return PictureOptions(
            form=form,
            theme=theme,
            perspective=value["perspective"],
            losses=_LOSSES.get(self.query.of),
            currency=self.query.currency or value["currency"],
            tail_means=True,
            labels={} if self.query.group_by else {1: ""},
        )

    @property
    def subject(self) -> bytes:
        """What identifies the losses that count, whatever is asked of them."""
        names = {"loss_sets", "currency", "rates", "filter", "group_by", "blend"}
        attempts = [each.value["attempt"] for each in self.sets]
        return orjson.dumps(
            [attempts, self.query.model_dump(include=names)], option=orjson.OPT_SORT_KEYS
        )


def question_of(request: Asked, whole: Subject) -> Question:
    """Return what is asked of the engine about groups."""
    query = request.query
    reports = list(_REPORTS.get(query.report, ()))
    letters = set(query.curves)
    if "ept" in reports and letters & _PER_SAMPLE:
        reports.append("psept")
        if letters <= _PER_SAMPLE:
            reports.remove("ept")
    wanted = years_of(query, whole)
    years = ReturnPeriods(np.array(sorted(wanted, reverse=True), np.int32)) if wanted else None
    # Where periods have weights, a mean of points by count is none of years.
    weighs = query.blend or len(whole.calendar.weights)
    tvar = query.tvar or ("weight" if weighs else "count")
    options = RunOptions(query.confidence, query.curves, tvar)
    return Question(tuple(reports), years, options, request.width)


def years_of(query: Query, whole: Subject) -> list[int] | None:
    """Return the return periods; the usual ones where a report needs some and none are named."""
    if query.return_periods is not None:
        _check_years(query, whole)
    elif query.report in {"summary", "contributions", "uncertainty"}:
        return [years for years in _USUAL if years <= whole.calendar.periods]
    return query.return_periods


def kinds_of(query: Query) -> list[Literal["oep", "aep"]]:
    """Return the kinds of curves that letters name: capital ones are AEP."""
    named: dict[Literal["oep", "aep"], bool] = {
        "oep": any(map(str.islower, query.curves)),
        "aep": any(map(str.isupper, query.curves)),
    }
    return [kind for kind, is_named in named.items() if is_named]


def _check_years(query: Query, whole: Subject) -> None:
    """Refuse return periods of which the periods say nothing."""
    full = query.report in {"contributions", "uncertainty"} or set(query.curves) <= _FULL
    reached = whole.calendar.periods * whole.samples
    most = reached if full else whole.calendar.periods
    longest = max(query.return_periods or [0])
    if longest > most and not len(whole.calendar.weights):
        unit = "years of all samples" if full else "periods"
        raise InvalidOptionError(
            f"a return period is {longest} years, and there are {most} {unit}",
            hint=f"Ask for {most} years at most" + _FULL_HINT * (not full and longest <= reached),
            option="return_periods",
        )
