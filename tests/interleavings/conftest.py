"""A scheduler for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .runs_world import exploring
from .scheduler import Scheduler


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    with exploring() as made:
        yield made
