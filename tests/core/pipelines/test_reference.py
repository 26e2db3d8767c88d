"""The reference has every stage and function with all of its options, and its examples run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from core.errors import PipelineError
from core.iterate.base import Column
from core.iterate.iterator import StepIterator
from core.iterate.recurrent import SCANS
from core.iterate.sources import ArraySource
from core.iterate.transforms import PREDICATES, RANDOM_TRANSFORMS, TRANSFORMS
from core.pipelines.operations import OPERATIONS
from core.pipelines.pipeline import build_pipeline, parse_pipeline
from core.pipelines.reference import reference, reference_of
from tests.core.iterate.items import ragged

REFERENCE = reference()
SOURCE = {"op": "source", "dataset": "scan1"}
BATCH = {"op": "batch", "size": 2}
DATA: dict[str, Column] = {
    "data": np.linspace(0, 1, 8 * 6).reshape(8, 2, 3),
    "label": np.arange(8),
    "words": ragged(*[[1] * n for n in (1, 2, 3, 1, 2, 3, 1, 2)]),
}


def open_source(dataset: str, options: Mapping[str, Any]) -> ArraySource:
    fields = options.get("fields", DATA)
    if "scan" in options:
        assert (dataset, options["scan"]) == ("labels1", [8])
        return ArraySource({name: np.arange(8) for name in fields})
    return ArraySource({name: DATA.get(name, np.arange(8)) for name in fields})


def test_it_has_every_stage_and_function() -> None:
    # A delay exists only in local iteration.
    operations = {name: row for name, row in OPERATIONS.items() if name != "delay"}
    assert set(REFERENCE["stages"]) == set(operations)
    assert set(REFERENCE["map"]) == {*TRANSFORMS, *RANDOM_TRANSFORMS}
    assert set(REFERENCE["filter"]) == set(PREDICATES)
    assert set(REFERENCE["scan"]) == SCANS
    for name, operation in operations.items():
        options = {*operation.options, *(["inputs"] if operation.combines else [])}
        assert set(REFERENCE["stages"][name]["options"]) == options, name


def test_stages_that_need_random_access_say_so() -> None:
    for name, operation in OPERATIONS.items():
        if operation.random_access({"kind": "overlap"}):
            about = REFERENCE["stages"][name]["about"]
            assert "before any filter, scan, or select_many of items of unknown lengths" in about


def test_the_help_of_cast_says_what_it_refuses() -> None:
    stage = {"op": "map", "fn": "cast", "args": {"field": "data", "dtype": "i4"}}
    with pytest.raises(PipelineError, match="Use clip with a dtype"):
        build_pipeline(parse_pipeline({"stages": pipeline_of(stage)}), open_source)
    about = REFERENCE["map"]["cast"]["about"]
    assert about.endswith("Floats to integers are refused: use clip with a dtype.")


def pipeline_of(stage: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages of a pipeline that has one."""
    name = stage["op"]
    if OPERATIONS[name].takes == "nothing":
        return [stage, BATCH]
    if OPERATIONS[name].batches:
        return [SOURCE, stage]
    if name in {"pad", "epoch", "prefetch"}:
        return [SOURCE, BATCH, stage]
    if name == "window":
        return [{**SOURCE, "fields": ["data"]}, stage, BATCH]
    return [SOURCE, stage, BATCH]


STAGES = [(name, entry["example"]) for name, entry in REFERENCE["stages"].items()]
FUNCTIONS = [
    (f"{op} {name}", {"op": op, key: name, **more, "args": entry["example"]})
    for op, key, more in (
        ("map", "fn", {}),
        ("filter", "pred", {}),
        ("scan", "fn", {"field": "label"}),
    )
    for name, entry in REFERENCE[op].items()
]


@pytest.mark.parametrize(("name", "stage"), STAGES + FUNCTIONS)
def test_every_example_runs(name: str, stage: dict[str, Any]) -> None:
    assert name.split(maxsplit=1)[0] == stage["op"]
    spec = parse_pipeline({"order": 1, "stages": pipeline_of(stage)})
    pipeline = build_pipeline(spec, open_source)
    assert next(StepIterator(pipeline)).block


@pytest.mark.parametrize("op", ["map", "filter", "scan"])
def test_every_argument_is_known(op: str) -> None:
    for name, entry in REFERENCE[op].items():
        unknown = {"op": op, "fn" if op != "filter" else "pred": name, "args": {"zz": 1}}
        if op == "scan":
            unknown["field"] = "label"
        with pytest.raises(PipelineError) as e:
            build_pipeline(
                parse_pipeline({"stages": [SOURCE, unknown, BATCH]}),
                lambda _dataset, _options: ArraySource(DATA),
            )
        if op != "scan":
            known = str(e.value.hint).removeprefix("Known: ").rstrip(".").split(", ")
            assert set(entry["args"]) == set(known), name


def test_one_stage_has_its_functions() -> None:
    assert set(reference_of("scan")["functions"]) == SCANS
    assert "functions" not in reference_of("batch")
    with pytest.raises(PipelineError) as e:
        reference_of("shufle")
    assert "Did you mean shuffle?" in str(e.value.hint)
    with pytest.raises(PipelineError, match="It is a function of the stage filter"):
        reference_of("greater")
