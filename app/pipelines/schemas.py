"""Queries of pipelines, as they are documented and checked."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.openapi import MAX_NUMBER


class RankQuery(BaseModel):
    """Where to go on in a pipeline, and which rows of each batch are wanted."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(None, description="Token: go on behind it; else from the start")
    rank: int = Field(0, ge=0, le=MAX_NUMBER, description="Rows of this rank, from 0")
    world: int = Field(1, ge=1, le=MAX_NUMBER, description="Ranks that share each batch")


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

    offset: int = Field(
        0, ge=0, le=MAX_NUMBER, description="Batches between the token and this one"
    )
    format: Literal["frames", "npy", "arrow"] | None = Field(None, description="Overrides Accept")
