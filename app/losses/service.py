"""The parts of a running service that loss streams need."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.buffers import Buffers
from app.engine.workers import Workers
from app.telemetry import Metrics
from app.tokens import KeyRing

from .inputs import Inputs
from .spool import Spools


@dataclass(frozen=True, slots=True)
class LossService:
    """What answering posted loss streams takes."""

    keys: KeyRing
    inputs: Inputs
    spools: Spools
    threads: Workers
    buffers: Buffers
    metrics: Metrics
    max_body: int | None
    """Bytes of a posted stream, as sent and as decoded; None for any number."""
    max_input: int
    """Bytes of an auxiliary file, decoded."""
    max_samples: int
    max_blocks: int
    """Blocks of one event."""
