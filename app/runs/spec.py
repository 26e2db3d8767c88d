"""Bodies, queries and answers of runs; the spec of a run, and the request that it stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from unicodedata import category

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.errors import InvalidOptionError
from app.http.identity import Identity
from app.losses.analyses import taken_inputs
from app.losses.options import read_policy, read_request, read_run_options
from app.losses.pictures.options import Theme
from app.losses.request import LossRequest
from app.losses.schemas import InputName, LossQuery, PassOptions, ReportName, RunInputName, given
from app.losses.selection import parse_selection, parse_sets
from app.losses.service import LossService
from app.times import MAX_DAYS
from app.wording import wording
from core.losses.policy import Policy
from core.losses.reports import REPORTS, check_options
from core.losses.reports.report import ANY_KIND

from .records import MAX_PARTITION, RunRecord
from .streams import MAX_STREAMS


def _refuse_float(value: object) -> object:
    """Refuse 4.0, which equals 4 and so is one of the choices even to a strict model.

    Raises:
        PydanticCustomError: it is a float.
    """
    if isinstance(value, float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


class RunOptions(PassOptions):
    """Options of a run: those of a posted stream, and the number of its partitions."""

    model_config = ConfigDict(strict=True)

    partitions: int | None = given(
        "Number of streams; sealing requires all of them", ge=1, le=MAX_PARTITION
    )
    quantiles: list[float] | None = given("For qelt and qplt", max_length=10_000)
    return_periods: list[int] | None = given(
        "For ept and psept; every point without", max_length=100_000
    )
    float_width: Annotated[Literal[4, 8], BeforeValidator(_refuse_float)] = Field(
        4, description="Bytes per loss"
    )
    order: Literal["received", "event"] = Field(
        "received", description="Order of rows: as received, or by event"
    )
    sets: list[int] | None = given(
        "Sets of summary_xref; all without", min_length=1, max_length=1000
    )
    summary_ids: str | None = given("Report these summaries only")


class NewRunOptions(RunOptions):
    """Options of a run to create; earlier versions took more partitions than could be sealed."""

    partitions: int | None = given(
        "Number of streams; sealing requires all of them", ge=1, le=MAX_STREAMS
    )


_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d"}
"""Without which some scripts, and some emoji, cannot be written."""
_FILLERS = {"\u034f", "\u115f", "\u1160", "\u3164", "\uffa0", "\ufffe", "\uffff"}
"""Of no width, though of the categories of letters and marks; and no characters."""


def _printable(label: str) -> str:
    if not label.strip():
        raise ValueError("it is blank")
    for place, character in enumerate(label, 1):
        unseen = character in _FILLERS or category(character) in _UNSEEN
        if unseen and character not in _JOINERS:
            raise ValueError(f"it has {character!r} as character {place}, which nobody sees")
    return label.strip()


Label = Annotated[str, Field(max_length=200), AfterValidator(_printable)]


class RunBody(BaseModel):
    """A run to create."""

    model_config = ConfigDict(extra="forbid", strict=True)

    perspective: Literal["gul", "il", "ri", "rl"]
    reports: list[ReportName] = Field(min_length=1)
    inputs: dict[InputName, str] = Field({}, description="Digests of auxiliary files, by name")
    options: NewRunOptions = Field(default_factory=lambda: NewRunOptions.model_validate({}))
    days: float | None = given("Lifetime after the last change, in days", gt=0, le=MAX_DAYS)
    label: Label | None = given("What people call the run; routes take its id")

    @model_validator(mode="after")
    def _once(self) -> RunBody:
        if twice := [name for name, count in Counter(self.reports).items() if count > 1]:
            raise ValueError(f"reports names {twice[0]} twice")
        return self


class RunChange(BaseModel):
    """What may change of any run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    label: Label | None = Field(description="What people call the run; null for no label")


class StreamCounts(BaseModel):
    """The streams of a run, by what became of them."""

    created: int
    uploading: int
    complete: int
    failed: int


