"""Changes that are known to be noticed by no test, each with the reason why that is right."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutants.changes import Change

TABLE = Path(__file__).with_name("survivors.toml")


class Survivor(NamedTuple):
    """One row of the table."""

    module: str
    place: str
    before: str
    after: str
    nth: int
    reason: str

    def is_of(self, change: Change) -> bool:
        """Whether this is the change that is meant."""
        return self[:5] == (change.module, change.place, change.before, change.after, change.nth)


def load() -> list[Survivor]:
    """The table.

    Raises:
        ValueError: a row has no reason, or is not as it should be.
    """
    rows = tomllib.loads(TABLE.read_text("utf-8")).get("survivor", [])
    try:
        found = [Survivor(**({"nth": 1} | row)) for row in rows]
    except TypeError as e:
        raise ValueError(f"{TABLE.name} has a row that is none: {e}") from e
    if wrong := [row for row in found if len(row.reason) < 10]:
        raise ValueError(f"{TABLE.name} gives no reason for {wrong[0].before!r}")
    return found


def stale(survivors: Iterable[Survivor], changes: Iterable[Change]) -> list[Survivor]:
    """Rows whose change can no longer be made: the source has changed, or moved."""
    there = {(c.module, c.place, c.before, c.after, c.nth) for c in changes}
    return [row for row in survivors if row[:5] not in there]
