"""Ledgers of runs made by hand."""

from __future__ import annotations

from typing import Any

from core.losses.analysis import Analysis
from core.losses.finishing import LedgerResources
from core.losses.ledger.ledger import Ledger
from core.losses.policy import Policy
from tests.runs import RunCase


def ledger_of(case: RunCase, **resources: Any) -> Ledger:  # noqa: ANN401 - of LedgerResources
    """The ledger of the whole stream."""
    analysis = Analysis(
        ["ept"],
        lambda _name, _rows: None,
        policy=Policy(float_width=case.stream.width),
        resources=LedgerResources(**resources),
        **case.inputs,
    )
    analysis.receive(case.stream.encode())
    analysis.close(ends_run=False)
    assert analysis.ledger is not None
    return analysis.ledger