class RunAnswer(BaseModel):
    """A run."""

    id: str
    label: str | None
    perspective: str
    reports: list[str]
    inputs: dict[str, str]
    options: dict[str, Any]
    state: Literal["created", "uploading", "sealed", "computing", "done", "failed"]
    created: str
    expires: str | None
    streams: StreamCounts
    bytes: int = Field(description="Durable bytes of all streams")
    events: int = Field(description="Complete events of all streams")
    missing_inputs: list[str] = Field(description="Inputs that a report needs and the run lacks")
    notes: list[str] = Field([], description="What its owner should know, in sentences")
    problem: dict[str, Any] | None = given("Why it failed")
    results: dict[str, Any] = {}
    computing: list[dict[str, Any]] = Field([], description="Reports that are being computed")
    links: dict[str, str]


class RunList(BaseModel):
    """A page of runs."""

    runs: list[dict[str, Any]]
    after: str | None = Field(description="Value of after for the next page; null if it is last")


class StreamAnswer(BaseModel):
    """A stream of a run."""

    id: str
    partition: int
    state: Literal["created", "uploading", "complete", "failed"]
    offset: int = Field(description="Durable bytes")
    length: int | None
    events: int = Field(description="Complete events in them")
    digest: str | None = Field(description="XXH3-128 chained over 4 MiB groups, once complete")
    created: str
    changed: str
    fault: dict[str, Any] | None = None
    address: str


class StreamList(BaseModel):
    """A page of streams, in the order of their partitions."""

    streams: list[StreamAnswer]
    after: str | None


class UploadQuery(BaseModel):
    """Options of a stream that is created."""

    model_config = ConfigDict(extra="forbid")

    partition: int | None = given(
        "Which partition it is; the lowest free without", ge=1, le=MAX_PARTITION
    )


class ReportsBody(BaseModel):
    """Further reports of a sealed run."""

    model_config = ConfigDict(extra="forbid")

    reports: list[ReportName] = Field(min_length=1)
    options: dict[str, Any] = Field(
        {}, description="Options that differ from those of the run, such as quantiles"
    )
    inputs: dict[RunInputName, str] = Field({}, description="Inputs that differ, by name")


class SealBody(BaseModel):
    """What to change of a run before it is sealed."""

    model_config = ConfigDict(extra="forbid")

    options: dict[str, Any] = Field(
        {}, description="Options of its reports in place of those it has, such as return_periods"
    )


class ReportsQuery(BaseModel):
    """Options of a report of a sealed run."""

    model_config = ConfigDict(extra="forbid")

    set: int | None = given("Summary set, where streams are of items", ge=1)
    variant: str | None = given(
        "Of further reports, as their POST answered", pattern="^[0-9a-z]{1,16}$"
    )
    format: Literal["csv", "parquet", "arrow", "ndjson", "bin", "svg", "png"] | None = given(
        "Format of the answer; overrides Accept"
    )
    summary_ids: str | None = given("Rows of these summaries, as 1,5,10-20; a picture has up to 12")
    event_ids: str | None = given("Rows of these events, as 1,5,10-20")
    theme: Theme = Field("light", description="Pictures of ept and aal: colours")
    plot_tvar: bool = Field(False, description="Pictures of ept: TVaR beside the curves")
    currency: str | None = given(
        "Pictures: currency of the losses, for the axes", pattern="^[A-Z]{3}$"
    )


