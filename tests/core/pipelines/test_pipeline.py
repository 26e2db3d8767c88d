"""Pipelines: what they refuse, what identifies them, and that every state resumes exactly."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from core.arrays import Indices
from core.errors import (
    LimitError,
    OptionError,
    PipelineError,
    PositionError,
    SelectionError,
    StateError,
    TransformError,
)
from core.iterate.base import Block, Indexed, Ragged, State
from core.iterate.columns import concatenate, schema_of
from core.iterate.iterator import StepIterator
from core.iterate.sources import ArraySource, CounterSource
from core.iterate.wrapped import Profile, timed
from core.pipelines.operations import OPERATIONS
from core.pipelines.pipeline import Bounds, Pipeline, Step, build_pipeline, parse_pipeline
from tests.core.pipelines_made import (
    Stages,
    array_source,
    built,
    built_over,
    open_source,
    random_stages,
    same,
)
from tests.scale import half

SOURCE = {"op": "source", "dataset": "a"}
BATCH = {"op": "batch", "size": 4}
MOST = 30
"""Steps that are looked at of a pipeline."""


def spec(*stages: Mapping[str, Any]) -> dict[str, Any]:
    return {"order": 1, "stages": list(stages)}


def make(*stages: Mapping[str, Any]) -> Pipeline:
    return built([dict(each) for each in stages])


def steps(pipeline: Pipeline, state: State | None = None, most: int = MOST) -> list[Step]:
    found: list[Step] = []
    state = pipeline.initial if state is None else state
    while len(found) < most:
        step = pipeline.step(state)
        if step is None:
            break
        found.append(step)
        state = step.state
    return found


def xs(step: Step, name: str = "x") -> list[int]:
    column = step.block[name]
    assert not isinstance(column, Ragged)
    return [int(each) for each in column]


def equal(one: Step, other: Step) -> bool:
    fields = ("state", "sequence", "epoch", "count", "rows", "ends_epoch", "data_finished")
    return same(one.block, other.block) and all(
        getattr(one, name) == getattr(other, name) for name in fields
    )


# -- random pipelines ------------------------------------------------------------------------


def random_cases() -> list[int]:
    return list(range(20))


@pytest.mark.parametrize("part", random_cases())
def test_every_state_of_random_pipelines_resumes_to_the_same_tail(part: int) -> None:
    for case in range(half(500) // 20 + 1):
        rng = random.Random(f"resume {part} {case}")  # noqa: S311 - a test
        stages = random_stages(rng)
        whole = steps(built(stages))
        for k, step in enumerate(whole):
            state = tuple(json.loads(json.dumps(step.state)))
            fresh = built(json.loads(json.dumps(stages)))
            fresh.check(state)
            tail = steps(fresh, state, MOST - k - 1)
            expected = whole[k + 1 :]
            assert len(tail) == len(expected), stages
            assert all(map(equal, tail, expected)), stages


@pytest.mark.parametrize("part", random_cases())
def test_ranks_of_changing_worlds_share_every_batch(part: int) -> None:
    for case in range(half(240) // 20 + 1):
        rng = random.Random(f"elastic {part} {case}")  # noqa: S311 - a test
        stages = random_stages(rng)
        pipeline = built(stages)
        state = pipeline.initial
        for whole in steps(pipeline, most=12):
            world = rng.randrange(1, pipeline.batch_size + 1)
            parts = [built(stages).step(state, rank, world) for rank in range(world)]
            found = [each for each in parts if each is not None]
            assert len(found) == world
            joined = joined_blocks([each.block for each in found])
            assert same(joined, whole.block), stages
            assert {each.state for each in found} == {whole.state}
            rows = [each.rows for each in found]
            assert [start for start, _ in rows] == [0, *(stop for _, stop in rows[:-1])]
            state = whole.state


def joined_blocks(blocks: list[Block]) -> Block:
    return concatenate(blocks, schema_of(blocks[0]))


@pytest.mark.parametrize("last", ["keep", "pad", "wrap"])
def test_each_item_comes_once_per_epoch_while_the_world_changes(last: str) -> None:
    for case in range(half(60)):
        rng = random.Random(f"once {last} {case}")  # noqa: S311 - a test
        stages: Stages = [
            SOURCE,
            {"op": "permute", "seed": case, "epochs": 3},
            {"op": "shuffle", "kind": rng.choice(["block", "overlap", "reservoir"]), "size": 5},
            {"op": "batch", "size": rng.randrange(1, 30), "last": last},
        ]
        seen: dict[int, list[int]] = {}
        state = built(stages).initial
        while True:
            pipeline = built(stages)
            world = rng.randrange(1, pipeline.batch_size + 1)
            parts = [pipeline.step(state, rank, world) for rank in range(world)]
            got = [each for each in parts if each is not None]
            if not got:
                break
            rows = [x for each in got for x in xs(each)]
            seen.setdefault(got[0].epoch, []).extend(rows[: got[0].count])
            state = got[0].state
        assert {epoch: sorted(items) for epoch, items in seen.items()} == {
            epoch: list(range(23)) for epoch in range(3)
        }
        assert len({tuple(items) for items in seen.values()}) == 3


@pytest.mark.parametrize("part", random_cases())
def test_skipping_is_stepping_without_looking(part: int) -> None:
    for case in range(half(100) // 20 + 1):
        rng = random.Random(f"skip {part} {case}")  # noqa: S311 - a test
        stages = random_stages(rng)
        whole = steps(built(stages))
        states = [built(stages).initial, *(step.state for step in whole)]
        for k, state in enumerate(states):
            fresh = built(stages)
            assert fresh.skip(states[0], k) == state
            assert fresh.skip(state, 0) == state
            assert fresh.sequence(state) == k
        if len(whole) < MOST:
            with pytest.raises(PositionError):
                built(stages).skip(states[0], len(states))


@pytest.mark.parametrize("part", random_cases())
def test_parsed_again_a_pipeline_is_the_same(part: int) -> None:
    for case in range(half(400) // 20 + 1):
        rng = random.Random(f"canonical {part} {case}")  # noqa: S311 - a test
        stages = random_stages(rng)
        one = parse_pipeline(spec(*stages))
        again = parse_pipeline(json.loads(json.dumps(one.to_json())))
        assert (again.canonical, again.digest) == (one.canonical, one.digest)
        assert again.to_json() == one.to_json()
        turned = [dict(reversed(list(stage.items()))) for stage in stages]
        assert parse_pipeline({"stages": turned}).digest == one.digest


def test_digests_differ_where_meaning_does() -> None:
    stages: Stages = [
        {"op": "source", "dataset": "a", "range": [0, 9]},
        {"op": "permute", "seed": 1, "epochs": 2},
        {"op": "shuffle", "kind": "block", "size": 3, "seed": 1},
        {"op": "map", "fn": "scale", "args": {"field": "x", "factor": 2}, "seed": 0},
        {"op": "batch", "size": 4, "last": "keep"},
        {"op": "pad", "multiple": 2, "value": 0},
        {"op": "epoch", "size": 2},
        {"op": "limit", "count": 9},
    ]
    changes: list[tuple[int, str, Any]] = [
        (0, "dataset", "b"), (0, "range", [0, 8]), (0, "fields", ["x"]), (0, "unit", "frames"),
        (1, "seed", 2), (1, "epochs", 3), (1, "epochs", None),
        (2, "kind", "overlap"), (2, "size", 4), (2, "seed", 2),
        (3, "fn", "absolute"), (3, "args", {"field": "x", "factor": 3}),
        (4, "size", 5), (4, "last", "drop"),
        (5, "multiple", 3), (5, "value", 1), (5, "fields", ["r"]),
        (6, "size", 3), (6, "size", "natural"), (7, "count", 8),
    ]  # fmt: skip
    digests = {parse_pipeline(spec(*stages)).digest}
    for place, name, value in changes:
        changed = copy.deepcopy(stages)
        changed[place][name] = value
        digests.add(parse_pipeline(spec(*changed)).digest)
    assert len(digests) == len(changes) + 1
    assert {len(digest) for digest in digests} == {16}


def test_what_changes_no_batch_changes_no_digest() -> None:
    plain = parse_pipeline(spec(SOURCE, BATCH))
    for other in (
        spec(SOURCE, {"op": "prefetch", "depth": 9}, BATCH),
        spec({**SOURCE, "range": None}, {**BATCH, "last": "keep"}),
        spec(SOURCE, {"op": "batch", "size_per_rank": 2, "world": 2}),
    ):
        assert parse_pipeline(other).digest == plain.digest
    padded = {"op": "pad", "value": 0}
    assert (
        parse_pipeline(spec(SOURCE, BATCH, padded)).digest
        == parse_pipeline(spec(SOURCE, BATCH, {"op": "collate", "value": 0.0})).digest
    )


def test_large_integers_keep_their_digits() -> None:
    args = {"field": "x", "value": 2**53}
    stages: Stages = [{"op": "filter", "pred": "greater", "args": args}, BATCH]
    parsed = parse_pipeline(spec(SOURCE, *stages, {"op": "pad", "value": 2**53 + 1}))
    assert parse_pipeline(parsed.to_json()).digest == parsed.digest
    assert b'"value":9007199254740993' in parsed.canonical
    # What was compared as float64 gave other items: not the pipeline of earlier versions.
    assert b'"exact":true' in parsed.canonical


@pytest.mark.parametrize(
    ("fn", "hint"),
    [
        ("Normalize", "Use scale, with mean and std."),
        ("crop", "Use sig in a view of the source, with the unit frame."),
        ("sqr", "Did you mean sqrt? Use absolute, "),
    ],
)
def test_functions_by_other_names(fn: str, hint: str) -> None:
    error = refused(spec(SOURCE, {"op": "map", "fn": fn, "args": {}}, BATCH))
    assert (error.stage, error.field) == (1, "fn")
    assert str(error.hint).startswith(hint)


def test_what_looks_like_a_test_is_answered_with_one() -> None:
    error = refused(spec(SOURCE, {"op": "filter", "pred": "x < 5"}, BATCH))
    example = json.loads(str(error.hint).partition("For example ")[2].removesuffix("."))
    parsed = parse_pipeline(spec(SOURCE, {"op": "filter", **example}, BATCH))
    assert parsed.stages[1].options["pred"] == "less"


def test_an_integer_that_a_parser_made_a_float_is_too_large() -> None:
    error = refused(spec(SOURCE, {**PERMUTE, "seed": float(2**64)}, BATCH))
    assert (error.message, error.field) == ("permute: seed is too large", "seed")


def test_identity_is_frozen() -> None:
    parsed = parse_pipeline(
        spec(SOURCE, {"op": "permute", "seed": 7, "epochs": 1}, {"op": "batch", "size": 32})
    )
    assert parsed.canonical == (
        b'{"order":1,"stages":[{"dataset":"a","fields":null,"op":"source","range":null,'
        b'"unit":null,"view":null},{"epochs":1,"op":"permute","seed":7},'
        b'{"last":"keep","op":"batch","size":32}]}'
    )
    assert parsed.digest.hex() == "b9ac23ee4f9064e6b3adb3b4382f18dc"


# -- refused -----------------------------------------------------------------------------------


def refused(values: Any) -> PipelineError:  # noqa: ANN401 - anything is tried
    with pytest.raises(PipelineError) as caught:
        build_pipeline(parse_pipeline(values), open_source)
    assert caught.value.message
    return caught.value


PERMUTE = {"op": "permute"}
FILTER = {"op": "filter", "pred": "less", "args": {"field": "x", "value": 5}}
BUCKET = {"op": "bucket_batch", "read_ahead": 8, "key": "r", "size": 2}
NONE = {"op": "filter", "pred": "length_between", "args": {"field": "r", "low": 99, "high": 100}}


@pytest.mark.parametrize("end", [BATCH, BUCKET])
def test_what_became_of_the_items(end: dict[str, Any]) -> None:
    empty = make(SOURCE, NONE, end)
    assert steps(empty) == []
    why = " items came in, none came out of filter (stage 1)"
    assert empty.emptiness().lstrip("0123456789") == why
    with pytest.warns(UserWarning, match=f"there is no batch: 23{re.escape(why)}"):
        assert list(StepIterator(empty)) == []


REPEAT = {"op": "repeat"}
ENDLESS = {"op": "source", "dataset": "endless"}
EMPTY = {**SOURCE, "range": [3, 3]}


@pytest.mark.parametrize(
    ("stages", "stage", "field"),
    [
        ([{"op": "shuffel"}], 0, "op"),
        ([SOURCE, {"op": []}], 1, "op"),
        ([SOURCE, {}], 1, "op"),
        ([SOURCE, 7], 1, None),
        ([SOURCE, {**BATCH, "sise": 3}], 1, "sise"),
        ([{"op": "source"}, BATCH], 0, "dataset"),
        ([{**SOURCE, "dataset": ""}, BATCH], 0, "dataset"),
        ([{**SOURCE, "dataset": 3}, BATCH], 0, "dataset"),
        ([{**SOURCE, "range": [5, 2]}, BATCH], 0, "range"),
        ([{**SOURCE, "range": [0, 24]}, BATCH], 0, "range"),
        ([{**SOURCE, "range": [0]}, BATCH], 0, "range"),
        ([{**SOURCE, "fields": ["x", "x"]}, BATCH], 0, "fields"),
        ([{**SOURCE, "fields": ["nothing"]}, BATCH], 0, "fields"),
        ([{**SOURCE, "view": {"a": float("nan")}}, BATCH], 0, "view"),
        ([SOURCE, {**BATCH, "size": 0}], 1, "size"),
        ([SOURCE, {**BATCH, "size": -1}], 1, "size"),
        ([SOURCE, {**BATCH, "size": 4.0}], 1, "size"),
        ([SOURCE, {**BATCH, "size": True}], 1, "size"),
        ([SOURCE, {**BATCH, "size": 1 << 21}], 1, "size"),
        ([SOURCE, {"op": "batch"}], 1, "size"),
        ([SOURCE, {**BATCH, "last": "lose"}], 1, "last"),
        ([SOURCE, {**BATCH, "size": 24, "last": "drop"}], 1, "size"),
        ([SOURCE, PERMUTE | {"epochs": 2}, {**BATCH, "size": 24, "last": "drop"}], 2, "last"),
        ([SOURCE, {**BATCH, "size_per_rank": 2, "world": 2}], 1, "size"),
        ([SOURCE, {"op": "batch", "size_per_rank": 2}], 1, "size_per_rank"),
        ([SOURCE, {**BATCH, "world": 2}], 1, "world"),
        ([SOURCE, {"op": "batch", "size_per_rank": 1 << 20, "world": 2}], 1, "size_per_rank"),
        ([SOURCE], 0, None),
        ([SOURCE, PERMUTE], 1, None),
        ([SOURCE, BATCH, BATCH], 2, None),
        ([SOURCE, BATCH, BUCKET], 2, None),
        ([SOURCE, BATCH, PERMUTE], 2, None),
        ([SOURCE, BATCH, FILTER], 2, None),
        ([SOURCE, SOURCE, BATCH], 1, None),
        ([BATCH], 0, None),
        ([PERMUTE, BATCH], 0, None),
        ([SOURCE, PERMUTE, PERMUTE, BATCH], 2, None),
        ([SOURCE, FILTER, PERMUTE, BATCH], 2, None),
        ([SOURCE, FILTER, {"op": "shuffle", "size": 3}, BATCH], 2, None),
        ([SOURCE, FILTER, {"op": "shuffle", "size": 3, "kind": "reservoir"}, BATCH], 2, None),
        ([SOURCE, FILTER, {"op": "window", "width": 2}, BATCH], 2, None),
        ([SOURCE, {"op": "select_many", "field": "r"}, PERMUTE, BATCH], 2, None),
        ([SOURCE, {"op": "shuffle", "size": 0}, BATCH], 1, "size"),
        ([SOURCE, {"op": "shuffle", "size": (1 << 20) + 1}, BATCH], 1, "size"),
        ([SOURCE, {"op": "shuffle", "size": 3, "kind": "deck"}, BATCH], 1, "kind"),
        ([SOURCE, {**PERMUTE, "seed": -1}, BATCH], 1, "seed"),
        ([SOURCE, {**PERMUTE, "seed": 1 << 63}, BATCH], 1, "seed"),
        ([SOURCE, {**PERMUTE, "seed": "7"}, BATCH], 1, "seed"),
        ([SOURCE, {**PERMUTE, "epochs": 0}, BATCH], 1, "epochs"),
        ([EMPTY, {**PERMUTE, "epochs": None}, BATCH], 1, "epochs"),
        ([EMPTY, REPEAT, BATCH], 1, "times"),
        ([EMPTY, {**PERMUTE, "epochs": 2}, BATCH], 2, "size"),
        ([ENDLESS, REPEAT, BATCH], 1, "times"),
        ([ENDLESS, PERMUTE, BATCH], 1, "epochs"),
        ([SOURCE, {**PERMUTE, "epochs": 2}, REPEAT, BATCH], 2, "times"),
        ([SOURCE, REPEAT, {"op": "limit", "count": 3}, BATCH], 2, "count"),
        ([SOURCE, PERMUTE, {"op": "split", "part": "train"}, BATCH], 2, None),
        ([SOURCE, {"op": "split", "part": "test"}, BATCH], 1, "part"),
        ([SOURCE, {"op": "split", "part": "train", "fraction": 1}, BATCH], 1, "fraction"),
        ([SOURCE, {"op": "split", "part": "train", "key": "q"}, BATCH], 1, "key"),
        ([SOURCE, {"op": "shard", "of": 2, "index": 2}, BATCH], 1, "index"),
        ([SOURCE, {"op": "shard", "of": 0, "index": 0}, BATCH], 1, "of"),
        ([SOURCE, {"op": "map", "fn": "eval"}, BATCH], 1, "fn"),
        ([SOURCE, {"op": "map", "fn": "scale", "args": {"factor": 2}}, BATCH], 1, "args"),
        ([SOURCE, {"op": "map", "fn": "scale", "args": [1]}, BATCH], 1, "args"),
        ([SOURCE, {"op": "map", "fn": "scale", "args": {"a": "x" * 5000}}, BATCH], 1, "args"),
        ([SOURCE, {**FILTER, "pred": "odd"}, BATCH], 1, "pred"),
        ([SOURCE, {**FILTER, "args": {}}, BATCH], 1, "args"),
        ([SOURCE, {"op": "scan", "fn": "fold", "field": "x"}, BATCH], 1, "fn"),
        ([SOURCE, {"op": "scan", "fn": "cumsum", "field": "r"}, BATCH], 1, "field"),
        ([SOURCE, {"op": "select_many", "field": "x"}, BATCH], 1, "field"),
        ([{**SOURCE, "fields": ["x"]}, {"op": "window", "width": 24}, BATCH], 1, "width"),
        ([{**SOURCE, "fields": ["x"]}, {"op": "window", "width": 0}, BATCH], 1, "width"),
        ([SOURCE, {**BUCKET, "key": "v"}], 1, "key"),
        ([SOURCE, {"op": "bucket_batch", "read_ahead": 4, "key": "r"}], 1, "size"),
        ([SOURCE, {**BUCKET, "read_ahead": 0}], 1, "read_ahead"),
        ([SOURCE, {**BUCKET, "size": 9}], 1, "size"),
        ([SOURCE, {**BUCKET, "budget": 0}], 1, "budget"),
        ([SOURCE, {**BUCKET, "size": 2, "budget": None, "padded": False}], 1, "padded"),
        ([SOURCE, {**BUCKET, "shuffle": False, "seed": 3}], 1, "seed"),
        ([SOURCE, {"op": "map", "fn": "sqrt", "seed": 1}, BATCH], 1, "seed"),
        ([{**SOURCE, "fields": ["x"]}, BATCH, {"op": "pad"}], 2, "fields"),
        ([SOURCE, BATCH, {"op": "pad", "fields": ["x"]}], 2, "fields"),
        ([SOURCE, BATCH, {"op": "pad", "length": 4, "multiple": 2}], 2, "multiple"),
        ([SOURCE, BATCH, {"op": "pad", "truncate": True}], 2, "truncate"),
        ([SOURCE, BATCH, {"op": "pad", "value": 0.5}], 2, "value"),
        ([SOURCE, BATCH, {"op": "pad", "value": float("inf")}], 2, "value"),
        ([SOURCE, {"op": "pad"}, BATCH], 1, None),
        ([SOURCE, BATCH, {"op": "epoch", "size": 0}], 2, "size"),
        ([SOURCE, BATCH, {"op": "epoch", "size": "long"}], 2, "size"),
        ([SOURCE, {"op": "epoch", "size": 2}, BATCH], 1, None),
        ([SOURCE, BATCH, {"op": "limit", "count": 0}], 2, "count"),
        ([SOURCE, BATCH, {"op": "limit"}], 2, "count"),
        ([SOURCE, BATCH, {"op": "limit", "seconds": 3}], 2, "seconds"),
        ([SOURCE, BATCH, {"op": "limit", "bytes": 3}], 2, "bytes"),
        ([SOURCE, BATCH, {"op": "delay", "seconds": 1}], 2, "seconds"),
        ([SOURCE, BATCH, {"op": "limit", "count": 3}, {"op": "limit", "count": 3}], 3, None),
        ([SOURCE, BATCH, {"op": "prefetch", "depth": 0}], 2, "depth"),
        ([{"op": "zip"}, BATCH], 0, "inputs"),
        ([{"op": "zip", "inputs": []}, BATCH], 0, "inputs"),
        ([{"op": "zip", "inputs": [[]]}, BATCH], 0, "inputs[0]"),
        ([{"op": "zip", "inputs": [[SOURCE]], "names": ["a", "b"]}, BATCH], 0, "names"),
        ([{"op": "zip", "inputs": [[SOURCE], [SOURCE]]}, BATCH], 0, "names"),
        ([{"op": "mix", "inputs": [[SOURCE]], "weights": [0]}, BATCH], 0, "weights"),
        ([{"op": "mix", "inputs": [[SOURCE]], "weights": [1, 1]}, BATCH], 0, "weights"),
        ([{"op": "mix", "inputs": [[SOURCE]], "weights": [-1]}, BATCH], 0, "weights"),
        ([{"op": "mix", "inputs": [[SOURCE, BATCH]]}, BATCH], 0, "inputs[0][1]"),
        ([{"op": "mix", "inputs": [[PERMUTE]]}, BATCH], 0, "inputs[0][0]"),
        ([{"op": "mix", "inputs": [[SOURCE, {**PERMUTE, "seed": -2}]]}, BATCH], 0,
         "inputs[0][1].seed"),
        ([{"op": "mix", "inputs": [[SOURCE, FILTER, REPEAT]], "order": "random"}, BATCH], 0,
         "inputs[0][2]"),
        ([{"op": "mix", "inputs": [[SOURCE, FILTER]]}, BATCH], 0, "order"),
        ([{"op": "mix", "inputs": [[SOURCE]] * 65}, BATCH], 0, "inputs"),
        ([{"op": "mix", "order": "random", "inputs": [[SOURCE]] * 64}, BATCH], 0, "inputs"),
    ],
)  # fmt: skip
def test_what_cannot_be_points_at_stage_and_field(
    stages: list[Any], stage: int, field: str | None
) -> None:
    error = refused({"order": 1, "stages": stages})
    assert (error.stage, error.field) == (stage, field), error
    assert error.hint or field in {None, "args", "names", "weights", "field", "view", "key"}, error


RESERVOIR = {"op": "shuffle", "size": 3, "kind": "reservoir"}


@pytest.mark.parametrize(
    "sequential", [FILTER, {"op": "scan", "fn": "cumsum", "field": "x"}, RESERVOIR]
)
@pytest.mark.parametrize(
    "stage",
    [
        PERMUTE,
        RESERVOIR,
        {"op": "shuffle", "size": 3},
        {"op": "shuffle", "size": 3, "kind": "block"},
        {"op": "window", "width": 2},
        {"op": "shard", "of": 2, "index": 0},
        {"op": "split", "part": "train"},
    ],
)
def test_the_hint_on_random_access_is_true(
    sequential: dict[str, Any], stage: dict[str, Any]
) -> None:
    inputs = {"op": "zip", "inputs": [[{"op": "zip", "inputs": [[SOURCE, sequential]]}]]}
    hint = refused(spec(SOURCE, sequential, stage, BATCH)).hint
    within = refused(spec(inputs, stage, BATCH)).hint
    if sequential["op"] == stage["op"]:
        assert hint == within == "Remove one."
        return
    beyond = OPERATIONS[stage["op"]].beyond_order
    assert hint == f"Put {stage['op']} before {sequential['op']}. {beyond}".strip()
    order = f"Put {sequential['op']} after {stage['op']}, not into an input of zip. {beyond}"
    assert within == order.strip()
    source = {**SOURCE, "fields": ["x"]}
    if beyond and sequential is not RESERVOIR:
        assert "needs a field of one number, which windows lack: zip them" in hint
        with pytest.raises(PipelineError, match="one number"):
            make(source, stage, sequential, BATCH)
        rename = {"op": "map", "fn": "rename", "args": {"field": "x", "to": "windows"}}
        zipped = {"op": "zip", "inputs": [[source, stage, rename], [source]]}
        assert steps(make(zipped, sequential, BATCH))
    else:
        make(source, stage, sequential, BATCH)


def test_a_random_mix_cannot_be_permuted_and_the_hint_says_what_can() -> None:
    mix = {"op": "mix", "inputs": [[SOURCE]], "order": "random"}
    assert refused(spec(mix, PERMUTE, BATCH)).hint == 'Give mix the order "quota".'
    make(mix | {"order": "quota"}, PERMUTE, BATCH)


@pytest.mark.parametrize("name", ["type", "kind", "name", "stage"])
def test_other_names_of_op_are_known(name: str) -> None:
    error = refused({"stages": [SOURCE, {name: "permute"}, BATCH]})
    assert (error.stage, error.field) == (1, "op")
    assert str(error.hint).startswith(f"Did you mean op, not {name}? Use batch, ")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (7, None),
        ({"stages": None}, "stages"),
        ({"stages": []}, "stages"),
        ({"stages": "source"}, "stages"),
        ({}, "stages"),
        ({"stages": [SOURCE, BATCH], "seed": 1}, "seed"),
        ({"stages": [SOURCE, BATCH], "order": 2}, "order"),
        ({"stages": [SOURCE, BATCH], "order": True}, "order"),
        ({"stages": [SOURCE, *[{"op": "prefetch"}] * 16]}, "stages"),
    ],
)
def test_what_is_no_pipeline_is_refused(values: Any, field: str | None) -> None:  # noqa: ANN401
    error = refused(values)
    assert (error.stage, error.field) == (None, field)


def test_inputs_cannot_be_nested_without_end() -> None:
    stages: Any = [SOURCE]
    for _ in range(200):
        stages = [{"op": "zip", "inputs": [stages]}]
    error = refused({"stages": [*stages, BATCH]})
    assert error.stage == 0
    assert error.field is not None
    assert error.field.endswith("inputs")


def test_sixty_four_sources_are_counted_over_all_inputs() -> None:
    pair = [{"op": "mix", "inputs": [[SOURCE]] * 33}]
    assert refused(spec({"op": "mix", "inputs": [pair, pair]}, BATCH)).stage == 0


class Untouched(Indexed):
    """A source that may be opened, not read."""

    def __init__(self, length: int) -> None:
        self.schema = array_source("a").schema
        self.length = length

    def at(self, positions: Any) -> Block:  # noqa: ANN401, ARG002 - never read
        raise AssertionError("it was read")


def test_bounds_are_looked_at_before_anything_is_read() -> None:
    def build(*stages: Mapping[str, Any], bounds: Bounds | None = None) -> Pipeline:
        parsed = parse_pipeline(spec(*stages))
        return build_pipeline(parsed, lambda *_: Untouched(1 << 40), bounds=bounds)

    big = {"op": "bucket_batch", "read_ahead": 1_000_000, "key": "r", "size": 1 << 10}
    small = Bounds(memory=1 << 20, resume_work=1 << 20)
    with pytest.raises(PipelineError) as caught:
        build(SOURCE, big, bounds=small)
    assert (caught.value.stage, caught.value.field) == (1, "read_ahead")
    reservoir = {"op": "shuffle", "kind": "reservoir", "size": 1 << 17}
    with pytest.raises(PipelineError) as caught:
        build(SOURCE, reservoir, BATCH, bounds=Bounds(resume_work=1 << 20))
    assert (caught.value.stage, caught.value.field) == (1, "size")
    with pytest.raises(PipelineError) as caught:
        build(SOURCE, {"op": "batch", "size": 1 << 20}, bounds=small)
    assert (caught.value.stage, caught.value.field) == (1, "size")
    with pytest.raises(PipelineError, match="state"):
        build(SOURCE, reservoir, BATCH, bounds=Bounds(state_bytes=20))
    with pytest.raises(PipelineError) as caught:
        build(SOURCE, {"op": "split", "part": "train"}, BATCH)
    assert caught.value.stage == 1
    made = build(SOURCE, reservoir, BATCH)
    assert 0 < made.memory < 1 << 30
    assert 1 << 17 < made.resume_work < 1 << 25


def test_what_a_shuffle_keeps_counts_for_every_cached_epoch() -> None:
    def memory(*stages: Mapping[str, Any]) -> int:
        parsed = parse_pipeline(spec(SOURCE, *stages, {"op": "batch", "size": 1}))
        return build_pipeline(parsed, lambda *_: Untouched(1 << 40)).memory

    reservoir = {"op": "shuffle", "kind": "reservoir", "size": 1 << 17}
    without = memory()
    once = memory(reservoir) - without
    assert once >= 8 << 17
    for epochs, cached in ((1, 1), (3, 3), (8, 8), (9, 8), (None, 8)):
        repeat = {"op": "repeat", "times": epochs}
        more = memory(repeat, reservoir) - without
        # Blocks and batches of one item add little.
        assert 0 <= more - cached * (32 << 17) < 1 << 14
        # Before the epochs there is one.
        assert memory({"op": "shuffle", "size": 1 << 10}, repeat) - without < once
    # Large blocks are permuted without tables.
    assert memory({"op": "shuffle", "size": 1 << 20}) - without < 1 << 23


# -- what batches are ----------------------------------------------------------------------------


def test_a_position_is_one_integer_however_large() -> None:
    parsed = parse_pipeline(
        spec(SOURCE, {"op": "permute", "seed": 3, "epochs": None}, {"op": "batch", "size": 64})
    )
    pipeline = build_pipeline(parsed, lambda *_: CounterSource(10**12))
    assert pipeline.initial == (0,)
    assert pipeline.indexed
    assert pipeline.batches is None
    assert pipeline.batches_per_epoch == 10**12 // 64
    state = pipeline.skip((0,), 5 * 10**12)
    assert state == (5 * 10**12,)
    step = pipeline.step(state)
    assert step is not None
    assert step.epoch == 320
    assert len(set(xs(step, "index"))) == 64
    last = 2**62 // 10**12 * (10**12 // 64) - 1
    with pytest.raises(PositionError, match=f"of a pipeline of {last} batches"):
        pipeline.skip((0,), 2**62)
    assert pipeline.step(pipeline.skip((0,), last - 1)) is not None


@pytest.mark.parametrize(
    ("last", "epochs", "expected"),
    [
        ("keep", 2, [4, 4, 2, 4, 4, 2]),
        ("drop", 2, [4, 4, 4, 4]),
        ("pad", 2, [4, 4, 4, 4, 4, 4]),
        ("wrap", 2, [4, 4, 4, 4, 4, 4]),
    ],
)
@pytest.mark.parametrize("sequential", [False, True])
def test_the_last_batch_of_an_epoch(
    last: str, epochs: int, expected: list[int], sequential: bool
) -> None:
    stages: Stages = [{**SOURCE, "range": [0, 10]}, {"op": "repeat", "times": epochs}]
    if sequential:
        stages.append(FILTER | {"args": {"field": "x", "value": 99}})
    pipeline = built([*stages, {**BATCH, "last": last}])
    found = steps(pipeline)
    assert [len(xs(step)) for step in found] == expected
    per_epoch = len(expected) // 2
    assert [step.epoch for step in found] == [0] * per_epoch + [1] * per_epoch
    ends = [(k + 1) % per_epoch == 0 for k in range(len(expected))]
    assert [step.ends_epoch for step in found] == ends
    assert [step.data_finished for step in found] == [False] * (len(expected) - 1) + [True]
    if last != "drop":
        assert [step.count for step in found] == [4, 4, 2] * 2
        assert xs(found[2]) == {"keep": [8, 9], "pad": [8, 9, 0, 0], "wrap": [8, 9, 0, 1]}[last]
    if not sequential:
        assert (pipeline.batches, pipeline.batches_per_epoch) == (len(expected), per_epoch)


def test_wrapping_goes_round_as_often_as_needed() -> None:
    for stages in ([], [FILTER | {"args": {"field": "x", "value": 3}}]):
        batch = {"op": "batch", "size": 8, "last": "wrap"}
        (step,) = steps(make({**SOURCE, "range": [0, 3]}, *stages, batch))
        assert xs(step) == [0, 1, 2, 0, 1, 2, 0, 1]
        assert step.count == 3


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(("count", "finished"), [(2, False), (6, True), (7, True), (None, True)])
def test_a_limit_knows_whether_the_data_had_ended(
    count: int | None, finished: bool, sequential: bool
) -> None:
    more = [FILTER | {"args": {"field": "x", "value": 99}}] if sequential else []
    limits = [] if count is None else [{"op": "limit", "count": count}]
    pipeline = make(SOURCE, *more, BATCH, *limits)
    found = steps(pipeline)
    assert len(found) == min(count or 6, 6)
    assert found[-1].data_finished is finished
    behind = found[-1].state
    assert pipeline.step(behind) is None
    pipeline.check(behind)
    with pytest.raises(PositionError):
        pipeline.skip(behind, 1)


def test_an_exact_tie_of_a_filter_ends_the_data() -> None:
    found = steps(make(SOURCE, FILTER | {"args": {"field": "x", "value": 8}}, BATCH))
    assert [step.data_finished for step in found] == [False, True]


def test_a_limit_of_items_is_for_each_epoch() -> None:
    for more in ([], [FILTER]):
        limited = make(SOURCE, *more, {"op": "limit", "count": 5}, {"op": "repeat", "times": 2},
                       BATCH)  # fmt: skip
        assert [xs(step) for step in steps(limited)] == [[0, 1, 2, 3], [4]] * 2
    # One epoch, of items without random access, is no other case.
    once: Stages = [
        SOURCE,
        FILTER,
        {"op": "limit", "count": 5},
        {"op": "repeat", "times": 1},
        BATCH,
    ]
    assert [xs(step) for step in steps(built(once))] == [[0, 1, 2, 3], [4]]


def test_fixed_epochs_do_not_disturb_the_batches() -> None:
    stages: Stages = [
        {**SOURCE, "range": [0, 7]}, {"op": "repeat"}, {"op": "batch", "size": 1},
        {"op": "epoch", "size": 3},
    ]  # fmt: skip
    found = steps(built(stages), most=15)
    by_epoch = [[xs(step)[0] for step in found if step.epoch == e] for e in range(5)]
    assert by_epoch == [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4], [5, 6, 0]]
    assert [step.sequence for step in found if step.ends_epoch] == [2, 5, 8, 11, 14]
    assert built(stages).batches_per_epoch == 3


def test_labels_of_arrays_in_memory_are_one_for_each_item() -> None:
    frames = ArraySource({"x": np.arange(8)})
    labels = ArraySource({"other": np.zeros(8), "label": np.arange(8) * 10})
    labelled = {**SOURCE, "labels": "y"}
    parsed = parse_pipeline(spec(labelled, {"op": "permute", "seed": 3}, {**BATCH, "size": 8}))
    pipeline = build_pipeline(parsed, lambda name, _options: frames if name == "a" else labels)
    (step,) = steps(pipeline)
    assert [field.name for field in pipeline.schema] == ["x", "label"]
    assert xs(step, "label") == [10 * x for x in xs(step)] != sorted(xs(step, "label"))
    short = ArraySource({"label": np.arange(7)})
    with pytest.raises(PipelineError, match="labels of 'y' are 7, for a scan") as caught:
        build_pipeline(parsed, lambda name, _options: frames if name == "a" else short)
    assert (caught.value.stage, caught.value.field) == (0, "labels")


def test_an_empty_source_has_no_batch_and_no_second_epoch() -> None:
    for more in ([], [FILTER]):
        pipeline = make(EMPTY, *more, BATCH)
        assert pipeline.step(pipeline.initial) is None
    nothing = FILTER | {"args": {"field": "x", "value": -1}}
    endless = make(SOURCE, REPEAT, nothing, BATCH)
    with pytest.raises(PipelineError, match="no batch"):
        endless.step(endless.initial)


def test_padding_is_that_of_the_whole_batch_for_every_rank() -> None:
    pipeline = make({**SOURCE, "fields": ["r"]}, {"op": "batch", "size": 8}, {"op": "pad"})
    whole = pipeline.step((0,))
    assert whole is not None
    lengths = np.diff(array_source("a").at(np.arange(8))["r"].offsets)  # type: ignore[union-attr]
    assert whole.block["r"].shape == (8, lengths.max())  # type: ignore[union-attr]
    assert np.array_equal(whole.block["r_length"], lengths)  # type: ignore[arg-type]
    assert [(f.name, f.shape, f.ragged) for f in pipeline.schema] == [
        ("r", (-1,), False),
        ("r_length", (), False),
    ]


def test_an_item_that_does_not_fit_is_an_error_where_it_is_read() -> None:
    pipeline = make(SOURCE, BATCH, {"op": "pad", "length": 1})
    with pytest.raises(TransformError, match="length 1") as caught:
        steps(pipeline)
    assert (caught.value.stage, caught.value.field) == (2, "length")


@pytest.mark.parametrize(("rank", "world"), [(0, 0), (0, 5), (4, 4), (-1, 2), (0, -1)])
def test_ranks_that_cannot_share_a_batch(rank: int, world: int) -> None:
    pipeline = make(SOURCE, BATCH)
    with pytest.raises(OptionError):
        pipeline.step((0,), rank, world)


def test_states_that_cannot_be() -> None:
    indexed = make(SOURCE, BATCH)
    wrong: list[Any] = [(), (7,), (-1,), (0, 0), [0], (True,), (1.0,), ("0",), None, (1 << 63,)]
    for state in wrong:
        with pytest.raises(StateError):
            indexed.check(state)
        with pytest.raises(StateError):
            indexed.step(state)
    sequential = make(SOURCE, FILTER, BATCH, {"op": "limit", "count": 5})
    start = sequential.initial
    for state in [(0, 1, 0), (1, 2, 0), (1, 1, 5), (6, 0, 0), start[:-1], (*start, 0)]:
        with pytest.raises(StateError):
            sequential.check(state)
    with pytest.raises(StateError):
        sequential.step((1, 0, 99))
    with pytest.raises(PositionError):
        indexed.skip((0,), 7)
    with pytest.raises(PositionError):
        indexed.skip((0,), -1)


def test_no_more_is_read_to_skip_than_is_bearable() -> None:
    endless = make(ENDLESS, {"op": "scan", "fn": "count", "field": "index"}, BATCH)
    with pytest.raises(LimitError, match="read in order"):
        endless.skip(endless.initial, 1 << 40)
    assert endless.sequence(endless.skip(endless.initial, 50)) == 50


def test_a_failure_is_met_where_it_is_and_not_a_batch_before() -> None:
    class Broken(ArraySource):
        def at(self, positions: Any) -> Block:  # noqa: ANN401 - as of the base class
            if len(positions) and positions.max() >= 8:
                raise TransformError("item 8 is broken", position=8)
            return super().at(positions)

    stages = spec(SOURCE, {"op": "shuffle", "kind": "reservoir", "size": 1}, {**BATCH, "size": 2})
    pipeline = build_pipeline(parse_pipeline(stages), lambda *_: Broken({"x": np.arange(23)}))
    found = steps(pipeline, most=4)
    assert [xs(step) for step in found] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(TransformError) as caught:
        pipeline.step(found[-1].state)
    assert caught.value.position == 8


def test_errors_of_a_source_reach_the_caller_with_the_stage() -> None:
    def open_none(dataset: str, _options: Mapping[str, Any]) -> Indexed:
        raise KeyError(dataset)

    def open_wrong(_dataset: str, _options: Mapping[str, Any]) -> Indexed:
        raise OptionError("no such unit", hint="Take frames.", field="unit")

    def open_empty(_dataset: str, _options: Mapping[str, Any]) -> Indexed:
        raise SelectionError("no frame", field="view")

    parsed = parse_pipeline(spec(SOURCE, BATCH))
    with pytest.raises(KeyError):
        build_pipeline(parsed, open_none)
    with pytest.raises(PipelineError, match="no such unit") as caught:
        build_pipeline(parsed, open_wrong)
    assert (caught.value.stage, caught.value.field) == (0, "unit")
    mixed = parse_pipeline(spec({"op": "mix", "inputs": [[SOURCE], [SOURCE]]}, BATCH))
    with pytest.raises(SelectionError) as empty:
        build_pipeline(mixed, open_empty)
    assert (empty.value.stage, empty.value.field) == (0, "inputs[0][0].view")


def test_a_source_is_given_its_options_and_nothing_else() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def opened(dataset: str, options: Mapping[str, Any]) -> Indexed:
        asked.append((dataset, dict(options)))
        return array_source("a")

    source = {**SOURCE, "range": [2, 5], "fields": ["v", "x"], "unit": "rows", "view": {"dtype": 1}}
    pipeline = build_pipeline(parse_pipeline(spec(source, BATCH)), opened)
    assert asked == [("a", {"fields": ["v", "x"], "unit": "rows", "view": {"dtype": 1}})]
    (step,) = steps(pipeline)
    assert list(step.block) == ["v", "x"]
    assert xs(step) == [2, 3, 4]


@pytest.mark.parametrize("swapped", [False, True])
def test_no_field_is_named_as_the_offsets_of_another(*, swapped: bool) -> None:
    ragged = Ragged(np.arange(3), np.array([0, 1, 3]))
    columns: Block = {"x": ragged, "x.offsets": np.arange(2)}
    source = ArraySource(dict(reversed(list(columns.items()))) if swapped else columns)
    with pytest.raises(PipelineError, match=r"'x\.offsets'.*'x'") as caught:
        built_over([SOURCE, BATCH], source)
    assert (caught.value.stage, "rename" in str(caught.value.hint)) == (1, True)
    renamed = {"op": "map", "fn": "rename", "args": {"field": "x", "to": "y"}}
    assert set(steps(built_over([SOURCE, renamed, BATCH], source))[0].block) == {"y", "x.offsets"}
    built_over([SOURCE, BATCH], ArraySource({"x": np.arange(2), "x.offsets": np.arange(2)}))


class Counted(ArraySource):
    """A source that knows how many elements its ragged items have."""

    def element_offsets(self, field: str) -> Indices | None:
        column = self.at(np.arange(self.length))[field]
        return column.offsets if isinstance(column, Ragged) else None


@pytest.mark.parametrize("profiled", [False, True])
def test_elements_have_positions_where_their_source_counts_them(profiled: bool) -> None:
    whole = array_source("a").at(np.arange(23))
    profile = Profile(lambda: 0.0)
    parsed = parse_pipeline(
        spec(SOURCE, {"op": "select_many", "field": "r"}, PERMUTE, {**BATCH, "size": 9})
    )
    pipeline = build_pipeline(
        parsed,
        lambda *_: Counted(dict(whole)),
        wrap=(lambda stage, name: timed(stage, profile, name)) if profiled else None,
    )
    assert pipeline.indexed
    column = whole["r"]
    assert isinstance(column, Ragged)
    found = [x for step in steps(pipeline) for x in xs(step, "r")]
    assert sorted(found) == sorted(column.values.tolist())
    in_order = make(SOURCE, {"op": "select_many", "field": "r"}, {**BATCH, "size": 9})
    assert not in_order.indexed
    assert [x for step in steps(in_order) for x in xs(step, "r")] == column.values.tolist()


def test_what_stands_before_a_repeat_is_the_same_in_every_epoch() -> None:
    permute = {"op": "permute", "seed": 5}
    shuffle = {"op": "shuffle", "size": 9, "seed": 5}
    twice = {"op": "repeat", "times": 2}
    same_order = [xs(step) for step in steps(make(SOURCE, permute, twice, BATCH))]
    assert same_order[:6] == same_order[6:]
    other_order = [xs(step) for step in steps(make(SOURCE, permute, twice, shuffle, BATCH))]
    assert other_order[:6] != other_order[6:]
    once = [xs(step) for step in steps(make(SOURCE, permute, shuffle, BATCH))]
    assert other_order[:6] == once


def test_stages_can_be_timed() -> None:
    ticks = iter(range(10**6))
    profile = Profile(lambda: float(next(ticks)))
    parsed = parse_pipeline(spec(SOURCE, PERMUTE, FILTER, BATCH))
    pipeline = build_pipeline(
        parsed, open_source, wrap=lambda stage, name: timed(stage, profile, name)
    )
    plain = make(SOURCE, PERMUTE, FILTER, BATCH)
    assert all(map(equal, steps(pipeline), steps(plain)))
    report = profile.report()
    assert set(report) == {"0.source", "1.permute", "2.filter"}
    assert report["2.filter"]["items"] == 5
    assert report["0.source"]["items"] >= 23
    own = sum(times["own_seconds"] for times in report.values())
    assert own == report["2.filter"]["seconds"]


def jitter(seed: int = 0) -> dict[str, Any]:
    return {"op": "map", "fn": "jitter", "args": {"field": "v", "amount": 1}, "seed": seed}


@pytest.mark.parametrize(
    ("stages", "named"),
    [
        ([jitter(), jitter()], ["1 and 2"]),
        ([PERMUTE, jitter(3), jitter(), jitter(), jitter(3), jitter()], ["2 and 5", "3, 4 and 6"]),
        ([jitter(), {"op": "scan", "fn": "cumsum", "field": "x"}, jitter()], ["1 and 3"]),
        # Where items have other positions, or seeds differ, they draw other numbers.
        ([jitter(), jitter(1)], []),
        ([jitter(), PERMUTE, jitter()], []),
        ([jitter(), FILTER, jitter()], []),
        ([jitter(), {"op": "map", "fn": "absolute", "args": {"field": "v"}}], []),
    ],
)  # fmt: skip
def test_notes_name_stages_that_draw_alike(stages: Stages, named: list[str]) -> None:
    noted = [
        f"stages {each} draw the same numbers for each item: give each a seed of its own"
        for each in named
    ]
    assert make(SOURCE, *stages, BATCH).notes == noted


def test_notes_on_draws_reach_into_inputs() -> None:
    inputs = [[SOURCE, jitter(), jitter()], [SOURCE, jitter()]]
    (note,) = make({"op": "mix", "inputs": inputs}, jitter(), BATCH).notes
    assert note.startswith("stages inputs[0][1] and inputs[0][2] draw the same numbers")


def test_inputs_that_equal_seeds_order_differently_are_noted() -> None:
    def zipped(*inputs: Stages, names: str = "ab") -> Pipeline:
        return make({"op": "zip", "inputs": list(inputs), "names": list(names)}, PERMUTE, BATCH)

    shuffle = {"op": "shuffle", "size": 3}
    for order in (PERMUTE, shuffle):
        alike = zipped([SOURCE, order], [SOURCE, order])
        assert any(xs(step, "a.x") != xs(step, "b.x") for step in steps(alike))
        (note,) = alike.notes
        assert "zip first, then permute" in note
    for pair in (zipped([SOURCE, PERMUTE], [SOURCE, shuffle]), zipped([SOURCE], [SOURCE])):
        assert pair.notes == []
    assert all(xs(step, "a.x") == xs(step, "b.x") for step in steps(pair))


@pytest.mark.parametrize("other", [jitter(1), PERMUTE])
def test_draws_without_a_note_differ(other: dict[str, Any]) -> None:
    def draws(name: str, seed: int = 0) -> list[dict[str, Any]]:
        scale = {"op": "map", "fn": "scale", "args": {"field": name, "factor": 1e6}}
        return [{"op": "map", "fn": "uniform", "args": {"to": name}, "seed": seed}, scale]

    batch, between = {"op": "batch", "size": 24}, [other] if other is PERMUTE else []
    alike = make(SOURCE, *draws("a"), *draws("b"), batch)
    own = make(SOURCE, *draws("a"), *between, *draws("b", other.get("seed", 0)), batch)
    for pipeline, are_same in ((alike, True), (own, False)):
        (step,) = steps(pipeline)
        assert (xs(step, "a") == xs(step, "b")) is are_same
        assert bool(pipeline.notes) is are_same


@pytest.mark.parametrize(
    ("stage", "message", "hint"),
    [
        ({"op": "permute", "epochs": -1}, "permute: epochs is -1",
         "Give an integer from 1 to 281474976710656, or null for no end."),
        ({"op": "repeat", "times": -1}, "repeat: times is -1",
         "Give an integer from 1 to 281474976710656, or null for no end."),
        ({"op": "limit"}, "limit: count is missing",
         "Give the number of items, or of batches after batch."),
        ({"op": "limit", "seconds": 5},
         "limit: seconds cannot be part of a pipeline: its batches do not depend on time",
         "Over HTTP pass max_seconds with the request for batches; in Python leave the loop."),
        ({"op": "filter", "pred": "less", "args": {"value": 3}},
         "filter: args is refused: field is missing", "Use x, v, k."),
        ({"op": "scan", "fn": "ema", "args": {"alpha": 0.5, "field": "x"}},
         "scan: field is missing", "Give it beside args, not in it."),
    ],
)  # fmt: skip
def test_hints_say_what_can_be_given(stage: dict[str, Any], message: str, hint: str) -> None:
    error = refused(spec(SOURCE, stage, BATCH))
    assert (error.message, error.hint) == (message, hint)


def test_what_is_said_to_be_endless_is() -> None:
    few = {**BATCH, "size": 24, "last": "drop"}
    for epochs, ending in ((2, "an epoch of 23 items"), (None, "which repeats for ever")):
        assert refused(spec(SOURCE, {**PERMUTE, "epochs": epochs}, few)).message.endswith(ending)


def test_a_seed_that_a_mix_does_not_use_is_refused() -> None:
    mix = {"op": "mix", "inputs": [[SOURCE]], "seed": 3}
    error = refused(spec(mix, BATCH))
    assert (error.field, error.hint) == ("seed", 'Set order to "random".')
    make({**mix, "order": "random"}, BATCH)
    make({**mix, "seed": 0}, BATCH)


def test_a_batch_that_is_too_large_names_a_size_that_fits() -> None:
    def build(size: int) -> Pipeline:
        stages = parse_pipeline(spec({**SOURCE, "fields": ["x"]}, {"op": "batch", "size": size}))
        return build_pipeline(stages, open_source, bounds=Bounds(memory=1 << 20))

    with pytest.raises(PipelineError) as caught:
        build(1 << 20)
    found = re.search(r"A size of about (\d+) fits", str(caught.value.hint))
    assert found is not None
    build(int(found[1]))
    with pytest.raises(PipelineError):
        build(int(found[1]) + 1)


@pytest.mark.parametrize("wrong", [np.arange(3), {"x": np.arange(3)}, None])
def test_what_is_no_source_is_refused_in_words(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"of 'a' is a \w+: return ArraySource"):
        built_over([SOURCE, BATCH], wrong)
