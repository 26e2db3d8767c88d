"""All cases, and what is right of each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.memory import (
    datasets,
    inputs,
    losses,
    operations,
    pipelines,
    portfolios,
    runs,
    tiles,
)
from tests.memory.desk import Case, Desk
from tests.memory.measured import BUCKET, Measured, MeasuredService

SLACK = 16 << 20
"""Bytes that nobody need be charged for, and that any charge may be above what it is for."""

CASES: tuple[Case, ...] = tuple(
    case
    for product in (losses, inputs, runs, portfolios, datasets, tiles, pipelines, operations)
    for case in product.TABLE.cases
)


class Row(NamedTuple):
    """A case, and what came of it."""

    case: Case
    status: int
    measured: Measured

    @property
    def excess(self) -> int:
        """Bytes by which the worse of both rules is broken, below 0 if none is."""
        charged, grown, *_ = self.measured
        uncharged = grown - charged - SLACK
        return uncharged if self.case.hostile else max(uncharged, charged - 2 * grown - SLACK)

    @property
    def by_samples(self) -> bool:
        """Whether samples alone show that the growth was within the charge."""
        return self.measured.most > self.measured.charged + SLACK

    @property
    def problem(self) -> str | None:
        """What is wrong; None if nothing is."""
        charged, grown, *_ = self.measured
        if grown > charged + SLACK:
            return "UNCHARGED"
        if not self.case.hostile and charged > 2 * grown + SLACK:
            return "OVERCHARGED"
        # 0 where the client left, as on a machine that has much else to do.
        if not self.case.hostile and self.status >= 300:
            return "REFUSED"
        return "BROKEN" if self.status >= 500 and self.status != 503 else None


def measure(case: Case) -> Row:
    """Make the request of a case to a server of its own."""
    with tempfile.TemporaryDirectory() as directory:
        roots = Path(directory) / "roots"
        roots.mkdir()
        settings = {"dataset_roots": roots, **case.settings}
        if settings["dataset_roots"] == BUCKET:
            settings["dataset_roots"] = f"{BUCKET}{roots}"
        service = MeasuredService(Path(directory) / "s", **settings)
        try:
            desk = Desk(service, roots)
            prepared = case.prepare(desk)
            with service.measuring() as found:
                status = prepared() if callable(prepared) else desk.do(prepared)
        finally:
            service.kill()
    return Row(case, status, found[0])