class RowsQuery(BaseModel):
    """Options of the rows of a run."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = given("Token to go on after", max_length=512)
    follow: bool = Field(False, description="Wait for rows to come, until the run is sealed")
    stream: str | None = given("Rows of this stream only", max_length=64)
    format: Literal["frames", "csv", "ndjson", "arrow", "parquet", "bin", "sse"] | None = given(
        "Format of the answer; overrides Accept"
    )


_LISTS = ("quantiles", "return_periods")
"""Options that may be given as inputs instead."""
_SAME = tuple(PassOptions.model_fields)
"""Options of a run that queries have by the same name and form."""


def invalid(error: ValidationError) -> InvalidOptionError:
    """Return what is wrong with a body, in the words of the service."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if part != "[key]") or "the body"
    belongs = first["type"] == "extra_forbidden" and place in RunOptions.model_fields
    hint = f'Give it as a member of options: {{"options": {{"{place}": …}}}}' if belongs else None
    return InvalidOptionError(f"{place}{wording(first)}", option=place, hint=hint)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The spec of a run.

    Attributes:
        perspective: gul, il, ri or rl.
        reports: names of the requested reports.
        options: see ``RunOptions``.
        inputs: digests of auxiliary files, by name.
        label: what people call it, or None.
    """

    perspective: str
    reports: tuple[str, ...]
    options: RunOptions
    inputs: Mapping[str, str]
    label: str | None = None

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> tuple[Self, float | None]:
        """Parse the body that creates a run; return the spec, and the lifetime in days.

        Raises:
            InvalidOptionError: a member is unknown, missing or invalid.
            ReportError: an option is of none of the reports.
        """
        try:
            body = RunBody.model_validate(values)
        except ValidationError as e:
            raise invalid(e) from e
        reports, options = [REPORTS[name] for name in body.reports], body.options
        check_options(reports, read_run_options(options), options.model_fields_set)
        inputs = dict(body.inputs)
        spec = cls(body.perspective, tuple(body.reports), body.options, inputs, body.label)
        return spec, body.days

    @staticmethod
    def parse_change(values: Mapping[str, Any]) -> str | None:
        """Parse the body that changes a run; return its new label.

        Raises:
            InvalidOptionError: a member is unknown, missing or invalid.
        """
        try:
            return RunChange.model_validate(values).label
        except ValidationError as e:
            raise invalid(e) from e

    @classmethod
    def of(cls, run: RunRecord) -> Self:
        """Return the spec of a stored run, with the inputs bound to it by now."""
        spec = run.spec
        options = RunOptions.model_validate(spec["options"])
        reports, label = tuple(spec["reports"]), spec.get("label")
        return cls(spec["perspective"], reports, options, run.inputs, label)

    def to_json(self) -> dict[str, Any]:
        """Return the canonical form, without the inputs."""
        return {
            "perspective": self.perspective,
            "reports": list(self.reports),
            "options": self.options.model_dump(exclude_none=True),
            **({} if self.label is None else {"label": self.label}),
        }

    @property
    def missing(self) -> list[str]:
        """Names of the inputs that a report needs, and that are not given."""
        names = {*self.inputs, *(name for name in _LISTS if getattr(self.options, name))}
        needs = {need.name: None for report in self.reports for need in REPORTS[report].needs}
        return [name for name in needs if name not in names]

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
                    f"{name} are given as an option and as an input",
                    hint="Give one of them; those of a run stay as it was created",
                    option=name,
                )
            values[name] = None if numbers is None else ",".join(map(repr, numbers))
        values |= dict(self.inputs)
        if reports is not None:
            others = taken_inputs(REPORTS.values()) - taken_inputs(REPORTS[r] for r in reports)
            values |= dict.fromkeys(others & set(LossQuery.model_fields))
            if values.get("occurrence") is None:
                values["no_of_periods"] = None
        return LossQuery(**values, over_bound="try")

    def policy(self, losses: LossService) -> Policy:
        """Return what is accepted of an uploaded stream, in whichever order its events are."""
        return read_policy(self.query(), losses)

    def request(
        self, caller: Identity, losses: LossService, reports: tuple[str, ...] | None = None
    ) -> LossRequest:
        """Return the request of reports, with its inputs read; not on the event loop.

        Args:
            caller: whose inputs.
            losses: the service of loss streams.
            reports: names of some of the reports; default: all.

        Raises:
            CoreError, ServiceError: an input is missing, or does not fit the reports.
        """
        return read_request(caller, reports or self.reports, self.query(reports), losses)

    def check(self, caller: Identity, losses: LossService) -> None:
        """Check options and inputs, as far as they are given; not on the event loop.

        Raises:
            CoreError, ServiceError: one is invalid, or does not fit the reports.
        """
        query = self.query()
        # Whatever else is missing: a value that is wrong can never be mended.
        for name in _LISTS:
            if getattr(self.options, name) is not None:
                losses.inputs.parsed(caller, name, getattr(query, name))
        parse_selection(query.summary_ids, None)
        if query.sets is not None:
            parse_sets(query.sets)
        ready = tuple(name for name in self.reports if not self._lacks(name))
        if ready:
            self.request(caller, losses, ready if self.missing else None)

    def _lacks(self, report: str) -> bool:
        return any(need.name in self.missing for need in REPORTS[report].needs)
