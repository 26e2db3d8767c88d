"""Work ends with its client: no thread goes on computing for nobody.

Every run tests that each loop looks at its budget, beside the loop; this, what that comes to.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cancellation.kinds import KINDS
from tests.cancellation.place import Place
from tests.cancellation.table import BOUND, measure, serving
from tests.scale import PURE_PYTHON, SOAK

LONGEST = 4.0
"""Seconds of a work within which it is left."""

pytestmark = pytest.mark.skipif(
    PURE_PYTHON or not SOAK, reason="takes an hour, of a process with compiled kernels"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.mark.parametrize("name", KINDS)
def test_no_thread_computes_for_a_client_that_has_left(place: Place, name: str) -> None:
    found = measure(place, KINDS[name], longest=LONGEST)
    rest, _ = found.worst
    assert rest.seconds <= BOUND, found
