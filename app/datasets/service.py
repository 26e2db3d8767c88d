"""The parts of a running service that the catalogue of datasets needs."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.buffers import Buffers
from app.engine.workers import Workers
from app.http.addresses import Addresses

from .catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class DatasetService:
    """What registering and describing datasets takes."""

    catalogue: Catalogue
    threads: Workers
    buffers: Buffers
    addresses: Addresses
