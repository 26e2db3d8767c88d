"""Bodies, queries and answers of runs and their streams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from app.losses.pictures.options import Theme
from app.losses.schemas import InputName, ReportName
from app.times import MAX_DAYS
from core.losses.reports.running import CURVES

from .records import MAX_PARTITION
from .streams import MAX_STREAMS


def _refuse_float(value: object) -> object:
    """Refuse 4.0, which equals 4 and so is one of the choices even to a strict model.

    Raises:
        PydanticCustomError: it is a float.
    """
    if isinstance(value, float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


class RunOptions(BaseModel):
    """Options of a run: those of a posted stream, and the number of its partitions."""

    model_config = ConfigDict(extra="forbid", strict=True)

    partitions: int | None = Field(
        None, ge=1, le=MAX_PARTITION, description="Number of streams; sealing requires all of them"
    )
    quantiles: list[float] | None = Field(None, max_length=10_000, description="For qelt and qplt")
    return_periods: list[int] | None = Field(
        None, max_length=100_000, description="For ept and psept; every point without"
    )
    no_of_periods: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Number of periods, for an occurrence csv"
    )
    confidence: float = Field(0.95, ge=0, lt=1, description="Confidence level of alct")
    curves: str = Field(CURVES, pattern=f"^[{CURVES}]+$", description="Curves of ept and psept")
    tvar: Literal["count", "weight"] = "count"
    float_width: Annotated[Literal[4, 8], BeforeValidator(_refuse_float)] = Field(
        4, description="Bytes per loss"
    )
    nan: Literal["error", "zero", "drop"] = "error"
    negative: Literal["error", "keep"] = "error"
    sample_order: Literal["ascending", "any"] = "ascending"
    order: Literal["received", "event"] = Field(
        "received", description="Order of rows: as received, or by event"
    )
    sets: list[int] | None = Field(
        None, min_length=1, max_length=1000, description="Sets of summary_xref; all without"
    )
    summary_ids: str | None = Field(None, description="Report these summaries only")


class NewRunOptions(RunOptions):
    """Options of a run to create; earlier versions took more partitions than could be sealed."""

    partitions: int | None = Field(
        None, ge=1, le=MAX_STREAMS, description="Number of streams; sealing requires all of them"
    )


class RunBody(BaseModel):
    """A run to create."""

    model_config = ConfigDict(extra="forbid", strict=True)

    perspective: Literal["gul", "il", "ri", "rl"]
    reports: list[ReportName] = Field(min_length=1)
    inputs: dict[InputName, str] = Field({}, description="Digests of auxiliary files, by name")
    options: NewRunOptions = Field(default_factory=lambda: NewRunOptions.model_validate({}))
    days: float | None = Field(
        None, gt=0, le=MAX_DAYS, description="Lifetime after the last change, in days"
    )

    @model_validator(mode="after")
    def _once(self) -> RunBody:
        if len(set(self.reports)) < len(self.reports):
            raise ValueError("reports names one twice")
        return self


class StreamCounts(BaseModel):
    """The streams of a run, by what became of them."""

    created: int
    uploading: int
    complete: int
    failed: int


class RunAnswer(BaseModel):
    """A run."""

    id: str
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
    problem: dict[str, Any] | None = Field(None, description="Why it failed")
    results: dict[str, Any] = {}
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

    partition: int | None = Field(
        None, ge=1, le=MAX_PARTITION, description="Which partition it is; the lowest free without"
    )


class ReportsBody(BaseModel):
    """Further reports of a sealed run."""

    model_config = ConfigDict(extra="forbid")

    reports: list[ReportName] = Field(min_length=1)
    options: dict[str, Any] = Field(
        {}, description="Options that differ from those of the run, such as quantiles"
    )
    inputs: dict[InputName, str] = Field({}, description="Inputs that differ, by name")


class ReportsQuery(BaseModel):
    """Options of a report of a sealed run."""

    model_config = ConfigDict(extra="forbid")

    set: int | None = Field(None, ge=1, description="Summary set, where streams are of items")
    variant: str | None = Field(
        None, pattern="^[0-9a-z]{1,16}$", description="Of further reports, as their POST answered"
    )
    format: Literal["csv", "parquet", "arrow", "ndjson", "bin", "svg", "png"] | None = Field(
        None, description="Format of the answer; overrides Accept"
    )
    summary_ids: str | None = Field(
        None, description="Rows of these summaries, as 1,5,10-20; a picture has up to 12"
    )
    event_ids: str | None = Field(None, description="Rows of these events, as 1,5,10-20")
    theme: Theme = Field("light", description="Pictures of ept and aal: colours")
    plot_tvar: bool = Field(False, description="Pictures of ept: TVaR beside the curves")
    currency: str | None = Field(
        None, pattern="^[A-Z]{3}$", description="Pictures: currency of the losses, for the axes"
    )


class RowsQuery(BaseModel):
    """Options of the rows of a run."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(None, max_length=512, description="Token to go on after")
    follow: bool = Field(False, description="Wait for rows to come, until the run is sealed")
    stream: str | None = Field(None, max_length=64, description="Rows of this stream only")
    format: Literal["frames", "csv", "ndjson", "arrow", "parquet", "bin", "sse"] | None = Field(
        None, description="Format of the answer; overrides Accept"
    )
