"""Queries and answers of loss streams and auxiliary files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from app.errors import NotFoundError
from app.http.openapi import MAX_NUMBER
from core.losses.reports import REPORTS
from core.losses.reports.choosing import report_hint
from core.losses.reports.running import CURVES

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


if TYPE_CHECKING:
    ReportName = str
    InputName = str
else:
    ReportName = Annotated[Literal[tuple(REPORTS)], BeforeValidator(_refuse_unknown)]
    InputName = Annotated[Literal[KINDS], BeforeValidator(_refuse_unused)]


class LossQuery(BaseModel):
    """Options of a posted loss stream."""

    model_config = ConfigDict(extra="forbid")

    format: Format | None = Field(None, description="Format of the answer; overrides Accept")
    quantiles: str | None = Field(
        None, description="For qelt and qplt: a list such as 0.1,0.5 or the digest of an input"
    )
    event_rates: str | None = Field(
        None, description="For melt, instead of the occurrences' rates: digest of an input"
    )
    occurrence: str | None = Field(
        None,
        description="For reports of periods and of whole runs, and for melt: digest of an input",
    )
    no_of_periods: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Number of periods, for an occurrence csv"
    )
    periods: str | None = Field(
        None, description="Weights of the periods, equal ones without: digest of an input"
    )
    return_periods: str | None = Field(
        None,
        description="For ept and psept: a list such as 250,100,50 or the digest of an input;"
        " every point of a curve without",
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
    summary_xref: str | None = Field(
        None,
        description="The stream is of items: add them up into summaries; digest of an input",
    )
    summary_map: str | None = Field(
        None, description="With summary_xref, to count affected risks: digest of an input"
    )
    sets: str | None = Field(
        None, description="Sets of summary_xref: a list such as 1,2; all without"
    )
    summary_info: str | None = Field(
        None,
        description="Columns to join to rows, by summary, in csv, ndjson, arrow and parquet:"
        " digest of an input",
    )
    theme: Theme = Field("light", description="Pictures of ept and aal: colours")
    plot_tvar: bool = Field(False, description="Pictures of ept: TVaR beside the curves")
    perspective: Perspective | None = Field(
        None, description="Pictures: perspective of the run, for the title"
    )
    currency: str | None = Field(
        None, pattern="^[A-Z]{3}$", description="Pictures: currency of the losses, for the axes"
    )
    float_width: Literal["4", "8"] = Field("4", description="Bytes per loss")
    nan: Literal["error", "zero", "drop"] = Field(
        "error", description="Treat NaN and infinite losses as an error, as 0 or as absent"
    )
    negative: Literal["error", "keep"] = Field(
        "error", description="Treat negative losses as an error, or keep them"
    )
    sample_order: Literal["ascending", "any"] = Field(
        "ascending", description="Required order of sidx within a block"
    )
    order: Literal["received", "event"] = Field(
        "received", description="event: require ascending event ids"
    )
    summary_ids: str | None = Field(
        None,
        description="Report these summaries only: a list such as 1,5,10-20; a picture has up to 12",
    )
    event_ids: str | None = Field(
        None, description="Report these events only: a list such as 1,5,10-20"
    )
    expect_events: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="Declared number of events of the whole stream"
    )
    expect_bytes: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="Declared length of the whole stream in bytes"
    )
    expect_samples: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Declared len_sample, so that sums of whole runs are bounded before the body",
    )
    expect_summaries: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Declared number of summaries of a summary stream, for the same bound",
    )
    over_bound: Literal["refuse", "try"] = Field(
        "refuse",
        description="Refuse sums that may need more than this server spends on a request, or try"
        " whether they do",
    )
    duplex: bool = Field(False, description="Send rows while the body is still arriving")
    after: str | None = Field(
        None, description="Token to resume from; the body begins at the token's offset"
    )


class ReportsQuery(LossQuery):
    """Options of a loss stream that is posted for several reports."""

    reports: str = Field(description=f"One or more of {','.join(REPORTS)}")


class InputQuery(BaseModel):
    """Options of an auxiliary file."""

    model_config = ConfigDict(extra="forbid")

    no_of_periods: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Number of periods, to check an occurrence csv with; it is not stored",
    )


class InputAnswer(BaseModel):
    """A stored auxiliary file."""

    name: InputName
    digest: str = Field(description="Digest by which queries refer to the file")
    bytes: int
    expires: str = Field(description="When the file expires if it is not used, ISO 8601")
