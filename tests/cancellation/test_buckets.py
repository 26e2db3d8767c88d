"""Who leaves while a bucket is read is not computed for; reads of it stop, and memory is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from app.datasets.files.fetching import AT_ONCE
from tests.cancellation.buckets import PARTS, BucketPlace, serving_bucket
from tests.cancellation.kinds import KINDS
from tests.cancellation.leaving import Work, leave, run
from tests.cancellation.table import BOUND
from tests.dask_cluster import until
from tests.object_server import environment_python
from tests.scale import PURE_PYTHON

LONGEST, MOMENTS = 3.0, 4

pytestmark = pytest.mark.skipif(
    PURE_PYTHON or environment_python() is None,
    reason="THALWEG_OBJECTS_PYTHON names no environment, or kernels are not compiled",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketPlace]:
    with serving_bucket(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_done_for_a_client_that_has_left(place: BucketPlace, name: str) -> None:
    prepared = KINDS[name].prepare(place, PARTS[name])
    make = partial(_same, prepared) if isinstance(prepared, Work) else prepared
    takes, _ = run(place.server, make(), LONGEST)
    for k in range(MOMENTS):
        read: list[int] = []
        work = replace(make(), end=lambda: read.append(place.reads()))  # noqa: B023
        rest = leave(place.server, work, (k + 0.5) / MOMENTS * takes, reset=k % 2 == 0)
        assert rest.seconds <= BOUND, rest
        until(lambda: place.held() == 0, 20)
        # What was under way, of the reader and ahead of it; and, on a busy machine, of the next.
        assert place.reads() - read[0] <= 3 * AT_ONCE


def _same(work: Work) -> Work:
    return work
