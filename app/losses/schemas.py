"""Queries and answers of loss streams and their inputs, as they are documented and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.openapi import MAX_NUMBER
from core.losses.reports import REPORTS

Format = Literal["csv", "ndjson", "arrow", "parquet", "bin", "frames"]
if TYPE_CHECKING:
    ReportName = str
else:
    ReportName = Literal[tuple(REPORTS)]
InputName = Literal["quantiles", "event_rates", "occurrence"]


class LossQuery(BaseModel):
    """Options of a posted loss stream."""

    model_config = ConfigDict(extra="forbid")

    format: Format | None = Field(None, description="Overrides Accept")
    quantiles: str | None = Field(
        None, description="For qelt: a list such as 0.1,0.5 or the digest of an input"
    )
    event_rates: str | None = Field(None, description="For melt: digest of an input")
    occurrence: str | None = Field(None, description="For melt: digest of an input")
    no_of_periods: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Periods of an occurrence csv"
    )
    float_width: Literal["4", "8"] = Field("4", description="Bytes of a loss")
    nan: Literal["error", "zero", "drop"] = Field("error", description="NaN and infinite losses")
    negative: Literal["error", "keep"] = Field("error", description="Negative losses")
    sample_order: Literal["ascending", "any"] = Field(
        "ascending", description="Order of sidx within a block"
    )
    order: Literal["received", "event"] = Field(
        "received", description="event: event ids must ascend"
    )
    summary_ids: str | None = Field(None, description="Rows of these only: 1,5,10-20")
    expect_events: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="Events the whole stream is declared to have"
    )
    expect_bytes: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="Bytes the whole stream is declared to have"
    )
    duplex: bool = Field(False, description="Send rows while the body arrives")
    after: str | None = Field(None, description="Token: the body goes on where it says")


class ReportsQuery(LossQuery):
    """The same with the reports that are wanted."""

    reports: str = Field(description=f"One or more of {','.join(REPORTS)}")


class InputQuery(BaseModel):
    """Options of an auxiliary file."""

    model_config = ConfigDict(extra="forbid")

    no_of_periods: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Periods of an occurrence csv"
    )


class InputAnswer(BaseModel):
    """An auxiliary file that is kept."""

    name: InputName
    digest: str = Field(description="What to name it by in a query")
    bytes: int
    expires: str = Field(description="When it is forgotten if it is not used, ISO 8601")
