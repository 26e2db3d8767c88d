"""Queries and bodies as they are documented and checked."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.errors import KINDS

Format = Literal["csv", "ndjson", "arrow", "parquet", "bin", "frames"]
ReportName = Literal["events", "selt", "melt", "qelt"]
InputName = Literal["quantiles", "event_rates", "occurrence"]

_MOST = 2**62
_CODES: list[JsonValue] = [*sorted(KINDS)]


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


class RankQuery(BaseModel):
    """Where to go on in a pipeline, and which rows of each batch are wanted."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(None, description="Token: go on behind it; else from the start")
    rank: int = Field(0, ge=0, le=_MOST, description="Rows of this rank, from 0")
    world: int = Field(1, ge=1, le=_MOST, description="Ranks that share each batch")


class BatchesQuery(RankQuery):
    """The same for a stream of batches; limits above the server's are lowered to them."""

    max_batches: int | None = Field(None, ge=0, description="Batches to send at the most")
    max_bytes: int | None = Field(
        None, ge=0, description="No batch is begun behind so many bytes of arrays"
    )
    max_seconds: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="No batch is begun after so many seconds"
    )
    max_epochs: int | None = Field(None, ge=0, description="Ends behind the end of so many epochs")


class BatchQuery(RankQuery):
    """The same for one batch."""

    offset: int = Field(0, ge=0, le=_MOST, description="Batches between the token and this one")
    format: Literal["frames", "npy", "arrow"] | None = Field(None, description="Overrides Accept")


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
    fingerprint: str = Field(description="Digest of the data, or of the unfinished event's bytes")
    stream: str | None = Field(None, description="Loss streams: what it is of")
    offset: int | None = Field(None, description="Where to go on in the stream, bytes")
    last_event: int | None = None
    ascending: bool | None = None
    events: int | None = Field(None, description="Complete events before the offset")
    unfinished_bytes: int | None = Field(None, description="Bytes behind the offset that were seen")
    tile: int | None = Field(None, description="Tiles: the one it goes on with")
    batch: int | None = Field(None, description="Batches: the one it goes on with")
    state: list[int] | None = Field(None, description="Batches: where the pipeline stands")


class Health(BaseModel):
    """A process that lives."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether requests should come here, and if not, why."""

    status: Literal["ready", "not ready"]
    reasons: list[str] = []


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="/problems/ and the code, where it is explained")
    title: str
    status: int
    detail: str
    code: str = Field(json_schema_extra={"enum": _CODES})
    offset: int | None = Field(None, description="Byte of the stream")
    event: int | None = None
    block: int | None = Field(None, description="Item or summary")
    hint: str | None = Field(None, description="What to do about it")
    option: str | None = Field(None, description="Which one it is about")
    stage: int | None = Field(None, description="Which stage of a pipeline, from 0")
    field: str | None = Field(None, description="What is wrong in that stage")
    position: int | None = Field(None, description="Item that a transform failed on")
    token: str | None = Field(None, description="Goes on behind the rows that were answered")
    resume_offset: int | None = Field(None, description="First byte to post with that token")
    request_id: str | None = None


def content_response(status: int, *media: str) -> dict[int | str, dict[str, Any]]:
    """A body of one of these media types, for the OpenAPI document."""
    schema: dict[str, Any] = {"type": "string", "format": "binary"}
    content = {each: {"schema": {} if "json" in each else schema} for each in media}
    return {status: {"description": HTTPStatus(status).phrase, "content": content}}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents of these statuses, for the OpenAPI document."""
    return {status: _problem_response(status) for status in statuses}


def _problem_response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": schema}},
        "headers": _HEADERS_OF.get(status, {}),
    }


_HEADERS_OF = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}},
    503: {
        "Retry-After": {
            "description": "Seconds after which to try again",
            "schema": {"type": "integer"},
        }
    },
}
