"""What a run is to compute: its spec, and the request of loss reports that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from app.errors import InvalidOptionError
from app.http.identity import Identity
from app.losses.options import read_policy, read_request
from app.losses.request import LossRequest
from app.losses.schemas import LossQuery
from app.losses.service import LossService
from app.wording import wording
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.reports.report import ANY_KIND

from .records import RunRecord
from .schemas import RunBody, RunOptions

_LISTS = ("quantiles", "return_periods")
"""Options that may be given as inputs instead."""
_SAME = ("no_of_periods", "confidence", "curves", "tvar", "nan", "negative", "sample_order")
"""Options of a run that queries have by the same name and form."""


def invalid(error: ValidationError) -> InvalidOptionError:
    """Return what is wrong with a body, in the words of the service."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the body"
    return InvalidOptionError(f"{place}{wording(first)}", option=place)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The spec of a run.

    Attributes:
        perspective: gul, il, ri or rl.
        reports: names of the requested reports.
        options: see ``RunOptions``.
        inputs: digests of auxiliary files, by name.
    """

    perspective: str
    reports: tuple[str, ...]
    options: RunOptions
    inputs: Mapping[str, str]

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> tuple[Self, float | None]:
        """Parse the body that creates a run; return the spec, and the lifetime in days.

        Raises:
            InvalidOptionError: a member is unknown, missing or invalid.
        """
        try:
            body = RunBody.model_validate(values)
        except ValidationError as e:
            raise invalid(e) from e
        return cls(body.perspective, tuple(body.reports), body.options, dict(body.inputs)), (
            body.days
        )

    @classmethod
    def of(cls, run: RunRecord) -> Self:
        """Return the spec of a stored run, with the inputs bound to it by now."""
        spec = run.spec
        options = RunOptions.model_validate(spec["options"])
        return cls(spec["perspective"], tuple(spec["reports"]), options, run.inputs)

    def to_json(self) -> dict[str, Any]:
        """Return the canonical form, without the inputs."""
        return {
            "perspective": self.perspective,
            "reports": list(self.reports),
            "options": self.options.model_dump(exclude_none=True),
        }

    @property
    def missing(self) -> list[str]:
        """Names of the inputs that a report needs, and that are not given."""
        given = {*self.inputs, *(name for name in _LISTS if getattr(self.options, name))}
        needs = {need.name: None for report in self.reports for need in REPORTS[report].needs}
        return [name for name in needs if name not in given]

    @property
    def takes_items(self) -> bool | None:
        """Whether streams must be of items; False if reports are of summaries, None for either."""
        if "summary_xref" in self.inputs:
            return True
        return None if all(REPORTS[name].kinds == ANY_KIND for name in self.reports) else False

    def query(self, reports: tuple[str, ...] | None = None) -> LossQuery:
        """Return the query of a post with the same options.

        Args:
            reports: drop inputs that only other reports take; None for all of the spec.

        Raises:
            InvalidOptionError: a list is given as an option and as an input.
        """
        options = self.options
        values: dict[str, Any] = {name: getattr(options, name) for name in _SAME}
        values["float_width"] = str(options.float_width)
        values["summary_ids"] = options.summary_ids
        if options.sets is not None:
            values["sets"] = ",".join(map(str, options.sets))
        for name in _LISTS:
            numbers = getattr(options, name)
            if numbers is not None and name in self.inputs:
                raise InvalidOptionError(
                    f"{name} are given as an option and as an input", option=name
                )
            values[name] = None if numbers is None else ",".join(map(repr, numbers))
        values |= dict(self.inputs)
        if reports is not None:
            takes = {i.name for r in reports for i in (*REPORTS[r].needs, *REPORTS[r].takes)}
            others = {i.name for r in REPORTS.values() for i in (*r.needs, *r.takes)} - takes
            values |= dict.fromkeys(others & set(LossQuery.model_fields))
            if values.get("occurrence") is None:
                values["no_of_periods"] = None
        return LossQuery(**values, over_bound="try")

    def policy(self, losses: LossService) -> Policy:
        """Return what is accepted of an uploaded stream, in whichever order its events are."""
        return read_policy(self.query(), losses)

    def request(
        self, who: Identity, losses: LossService, reports: tuple[str, ...] | None = None
    ) -> LossRequest:
        """Return the request of reports, with its inputs read; not on the event loop.

        Args:
            who: whose inputs.
            losses: the service of loss streams.
            reports: names of some of the reports; default: all.

        Raises:
            CoreError, ServiceError: an input is missing, or does not fit the reports.
        """
        return read_request(who, reports or self.reports, self.query(reports), losses)

    def check(self, who: Identity, losses: LossService) -> None:
        """Check options and inputs, as far as they are given; not on the event loop.

        Raises:
            CoreError, ServiceError: one is invalid, or does not fit the reports.
        """
        if not self.missing:
            self.request(who, losses)
            return
        ready = tuple(name for name in self.reports if not self._lacks(name))
        if ready:
            self.request(who, losses, ready)
        else:
            self.query()

    def _lacks(self, report: str) -> bool:
        return any(need.name in self.missing for need in REPORTS[report].needs)
