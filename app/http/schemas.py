"""Request bodies and answers of the routes outside the products."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TokenBody(BaseModel):
    """A token to inspect or refresh."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=4096)


class TokenAnswer(BaseModel):
    """A refreshed token."""

    token: str


class TokenDescription(BaseModel):
    """The contents of a token."""

    kind: str
    key: int = Field(description="Id of the key that signed it")
    use: str = Field(description="Permitted use of that key: sign, accept or refresh-only")
    issued: str
    identity: str = Field(description="Digest of the request that the token belongs to")
    fingerprint: str = Field(
        description="Tiles: that of the dataset; batches: that of the pipeline; loss streams: of"
        " the unfinished event's bytes"
    )
    stream: str | None = Field(None, description="Loss streams: kind and parameters of the stream")
    offset: int | None = Field(None, description="Loss streams: byte offset to resume at")
    last_event: int | None = None
    ascending: bool | None = None
    events: int | None = Field(
        None, description="Loss streams: number of complete events before the offset"
    )
    unfinished_bytes: int | None = Field(
        None, description="Loss streams: number of bytes already seen after the offset"
    )
    tile: int | None = Field(None, description="Tiles: index of the next tile")
    batch: int | None = Field(None, description="Batches: index of the next batch")
    state: list[int] | None = Field(None, description="Batches: state of the pipeline")


class Health(BaseModel):
    """A live process."""

    status: Literal["ok"]


class ReadinessPart(BaseModel):
    """A part of the worker that answers."""

    status: Literal["ok", "failing"]
    since: str = Field(description="When it became so")
    detail: str | None = Field(None, description="Why it fails")


class ReadinessWorker(BaseModel):
    """A worker of the service."""

    worker: int
    status: Literal["ready", "being replaced", "not ready"]
    reasons: list[str] = []


class Readiness(BaseModel):
    """Whether the service is ready for requests, and if not, why."""

    status: Literal["ready", "not ready"]
    reasons: list[str] = []
    parts: dict[str, ReadinessPart] = {}
    workers: list[ReadinessWorker] = []
    poisoned_jobs: int = Field(0, description="Jobs that were given up: their processes died")
