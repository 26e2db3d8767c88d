"""Bodies and answers of the routes that belong to no product."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
