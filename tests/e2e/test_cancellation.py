"""Work ends with its client: no thread goes on computing for nobody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cancellation.kinds import KINDS
from tests.cancellation.place import Place
from tests.cancellation.table import BOUND, measure, serving
from tests.scale import PURE_PYTHON, SOAK

SAMPLE = {"aal": 0.2, "shuffled tiles": 0.1}
"""Kinds of work that every run tries, and the part of their largest size."""
LENIENT = 1.0
"""CPU seconds that a thread may use after its client has left, on a machine that does much else."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    with serving(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.mark.parametrize("name", KINDS if SOAK else SAMPLE)
def test_no_thread_computes_for_a_client_that_has_left(place: Place, name: str) -> None:
    part, moments, bound = (1.0, 20, BOUND) if SOAK else (SAMPLE[name], 2, LENIENT)
    found = measure(place, KINDS[name], part, moments)
    rest, _ = found.worst
    assert rest.seconds <= bound, found
