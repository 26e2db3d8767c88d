"""The dataset product of a running service."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.workers import Workers
from app.http.addresses import Addresses
from app.http.json_bodies import JsonBodies

from .catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class DatasetService:
    """Everything the routes of datasets need."""

    catalogue: Catalogue
    threads: Workers
    bodies: JsonBodies
    addresses: Addresses
