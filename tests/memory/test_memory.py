"""Requests take the memory they are charged for; ``make soak`` makes all of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.contract.test_openapi import ROUTES
from tests.memory.desk import Case, Desk, Request
from tests.memory.measured import Measured, MeasuredService
from tests.memory.table import CASES, SLACK, Row, measure
from tests.scale import SOAK

SAMPLE = 6
CHOSEN = CASES if SOAK else random.Random(11).sample(CASES, SAMPLE)  # noqa: S311 - repeatable
MIB = 1 << 20


@pytest.mark.parametrize("case", CHOSEN, ids=[case.name for case in CHOSEN])
def test_a_request_takes_what_it_is_charged_for(case: Case) -> None:
    row = measure(case)
    assert row.problem is None, row


def test_threads_have_no_heaps_of_their_own(tmp_path: Path) -> None:
    service = MeasuredService(tmp_path)
    try:
        service.get("/readyz")
        assert service.question(b"h") == 1
    finally:
        service.kill()


def test_every_route_has_a_case() -> None:
    assert {(case.method, case.route) for case in CASES} == ROUTES


def row_of(charged: int, grown: int, *, hostile: bool = False, status: int = 200) -> Row:
    def prepare(_desk: Desk) -> Request:
        return Request("GET", "/healthz")

    case = Case("made up", "GET", "/healthz", prepare, hostile)
    return Row(case, status, Measured(charged, grown, 0.1))


def test_both_rules_have_the_same_slack() -> None:
    assert row_of(0, SLACK).problem is None
    assert row_of(0, SLACK + 1).problem == "UNCHARGED"
    assert row_of(5 * MIB, SLACK + 5 * MIB + 1, hostile=True).problem == "UNCHARGED"
    assert row_of(SLACK + 4, 2).problem is None
    assert row_of(SLACK + 5, 2).problem == "OVERCHARGED"
    assert row_of(SLACK + 5, 2, hostile=True).problem is None


def test_what_is_ordinary_is_answered() -> None:
    assert row_of(1, 1, status=413).problem == "REFUSED"
    assert row_of(1, 1, status=413, hostile=True).problem is None
    assert row_of(1, 1, status=500, hostile=True).problem == "BROKEN"


def test_a_peak_within_the_charge_needs_no_samples() -> None:
    row = row_of(5 * MIB, MIB)
    within = row.measured._replace(most=5 * MIB + SLACK)
    assert not row._replace(measured=within).by_samples
    assert row._replace(measured=within._replace(most=within.most + 1)).by_samples
