"""The pipeline product of a running service."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.workers import Workers
from app.http.addresses import Addresses
from app.http.json_bodies import JsonBodies
from app.telemetry import Metrics

from .registry import Pipelines


@dataclass(frozen=True, slots=True)
class PipelineService:
    """Everything the routes of pipelines and batches need."""

    pipelines: Pipelines
    threads: Workers
    bodies: JsonBodies
    metrics: Metrics
    addresses: Addresses
