"""Queries and answers of loss streams and auxiliary files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from app.errors import NotFoundError
from app.http.openapi import MAX_NUMBER
from core.losses.reports import REPORTS, report_hint
from core.losses.reports.report import CURVES

from .inputs import KINDS, UNUSED
from .pictures.options import Perspective, Theme

Format = Literal["csv", "ndjson", "arrow", "parquet", "bin", "frames", "svg", "png"]


def _refuse_unused(name: object) -> object:
    """Refuse the files that a model has and no report is computed from.

    Raises:
        NotFoundError: it is one of them.
    """
    if name in UNUSED:
        raise NotFoundError(
            f"no report is computed from {name}, so such files are not stored",
            hint=f"There are {', '.join(KINDS)}",
        )
    return name


def _refuse_unknown(value: object) -> object:
    """Name the report that somebody means who calls it otherwise.

    Raises:
        PydanticCustomError: there is no such report.
    """
    if isinstance(value, str) and value not in REPORTS:
        known = {"name": repr(value[:80]), "hint": report_hint(value)}
        raise PydanticCustomError("report", "there is no report {name}. {hint}", known)
    return value


def _refuse_info(name: object) -> object:
    """Refuse the columns that tables of runs do not have.

    Raises:
        PydanticCustomError: they are given.
    """
    if name == _INFO:
        text = "tables of runs have no joined columns: post the stream, or join them by SummaryId"
        raise PydanticCustomError("run_input", text)
    return _refuse_unused(name)


_INFO = "summary_info"
if TYPE_CHECKING:
    ReportName = str
    InputName = str
    RunInputName = str
else:
    ReportName = Annotated[Literal[tuple(REPORTS)], BeforeValidator(_refuse_unknown)]
    InputName = Annotated[Literal[KINDS], BeforeValidator(_refuse_unused)]
    RunInputName = Annotated[
        Literal[tuple(kind for kind in KINDS if kind != _INFO)], BeforeValidator(_refuse_info)
    ]


def given(description: str, **limits: Any) -> Any:  # noqa: ANN401 - of pydantic's Field
    """Return a field that may be left out, and is None then."""
    return Field(None, description=description, **limits)


class PassOptions(BaseModel):
    """Options of a pass over loss streams, posted or of a run."""

    model_config = ConfigDict(extra="forbid")

    no_of_periods: int | None = given(
        "Number of periods, for an occurrence csv", ge=1, le=2**31 - 1
    )
    confidence: float = Field(0.95, ge=0, lt=1, description="Confidence level of alct")
    curves: str = Field(
        CURVES,
        pattern=f"^[{CURVES}]+$",
        description="Curves of ept: F full uncertainty, S sample mean, M per-sample mean; and of"
        " psept: W; capital for AEP, small for OEP",
    )
    tvar: Literal["count", "weight"] = Field(
        "count", description="TVaR as the mean of losses by their number or by period weight"
    )
    nan: Literal["error", "zero", "drop"] = Field(
        "error", description="Treat NaN and infinite losses as an error, as 0 or as absent"
    )
    negative: Literal["error", "keep"] = Field(
        "error", description="Treat negative losses as an error, or keep them"
    )
    sample_order: Literal["ascending", "any"] = Field(
        "ascending", description="Required order of sidx within a block"
    )


class LossQuery(PassOptions):
    """Options of a posted loss stream."""

    format: Format | None = given("Format of the answer; overrides Accept")
    quantiles: str | None = given(
        "For qelt and qplt: a list such as 0.1,0.5 or the digest of an input"
    )
    event_rates: str | None = given(
        "For melt, instead of the occurrences' rates: digest of an input"
    )
    occurrence: str | None = given(
        "For reports of periods and of whole runs, and for melt: digest of an input"
    )
    periods: str | None = given("Weights of the periods, equal ones without: digest of an input")
    return_periods: str | None = given(
        "For ept and psept: a list such as 250,100,50 or the digest of an input;"
        " every point of a curve without"
    )
    summary_xref: str | None = given(
        "The stream is of items: add them up into summaries; digest of an input"
    )
    summary_map: str | None = given(
        "With summary_xref, to count affected risks: digest of an input"
    )
    sets: str | None = given("Sets of summary_xref: a list such as 1,2; all without")
    summary_info: str | None = given(
        "Columns to join to rows, by summary, in csv, ndjson, arrow and parquet: digest of an input"
    )
    theme: Theme = Field("light", description="Pictures of ept and aal: colours")
    plot_tvar: bool = Field(False, description="Pictures of ept: TVaR beside the curves")
    perspective: Perspective | None = given("Pictures: perspective of the run, for the title")
    currency: str | None = given(
        "Pictures: currency of the losses, for the axes", pattern="^[A-Z]{3}$"
    )
    float_width: Literal["4", "8"] = Field("4", description="Bytes per loss")
    order: Literal["received", "event"] = Field(
        "received", description="event: require ascending event ids"
    )
    summary_ids: str | None = given(
        "Report these summaries only: a list such as 1,5,10-20; a picture has up to 12"
    )
    event_ids: str | None = given("Report these events only: a list such as 1,5,10-20")
    expect_events: int | None = given(
        "Declared number of events of the whole stream", ge=0, le=MAX_NUMBER
    )
    expect_bytes: int | None = given(
        "Declared length of the whole stream in bytes", ge=0, le=MAX_NUMBER
    )
    expect_samples: int | None = given(
        "Declared len_sample, so that sums of whole runs are bounded before the body",
        ge=1,
        le=2**31 - 1,
    )
    expect_summaries: int | None = given(
        "Declared number of summaries of a summary stream, for the same bound", ge=1, le=2**31 - 1
    )
    over_bound: Literal["refuse", "try"] = Field(
        "refuse",
        description="Refuse sums that may need more than this server spends on a request, or try"
        " whether they do",
    )
    duplex: bool = Field(False, description="Send rows while the body is still arriving")
    check: bool = Field(
        False, description="Check everything but the stream, which is not read: 204"
    )
    after: str | None = given("Token to resume from; the body begins at the token's offset")


class ReportsQuery(LossQuery):
    """Options of a loss stream that is posted for several reports."""

    reports: str = Field(description=f"One or more of {','.join(REPORTS)}")


class InputQuery(BaseModel):
    """Options of an auxiliary file."""

    model_config = ConfigDict(extra="forbid")

    no_of_periods: int | None = given(
        "Number of periods, for an occurrence csv; it becomes the run's", ge=1, le=2**31 - 1
    )


class InputAnswer(BaseModel):
    """A stored auxiliary file."""

    name: InputName
    digest: str = Field(description="Digest by which queries refer to the file")
    bytes: int
    expires: str = Field(description="When the file expires if it is not used, ISO 8601")
