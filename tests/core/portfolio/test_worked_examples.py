"""Worked examples that others have published, their arithmetic written out, and ours beside it.

From the study text of the Chartered Insurance Institute's unit M97, "Reinsurance" (2018 edition),
chapter 5, amounts in pounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.portfolio.inuring import Subject, run_programme
from core.portfolio.layers import Recoveries
from core.portfolio.losses import Calendar, OccurrenceLosses, Occurrences
from core.portfolio.programme import parse_programme

M = 1e6


def run(
    layers: list[dict[str, Any]], events: list[list[float]], values: list[float] | None = None
) -> Recoveries:
    """Run layers over the losses of each event's risks, all in one period, in order."""
    numbered = [{"ReinsNumber": k, **layer} for k, layer in enumerate(layers, 1)]
    n, one = len(events), np.ones(1, np.int32)
    occurrences = np.repeat(np.arange(n, dtype=np.int32), [len(risks) for risks in events])
    losses = np.array([loss for risks in events for loss in risks])
    rows = OccurrenceLosses(np.array([0, len(losses)]), one, one, occurrences, losses)
    when = Occurrences(np.ones(n, np.int32), np.arange(1, n + 1, dtype=np.int32), np.arange(n))
    insured = None if values is None else np.array(values)
    subject = Subject(rows, [""], np.zeros(len(losses), np.int32), insured)
    calendar = Calendar(1, when, np.zeros(0))
    return run_programme(parse_programme({"layers": numbered}), subject, calendar, 1)


def test_example_5_15_one_reinstatement() -> None:
    limit = retention = 2 * M
    losses = [2.35 * M, 3 * M, 4 * M, 3 * M]
    cover = 2 * limit  # the limit, and once again
    paid = []
    for loss in losses:
        paid.append(min(loss - retention, limit, cover))
        cover -= paid[-1]
    # The text: 350,000, then 1m, then 2m, which leaves 650,000 for a further loss of 3m.
    assert paid == pytest.approx([350_000, 1 * M, 2 * M, 650_000])
    terms = {"ReinsType": "CXL", "OccAttachment": retention, "OccLimit": limit, "Reinstatement": 1}
    got = run([terms], [[loss] for loss in losses])
    assert got.ceded_losses().losses == pytest.approx(paid)
    assert got.exhausted[0, 0] == 1


def test_example_5_16_a_reinstatement_premium_pro_rata_as_to_amount() -> None:
    limit = retention = 100_000
    loss_to_cover = 150_000 - retention
    # The text: half of the limit, so half of the deposit premium; then of the adjusted premium.
    for premium, due in ((10_000, 5_000), (0.01 * 1_200_000, 6_000)):
        assert loss_to_cover / limit * premium == due
        terms = {
            "ReinsType": "CXL", "OccAttachment": retention, "OccLimit": limit,
            "Reinstatement": 1, "ReinstatementCharge": 1, "ReinsPremium": premium,
        }  # fmt: skip
        got = run([terms], [[150_000]])
        assert got.ceded(0) == [loss_to_cover]
        assert got.reinstatement_premiums(0) == pytest.approx([due])
        assert got.net == [100_000]


def test_example_5_3_a_surplus_inures_to_a_cover_of_events() -> None:
    line, buildings = 100_000, 25
    surplus = buildings * 9 * line
    retained = buildings * line
    excess = retained - 1.5 * M
    # The text: 22.5m from the surplus, 1m from the excess of loss, 23.5m in all.
    assert (surplus, excess, surplus + excess) == (22.5 * M, 1 * M, 23.5 * M)
    layers: list[dict[str, Any]] = [
        {"ReinsType": "SS", "RiskAttachment": line, "RiskLimit": 9 * line},
        {"ReinsType": "CXL", "OccAttachment": 1.5 * M, "OccLimit": 28.5 * M, "InuringPriority": 2},
    ]
    got = run(layers, [[1 * M] * buildings], [1 * M] * buildings)
    assert [got.ceded(k)[0] for k in range(2)] == pytest.approx([surplus, excess])
    assert got.net.sum() == pytest.approx(1.5 * M)


def test_example_5_5_a_surplus_inures_to_a_cover_of_each_risk() -> None:
    retention, deductible = 50 * M, 5 * M
    cessions = []
    for loss, insured in ((20 * M, 120 * M), (12 * M, 40 * M)):
        surplus = loss * max(insured - retention, 0) / insured
        cessions.append((surplus, loss - surplus - deductible))
    # The text: 11.66m and 3.34m for risk X, nothing and 7m for risk Y, and 5m kept of each.
    assert cessions[0] == pytest.approx((11.66 * M, 3.34 * M), abs=0.01 * M)
    assert cessions[1] == pytest.approx((0, 7 * M))
    layers: list[dict[str, Any]] = [
        {"ReinsType": "SS", "RiskAttachment": retention, "RiskLimit": 70 * M},
        {"ReinsType": "PR", "RiskAttachment": deductible, "RiskLimit": 45 * M,
         "InuringPriority": 2},
    ]  # fmt: skip
    got = run(layers, [[20 * M, 12 * M]], [120 * M, 40 * M])
    sums = [cessions[0][k] + cessions[1][k] for k in range(2)]
    assert [got.ceded(k)[0] for k in range(2)] == pytest.approx(sums)
    assert got.net == pytest.approx([deductible, deductible])
