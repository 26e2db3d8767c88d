"""Queries and bodies as they are documented and checked."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Format = Literal["csv", "ndjson", "arrow", "parquet", "bin", "frames"]
ReportName = Literal["events", "selt", "melt", "qelt"]
InputName = Literal["quantiles", "event_rates", "occurrence"]

_MOST = 2**62


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
        None, ge=0, le=_MOST, description="Events the whole stream is declared to have"
    )
    expect_bytes: int | None = Field(
        None, ge=0, le=_MOST, description="Bytes the whole stream is declared to have"
    )
    duplex: bool = Field(False, description="Send rows while the body arrives")
    after: str | None = Field(None, description="Token: the body goes on where it says")


class ReportsQuery(LossQuery):
    """The same with the reports that are wanted."""

    reports: str = Field(description="One or more of events,selt,melt,qelt")


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


class TokenBody(BaseModel):
    """A token to look at."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=4096)


class TokenAnswer(BaseModel):
    """A token signed anew."""

    token: str


class TokenDescription(BaseModel):
    """What a token says."""

    kind: str
    key: int = Field(description="Id of the key that signed it")
    use: str = Field(description="What that key may still be used for")
    issued: str
    identity: str = Field(description="Digest of the request it belongs to")
    fingerprint: str = Field(description="Digest of the unfinished event's bytes")
    stream: str | None
    offset: int = Field(description="Where to go on in the stream, bytes")
    last_event: int | None
    ascending: bool
    events: int = Field(description="Complete events before the offset")
    unfinished_bytes: int = Field(description="Bytes behind the offset that were seen")


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    offset: int | None = None
    event: int | None = None
    block: int | None = None
    hint: str | None = None
    option: str | None = None
    token: str | None = None
    resume_offset: int | None = None
    request_id: str | None = None


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents of these statuses, for the OpenAPI document."""
    return {
        status: {
            "description": "Problem",
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": "#/components/schemas/ProblemDocument"}
                }
            },
        }
        for status in statuses
    }
