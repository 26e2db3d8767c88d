"""Numbers that inputs declare: each is refused above its limit, where it is read.

The section of ``deploy/LIMITS.md`` about them is the list, and has a case here for each row. Memory
that follows a number below its limit is charged: the tests of what computes with it show that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.errors import ServiceError, problem_of
from app.http.decompression import decoder
from app.losses.selection import parse_ids
from core.errors import CoreError
from core.losses.inputs import parse_occurrence, parse_return_periods
from core.pipelines.pipeline import parse_pipeline
from core.portfolio.importing import import_table
from core.portfolio.tables import Given
from tests.contract.test_limits import CONSTANTS, ROOT, Row

SOURCE = {"op": "source", "dataset": "a"}
BATCH = {"op": "batch", "size": 4}


def pipeline(*stages: dict[str, Any]) -> object:
    return parse_pipeline({"stages": [SOURCE, *stages]})


def mixed(depth: int) -> dict[str, Any]:
    """Mixes within mixes."""
    stage: dict[str, Any] = SOURCE
    for _ in range(depth):
        stage = {"op": "mix", "inputs": [[stage], [SOURCE]]}
    return stage


def simulated(rate: str, samples: int = 1) -> object:
    table = f"EventId,rate,mean,sd_independent,sd_correlated,exposed_value\n1,{rate},1,0,0,1\n"
    return import_table("elt", table.encode(), Given(periods=1, samples=samples))


BEYOND: dict[str, Callable[[int], object]] = {
    "core.losses.inputs.rows:INT_MAX": lambda n: parse_occurrence(b"1,1,1\n", n),
    "core.losses.inputs.rows:MAX_POINTS": lambda n: parse_return_periods(
        "\n".join(["return_period", *map(str, range(n, 0, -1))]).encode()
    ),
    "core.portfolio.elt:MAX_SAMPLES": lambda n: simulated("1", samples=n),
    "core.portfolio.elt:MAX_COUNTS": lambda n: simulated(str(n)),
    "app.losses.selection:_MAX_IDS": lambda n: parse_ids(f"1-{n}"),
    # A frame in a single segment, whose window is its length.
    "app.http.decompression:MAX_WINDOW": lambda n: list(
        decoder("zstd", None).decode(memoryview(b"\x28\xb5\x2f\xfd\xe0" + n.to_bytes(8, "little")))
    ),
    "core.pipelines.spec:MAX_STAGES": lambda n: pipeline(*[{"op": "prefetch"}] * (n - 2), BATCH),
    "core.pipelines.spec:MAX_INPUTS": lambda n: parse_pipeline(
        {"stages": [{"op": "mix", "inputs": [[SOURCE]] * n}, BATCH]}
    ),
    "core.pipelines.spec:MAX_DEPTH": lambda n: parse_pipeline({"stages": [mixed(n), BATCH]}),
    "core.pipelines.options:MAX_ITEMS": lambda n: pipeline({"op": "repeat", "times": n}, BATCH),
    "core.pipelines.operations.batches:MAX_BATCH": lambda n: pipeline({"op": "batch", "size": n}),
    "core.pipelines.operations.batches:MAX_WORLD": lambda n: pipeline(
        {"op": "batch", "size_per_rank": 1, "world": n}
    ),
    "core.pipelines.operations.batches:MAX_READ_AHEAD": lambda n: pipeline(
        {"op": "bucket_batch", "read_ahead": n, "key": "index", "size": 1}
    ),
    "core.pipelines.operations.batches:MAX_PADDED": lambda n: pipeline(
        BATCH, {"op": "pad", "length": n}
    ),
    "core.pipelines.operations.positions:MAX_SHUFFLE": lambda n: pipeline(
        {"op": "shuffle", "size": n}, BATCH
    ),
    "core.pipelines.operations.positions:MAX_WINDOW": lambda n: pipeline(
        {"op": "window", "width": n}, BATCH
    ),
    "core.pipelines.operations.batches:MAX_DEPTH": lambda n: pipeline(
        {"op": "prefetch", "depth": n}, BATCH
    ),
}


def declared() -> list[Row]:
    """Rows of the section."""
    page = (ROOT / "deploy" / "LIMITS.md").read_text()
    section = page.partition("## Numbers that inputs declare")[2].partition("\n## ")[0]
    return [row for name, row in CONSTANTS.items() if f"| `{name}` |" in section]


def test_every_row_has_a_case() -> None:
    assert {row.name for row in declared()} == set(BEYOND)


@pytest.mark.parametrize("row", declared(), ids=[row.name for row in declared()])
def test_a_number_above_its_limit_is_refused_where_it_is_read(row: Row) -> None:
    limit = int(row.value.replace(",", ""))
    with pytest.raises((CoreError, ServiceError)) as caught:
        BEYOND[row.name](limit + 1)
    problem = problem_of(caught.value)
    assert row.answer == f"{problem.status} `{problem.code}`"
    said = f"{problem.detail} {problem.members.get('hint')}"
    assert str(limit) in said or str(limit + 1) in said
