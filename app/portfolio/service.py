"""The portfolio product of a running service."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.workers import Workers
from app.http.addresses import Addresses
from app.http.json_bodies import JsonBodies

from .answering import Answers
from .exchanging import Importing
from .making import Making
from .records import LossSets


@dataclass(frozen=True, slots=True)
class PortfolioService:
    """Everything the routes of loss sets and of questions about them need."""

    sets: LossSets
    making: Making
    importing: Importing
    answers: Answers
    threads: Workers
    waiting: Workers
    """Threads of questions, which wait for calls of the others."""
    bodies: JsonBodies
    addresses: Addresses
