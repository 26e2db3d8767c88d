"""How large a pipeline may be."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import PipelineError
from core.pipelines.pipeline import parse_pipeline
from core.pipelines.spec import MAX_DEPTH, MAX_INPUTS, MAX_STAGES

SOURCE = {"op": "source", "dataset": "a"}
BATCH = {"op": "batch", "size": 4}
Stage = dict[str, Any]


def mixed(inputs: list[list[Stage]], **options: Any) -> Stage:  # noqa: ANN401
    return {"op": "mix", "inputs": inputs, **options}


def parse(*stages: Stage) -> int:
    """The number of stages in the outermost list."""
    return len(parse_pipeline({"stages": list(stages)}).stages)


def test_as_many_stages_as_may_be() -> None:
    assert MAX_STAGES == 16
    prefetches = [{"op": "prefetch"}] * (MAX_STAGES - 2)
    parse(SOURCE, *prefetches, BATCH)
    with pytest.raises(PipelineError, match="17 stages"):
        parse(SOURCE, *prefetches, {"op": "prefetch"}, BATCH)
    with pytest.raises(PipelineError, match="17 stages") as caught:
        parse(mixed([[SOURCE], [SOURCE, *[{"op": "permute", "seed": 1}] * MAX_STAGES]]), BATCH)
    assert (caught.value.stage, caught.value.field) == (0, "inputs[1]")


def test_as_many_inputs_and_sources_as_may_be() -> None:
    assert MAX_INPUTS == 64
    assert parse(mixed([[SOURCE]] * 64), BATCH) == 2
    with pytest.raises(PipelineError, match="65 entries"):
        parse(mixed([[SOURCE]] * 65), BATCH)
    half = mixed([[SOURCE]] * 32)
    assert parse(mixed([[half], [half]]), BATCH) == 2
    with pytest.raises(PipelineError, match="one source too many"):
        parse(mixed([[half], [half], [SOURCE]]), BATCH)


def test_as_deep_as_may_be() -> None:
    stage: Stage = SOURCE
    for _ in range(MAX_DEPTH):
        stage = mixed([[stage], [SOURCE]])
    assert parse(stage, BATCH) == 2
    with pytest.raises(PipelineError, match="too deep"):
        parse(mixed([[stage], [SOURCE]]), BATCH)


@pytest.mark.parametrize("stages", [None, [], "source", {}, 5])
def test_what_is_no_list_of_stages(stages: Any) -> None:  # noqa: ANN401
    with pytest.raises(PipelineError) as caught:
        parse_pipeline({"stages": stages})
    assert caught.value.field == "stages"
    with pytest.raises(PipelineError) as caught:
        parse_pipeline({"stages": [mixed([[SOURCE], stages]), BATCH]})
    assert (caught.value.stage, caught.value.field) == (0, "inputs[1]")


@pytest.mark.parametrize("stage", [None, 5, [], "batch", {}, {"op": None}, {"op": "none"}])
def test_what_is_no_stage(stage: Any) -> None:  # noqa: ANN401
    with pytest.raises(PipelineError) as caught:
        parse_pipeline({"stages": [SOURCE, stage]})
    assert caught.value.stage == 1


def test_options_that_are_unknown_missing_or_wrong() -> None:
    for stage, field in (
        ({"op": "batch"}, "size"),
        ({"op": "batch", "size": 4, "sise": 5}, "sise"),
        ({"op": "batch", "size": 0}, "size"),
        ({"op": "batch", "size": True}, "size"),
        ({"op": "permute", "inputs": [[SOURCE]]}, "inputs"),
        ({"op": "mix"}, "inputs"),
        ({"op": "mix", "inputs": [], "order": "none"}, "inputs"),
    ):
        with pytest.raises(PipelineError) as caught:
            parse_pipeline({"stages": [SOURCE, stage]})
        assert (caught.value.stage, caught.value.field) == (1, field)


def test_validation_is_the_share_that_split_gives_away() -> None:
    split = {"op": "split", "part": "train"}

    def digest(**options: Any) -> bytes:  # noqa: ANN401
        return parse_pipeline({"stages": [SOURCE, {**split, **options}, BATCH]}).digest

    assert digest(validation=0.2) == digest(fraction=0.2) != digest()
    assert digest() == digest(validation=0.1)
    with pytest.raises(PipelineError, match="contradicts fraction"):
        digest(validation=0.2, fraction=0.2)
    with pytest.raises(PipelineError, match=r"validation is 0\.0"):
        digest(validation=0.0)


@pytest.mark.parametrize(
    ("stage", "meant"),
    [
        ({"op": "batch", "batch_size": 3}, "Did you mean size?"),
        ({"op": "shuffle", "buffer_size": 3}, "Did you mean size?"),
        ({"op": "mix", "inputs": [[SOURCE], [SOURCE]], "weights": [0.75, 0.25]}, "such as [3, 1]."),
        ({"op": "mix", "inputs": [[SOURCE], [SOURCE]], "weights": [0.1, 0.9]}, "such as [1, 9]."),
    ],
)
def test_what_was_meant(stage: dict[str, Any], meant: str) -> None:
    stages = [stage] if stage["op"] == "mix" else [SOURCE, stage]
    with pytest.raises(PipelineError) as caught:
        parse_pipeline({"stages": stages})
    assert meant in str(caught.value.hint)
