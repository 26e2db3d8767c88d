"""What is asked of loss sets: a JSON object, checked as far as it can be without their content."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from app.errors import InvalidOptionError
from app.losses.schemas import given
from app.wording import wording
from core.errors import names_hint
from core.losses.reports.report import CURVES
from core.portfolio.programme import ALL_PERILS

SUMMARY = "SummaryId"
"""What groups by summary, beside the dimensions of the sets."""
MAX_SETS = 64
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_MAX_SEED = 2**63 - 1
_TOLERANCE = 1e-6
ReportName = Literal[
    "averages",
    "curves",
    "periods",
    "layers",
    "recoveries",
    "contributions",
    "uncertainty",
    "summary",
]


def _text_of(ids: object) -> object:
    return ",".join(map(str, ids)) if isinstance(ids, list) else ids


def _whole(years: object) -> object:
    return int(years) if isinstance(years, float) and years.is_integer() else years


Currency = Annotated[str, Field(pattern="^[A-Z]{3}$")]
Seed = Annotated[int, Field(ge=0, le=_MAX_SEED)]
Ident = Annotated[int, Field(ge=1, le=2**31 - 1)]
Years = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=2**31 - 1)]
Event = Annotated[int, Field(ge=0, le=2**31 - 1)]
Events = Annotated[str, BeforeValidator(_text_of, json_schema_input_type=str | list[Event])]
_PERIL = re.compile(rf"(?!{ALL_PERILS}$)[^;\s]([^;]{{0,198}}[^;\s])?")
_CURRENCY = re.compile("[A-Z]{3}", re.ASCII)


class SetPart(BaseModel):
    """A loss set, and what its losses count."""

    model_config = _STRICT

    id: str = Field(description="Its name")
    weight: float = Field(1.0, gt=0, le=1e12, description="Factor of its losses")
    samples: Literal["repeat"] | None = given(
        "Of a set with one sample: every sample of the others has its losses"
    )
    pairing_seed: Seed | None = given(
        "Pairs its periods at random with those of another catalogue; 0 without"
    )
    model: str | None = given("Of a blend: the model that it is of; its id without")


class Filter(BaseModel):
    """Which losses count."""

    model_config = _STRICT

    dimensions: dict[str, list[str | int | float]] = Field(
        {}, description="Values of each dimension, one of which a summary must have"
    )
    exclude: dict[str, list[str | int | float]] = Field(
        {}, description="Values of each dimension, none of which a summary may have"
    )
    events: str | None = given("Events, as 1,5,10-20")
    periods: list[Ident] | None = given(
        "First and last period of the answer", min_length=2, max_length=2
    )
    months: list[Annotated[int, Field(ge=1, le=12)]] | None = given(
        "Months of the date, 1 to 12", min_length=1, max_length=12
    )

    @model_validator(mode="after")
    def _ordered(self) -> Filter:
        if self.periods is not None and self.periods[0] > self.periods[1]:
            raise ValueError("periods ends before it begins")
        return self


class Query(BaseModel):
    """A question about loss sets."""

    model_config = _STRICT

    loss_sets: list[SetPart] = Field(
        min_length=1, max_length=MAX_SETS, description="Whose losses are added, or blended"
    )
    report: ReportName = Field("summary", description="What is asked for")
    currency: Currency | None = given("Currency of the answer")
    rates: dict[str, Annotated[float, Field(gt=0, le=1e12)]] = Field(
        {}, description="What one unit of each currency is in that of the answer"
    )
    blend: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        {}, description="Share of each model in the years: a mixture of them instead of a sum"
    )
    filter: Filter = Field(
        default_factory=lambda: Filter.model_validate({}), description="Which losses count"
    )
    group_by: list[str] = Field(
        [], max_length=16, description=f"Dimensions, or {SUMMARY}; one group without"
    )
    curves: str = Field(
        "FfSsMm", pattern=f"^[{CURVES}]+$", description="Curves, by the letters of ept and psept"
    )
    return_periods: list[Years] | None = given(
        "Points of the curves, in years; every point without", min_length=1, max_length=10_000
    )
    tvar: Literal["count", "weight"] | None = given(
        "As of reports of runs; without, weight where periods have weights, else count"
    )
    programme: dict[str, Any] | None = given("Reinsurance programme, for layers and net losses")
    programme_by: list[str] = Field(
        [],
        max_length=16,
        description=f"Dimensions, or {SUMMARY}, that the programme's layers tell apart, for an"
        " answer of the whole; those of group_by without",
    )
    perils: dict[str, Events] = Field(
        {}, description="Events of each peril, for ReinsPeril and hours clauses"
    )
    of: Literal["gross", "net", "ceded"] = Field(
        "gross", description="Losses of groups: before or after the programme"
    )
    insured_value: str | None = given("Dimension with the insured values of risks, for an SS")
    float_width: Literal[4, 8] | None = given(
        "Bytes of an amount; those of the sets without. Other reports have 8, and take no 4"
    )
    seed: Seed = Field(0, description="Of resampled periods")
    tolerance: float = Field(
        0.05, gt=0, lt=1, description="Noise of samples that uncertainty advises for"
    )
    band: float = Field(0.0, ge=0, lt=1, description="Of VaR parts, as a share of its rank")
    leave_one_out: bool = Field(False, description="Contributions: the whole without each group")
    confidence: float = Field(0.95, gt=0, lt=1, description="Of bands of uncertainty")
    table: str | None = given("The one table to answer with, such as ept, or keys")

    @property
    def pairing_seed(self) -> int:
        """What pairs the periods of several catalogues."""
        return next((p.pairing_seed for p in self.loss_sets if p.pairing_seed is not None), 0)

    @property
    def of_parts(self) -> Query:
        """The question about the groups that the programme applies to."""
        return self.model_copy(update={"group_by": self.programme_by or self.group_by})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Query:
        """Parse the body of a request.

        Raises:
            InvalidOptionError: a member is unknown, missing, invalid or contradicts another.
        """
        try:
            query = cls.model_validate(values)
        except ValidationError as e:
            raise _refused(e) from e
        for option, fault, hint in _contradictions(query):
            raise InvalidOptionError(fault, option=option, hint=hint)
        # Catalogues are paired in an order that is not that in which somebody names them.
        query.loss_sets.sort(key=lambda part: part.id)
        return query


_ROLLED = ("averages", "curves", "periods", "summary")
_GROUPS = (*_ROLLED, "contributions", "uncertainty")
USES: Mapping[str, Sequence[str]] = {
    "curves": ("curves", "summary", "contributions"),
    "return_periods": ("curves", "summary", "contributions", "uncertainty"),
    "tvar": ("curves", "summary"),
    "float_width": _ROLLED,
    "of": _GROUPS,
    **dict.fromkeys(("programme", "perils"), (*_GROUPS, "layers", "recoveries")),
    "insured_value": (*_GROUPS, "layers", "recoveries"),
    "programme_by": (*_ROLLED, "uncertainty", "layers", "recoveries"),
    **dict.fromkeys(("band", "leave_one_out"), ("contributions",)),
    **dict.fromkeys(("seed", "tolerance", "confidence"), ("uncertainty",)),
}
"""Reports that use an option which others would ignore."""


def _contradictions(query: Query) -> Iterator[tuple[str, str, str | None]]:
    """Yield an option, what is wrong with it, and how to correct it."""
    for name, values in (
        ("loss_sets", [part.id for part in query.loss_sets]),
        ("group_by", query.group_by),
        ("programme_by", query.programme_by),
        ("return_periods", query.return_periods or []),
    ):
        if len(set(values)) < len(values):
            yield name, f"{name} names one twice", "Name each once"
    names = _option_names(query)
    for name in sorted(names & USES.keys()):
        if query.report not in USES[name]:
            hint = f"Leave it out; it is for {', '.join(USES[name])}"
            yield name, f"the report {query.report} does not use {name}", hint
    yield from _of_programme(query, names)
    letters = query.curves if "curves" in names and query.report == "contributions" else ""
    if set(letters) - {"F", "f"}:
        yield "curves", f"contributions are to F and f, not to {letters}", "Give F, f or both"
    if len({part.pairing_seed for part in query.loss_sets} - {None}) > 1:
        yield "loss_sets", "pairing_seed differs between loss sets", "One pairs all: give it once"
    yield from _of_blend(query)
    if wrong := [name for name in query.perils if not _PERIL.fullmatch(name)]:
        known = f"{ALL_PERILS} is any peril, and ; stands between perils"
        yield "perils", f"perils has {wrong[0][:20]!r}, but in ReinsPeril {known}", None
    if wrong := [code for code in query.rates if not _CURRENCY.fullmatch(code)]:
        yield "rates", f"rates has {wrong[0][:20]!r}, which is no currency such as EUR", None
    if query.rates and query.currency is None:
        yield "currency", "rates need the currency of the answer", "Give currency"


def _option_names(query: Query) -> set[str]:
    """Return the names of the options that ask for something."""
    names = {name for name in query.model_fields_set if getattr(query, name) is not None}
    # Amounts of every report can have eight bytes: asked for, they are no option without effect.
    return names - {"float_width"} if query.float_width == 8 else names  # noqa: PLR2004


def _of_blend(query: Query) -> Iterator[tuple[str, str, str | None]]:
    shares, parts = query.blend, query.loss_sets
    if not shares:
        if models := [part.model for part in parts if part.model]:
            hint = f'Give its share: {{"blend": {{"{models[0]}": …}}}}'
            yield "blend", f"the model {models[0]} is of no blend", hint
        return
    if odd := sorted(shares.keys() ^ {part.model or part.id for part in parts}):
        lack = "has no loss set" if odd[0] in shares else "has no share"
        hint = "Give one for each model: each loss set is one, unless it names one by model"
        yield "blend", f"{odd[0]} {lack}", hint
    if abs(sum(shares.values()) - 1) > _TOLERANCE:
        fault = f"the shares add up to {sum(shares.values()):.9g}, not to 1"
        yield "blend", fault, "Divide them by their sum, if that is what they mean"
    if query.report == "uncertainty":
        fault = "years that are resampled at random have other shares"
        yield "blend", fault, "Ask for the uncertainty of each model"
    if any(part.pairing_seed is not None for part in parts):
        yield "loss_sets", "years of a blend are not paired", "Leave pairing_seed out"


def _of_programme(query: Query, names: Container[str]) -> Iterator[tuple[str, str, str | None]]:
    alone = query.report in {"layers", "recoveries"}
    if query.programme is None:
        if alone or query.of != "gross":
            subject = f"report {query.report}" if alone else f'"of": "{query.of}"'
            yield "programme", f"{subject} needs a programme", 'Give {"layers": […]}'
        if query.perils:
            yield "perils", "perils need a programme", 'Give {"layers": […]}, or leave them out'
        if query.programme_by:
            yield "programme_by", "programme_by needs a programme", 'Give {"layers": […]}'
        if query.insured_value is not None:
            yield "insured_value", "insured values are for a programme", "Give one, or leave it out"
    elif not alone and query.report != "summary" and "of" not in names:
        fault = f"a programme does not tell which losses {query.report} are of"
        yield "of", fault, 'Give "of": "gross", "net" or "ceded"'
    if query.programme_by and query.group_by:
        fault = "with programme_by the answer is of the whole, and group_by has groups"
        yield "group_by", fault, "Leave one out: without programme_by, layers tell groups apart"


_MEMBERS: Mapping[tuple[str, ...], type[BaseModel]] = {
    (): Query,
    ("loss_sets",): SetPart,
    ("filter",): Filter,
}


def _refused(error: ValidationError) -> InvalidOptionError:
    """Name the member that somebody means who writes another."""
    first = error.errors(include_url=False)[0]
    place = _place(first["loc"])
    hint, value = None, first["input"]
    if first["type"] == "extra_forbidden":
        names = tuple(part for part in first["loc"] if isinstance(part, str))
        hint = names_hint(names[-1], _MEMBERS[names[:-1]].model_fields)
    has = f", and is {value}" if type(value) in {int, float} else ""
    return InvalidOptionError(f"{place}{wording(first)}{has}", hint=hint, option=place)


def _place(path: Sequence[str | int]) -> str:
    """Name a member as programmes do: ``filter.months[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")[:200] or "the body"
