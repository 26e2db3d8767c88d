"""What every test needs: warm kernels, and Hypothesis without a stopwatch."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import structlog
from hypothesis import settings

from tests.scale import PURE_PYTHON, SOAK, examples
from tests.side_by_side import pytest_addoption, pytest_runtestloop

__all__ = ["pytest_addoption", "pytest_runtestloop"]

# A shell that starts this in the background has interrupts ignored, and children inherit
# that: the tests that interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TESTS = Path(__file__).parent
_LONGEST = ("interleavings", "contract", "docs", "e2e", "client", "app")
_LONGEST_FILES = {"test_jit.py", "test_workers.py", "test_thalweg_service.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker ends long after others."""
    if not SOAK:
        for item in items:
            if item.get_closest_marker("slow") is not None:
                item.add_marker(pytest.mark.skip(reason="takes minutes: run by make soak"))
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, bool]:
    folder = item.path.relative_to(_TESTS).parts[0]
    place = _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST)
    return place, item.path.name not in _LONGEST_FILES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while thousands of tests are created, all of which stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


settings.register_profile("thalweg", deadline=None, max_examples=examples(100), print_blob=True)
settings.load_profile("thalweg")


@pytest.fixture(scope="session", autouse=True)
def _warm_kernels() -> None:
    """Compile once, not in the middle of whichever test comes first."""
    if not PURE_PYTHON:
        from core.warmup import warm_up

        warm_up()


@pytest.fixture(scope="module", autouse=True)
def _only_garbage_of_its_own() -> None:
    """Close what earlier files left; what lives on need not be looked at in each collection.

    It is thousands of tests, numba, and ever more modules: hundreds of tests collect garbage.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _quiet_floats() -> Iterator[None]:
    """Plain Python kernels overflow to infinity as quietly as compiled ones."""
    quiet: Literal["ignore", "warn"] = "ignore" if PURE_PYTHON else "warn"
    with np.errstate(over=quiet, invalid=quiet):
        yield


@pytest.fixture(autouse=True)
def _logs_of_each_test() -> Iterator[None]:
    """Undo what a command did to logs: they go to the stderr of its test, which is closed then."""
    yield
    structlog.reset_defaults()
