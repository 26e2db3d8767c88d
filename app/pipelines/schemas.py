"""Query options of batches."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.openapi import MAX_NUMBER


class RankQuery(BaseModel):
    """The position in a pipeline, and the rank whose rows to send."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None, description="Token to continue after; without it, start from the beginning"
    )
    rank: int = Field(
        0, ge=0, le=MAX_NUMBER, description="Rank whose rows of each batch to send, from 0"
    )
    world: int = Field(1, ge=1, le=MAX_NUMBER, description="Number of ranks that share each batch")


class BatchesQuery(RankQuery):
    """Options of a stream of batches; limits above the server's are lowered to the server's."""

    max_batches: int | None = Field(None, ge=0, description="Maximum number of batches to send")
    max_bytes: int | None = Field(
        None, ge=0, description="Start no batch after this many bytes of arrays"
    )
    max_seconds: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Start no batch after this many seconds"
    )
    max_epochs: int | None = Field(None, ge=0, description="End after this many epochs")


class BatchQuery(RankQuery):
    """Options of one batch."""

    offset: int = Field(
        0, ge=0, le=MAX_NUMBER, description="Number of batches to skip after the token"
    )
    format: Literal["frames", "npy", "arrow"] | None = Field(None, description="Overrides Accept")
