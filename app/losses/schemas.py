"""Queries and answers of loss streams and auxiliary files."""

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

    format: Format | None = Field(None, description="Format of the answer; overrides Accept")
    quantiles: str | None = Field(
        None, description="For qelt: a list such as 0.1,0.5 or the digest of an input"
    )
    event_rates: str | None = Field(None, description="For melt: digest of an input")
    occurrence: str | None = Field(
        None, description="For melt, instead of event_rates: digest of an input"
    )
    no_of_periods: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Number of periods, for an occurrence csv"
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
        None, description="Report these summaries only: a list such as 1,5,10-20"
    )
    expect_events: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="Declared number of events of the whole stream"
    )
    expect_bytes: int | None = Field(
        None, ge=0, le=MAX_NUMBER, description="Declared length of the whole stream in bytes"
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
        None, ge=1, le=2**31 - 1, description="Number of periods, for an occurrence csv"
    )


class InputAnswer(BaseModel):
    """A stored auxiliary file."""

    name: InputName
    digest: str = Field(description="Digest by which queries refer to the file")
    bytes: int
    expires: str = Field(description="When the file expires if it is not used, ISO 8601")
