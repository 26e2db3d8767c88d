"""What every test needs: warm kernels, and Hypothesis without a stopwatch."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.scale import examples

settings.register_profile("thalweg", deadline=None, max_examples=examples(100), print_blob=True)
settings.load_profile("thalweg")


@pytest.fixture(scope="session", autouse=True)
def _warm_kernels() -> None:
    """Compile once, not in the middle of whichever test comes first."""
    if os.environ.get("NUMBA_DISABLE_JIT") != "1":
        from core.warmup import warm_up

        warm_up()
