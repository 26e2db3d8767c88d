"""Pipelines as JSON: parsed, completed with every default, and identified.

Equal pipelines have equal canonical JSON, whatever was left out or in which order members
came; the digest of it, with the version of the algorithm, is the pipeline's identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import PipelineError
from .operations import ALIASES, OPERATIONS
from .options import REQUIRED, Refused
from .stage import INPUTS, StageSpec

ORDER = 1
"""Version of the order of items; fixed values in the tests hold it."""
ALGORITHM = 1
"""Changes when the same pipeline over the same data would give other bytes."""

MAX_STAGES = 16
"""Of one list of stages."""
MAX_INPUTS = 64
"""Sources of one pipeline."""
MAX_DEPTH = 4
"""Of inputs inside inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class PipelineSpec:
    """A pipeline that can be, as far as it can be told without its data."""

    stages: tuple[StageSpec, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with every option; parsed again it is the same pipeline."""
        return {"order": ORDER, "stages": [each.to_json() for each in self.stages]}

    @property
    def canonical(self) -> bytes:
        """Canonical JSON; read-ahead, which changes no batch, is no part of it."""
        return _dumped({"order": ORDER, "stages": _meaning(self.stages)})

    @property
    def digest(self) -> bytes:
        """Identity of the pipeline, 16 bytes."""
        text = b"thalweg pipeline %d\0" % ALGORITHM + self.canonical
        return hashlib.blake2b(text, digest_size=16).digest()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Ids of the datasets it reads, each once, in the order they are named."""
        return tuple(dict.fromkeys(_datasets(self.stages)))


def parse_spec(values: Mapping[str, Any]) -> PipelineSpec:
    """A pipeline out of JSON values; how its stages follow each other is not looked at.

    Raises:
        PipelineError: a stage, an option or a value cannot be.
    """
    if not isinstance(values, Mapping):
        raise PipelineError("a pipeline is an object", hint='Give {"order": 1, "stages": […]}.')
    unknown = sorted(str(each) for each in set(values) - {"order", "stages"})
    if unknown:
        raise PipelineError(
            f"a pipeline has no member {unknown[0]!r}",
            field=unknown[0],
            hint="Its members are order and stages.",
        )
    order = values.get("order", ORDER)
    if isinstance(order, bool) or not isinstance(order, int) or order != ORDER:
        raise PipelineError(
            f"order {order!r} is not known here", field="order", hint=f"Give {ORDER}."
        )
    stages = _Parser().stages(values.get("stages"), "stages", None, "", 0)
    return PipelineSpec(stages)


class _Parser:
    """Counts the sources of a pipeline while its stages are parsed."""

    def __init__(self) -> None:
        self._sources = 0

    def stages(
        self, values: object, field: str, place: int | None, path: str, depth: int
    ) -> tuple[StageSpec, ...]:
        """A list of stages; ``place`` is that of the stage they are an input of."""
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise PipelineError(
                f"{field} is not a list of stages", stage=place, field=field, hint="Give one."
            )
        if len(values) > MAX_STAGES:
            raise PipelineError(
                f"{len(values)} stages",
                stage=place,
                field=field,
                hint=f"A list of stages may have {MAX_STAGES}.",
            )
        return tuple(
            self._stage(each, k if place is None else place, f"{path}[{k}]." if path else "", depth)
            for k, each in enumerate(values)
        )

    def _stage(self, values: object, place: int, path: str, depth: int) -> StageSpec:
        if not isinstance(values, Mapping):
            raise PipelineError(
                "a stage is an object", stage=place, field=path.rstrip(".") or None,
                hint='Give {"op": …}.',
            )  # fmt: skip
        op = values.get("op")
        op = ALIASES.get(op, op) if isinstance(op, str) else op
        if not isinstance(op, str) or op not in OPERATIONS:
            raise PipelineError(
                f"no stage is called {str(op)[:60]!r}",
                stage=place,
                field=f"{path}op",
                hint=f"There are {', '.join(sorted(OPERATIONS))}.",
            )
        operation = OPERATIONS[op]
        bare = StageSpec(op, {}, (), place, path)
        given = {key: value for key, value in values.items() if key != "op"}
        listed = given.pop(INPUTS, None) if operation.combines else None
        self._known(bare, given)
        inputs = self._inputs(bare, listed, depth) if operation.combines else ()
        self._sources += operation.dataset is not None
        if self._sources > MAX_INPUTS:
            raise bare.error(
                "is one source too many", hint=f"A pipeline may have {MAX_INPUTS} sources."
            )
        options = _options(bare, given)
        made = StageSpec(op, options, inputs, place, path)
        if operation.complete is not None:
            _completed(made, options)
        return made

    def _known(self, stage: StageSpec, given: Mapping[str, Any]) -> None:
        options = OPERATIONS[stage.op].options
        unknown = sorted(str(each) for each in given if each not in options)
        if unknown:
            takes = ", ".join(options) or "none"
            raise stage.error("is not an option of it", unknown[0], f"Its options: {takes}.")

    def _inputs(
        self, stage: StageSpec, listed: object, depth: int
    ) -> tuple[tuple[StageSpec, ...], ...]:
        if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
            raise stage.error("is not a list of lists of stages", INPUTS, "Give one.")
        if len(listed) > MAX_INPUTS:
            raise stage.error(
                f"has {len(listed)} entries", INPUTS, f"A stage may have {MAX_INPUTS}."
            )
        if depth >= MAX_DEPTH:
            raise stage.error("lie too deep", INPUTS, f"They may be {MAX_DEPTH} deep.")
        return tuple(
            self.stages(
                each,
                f"{stage.path}{INPUTS}[{k}]",
                stage.place,
                f"{stage.path}{INPUTS}[{k}]",
                depth + 1,
            )
            for k, each in enumerate(listed)
        )


def _options(stage: StageSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of the stage, checked, in the order of their names."""
    made: dict[str, Any] = {}
    for key, option in sorted(OPERATIONS[stage.op].options.items()):
        if key not in given:
            if option.default is REQUIRED:
                raise stage.error("is missing", key, "It has no default.")
            value = option.default
        else:
            try:
                value = option.check(given[key])
            except Refused as error:
                raise stage.error(str(error), key, error.hint) from None
        if option.kept:
            made[key] = value
    return made


def _completed(stage: StageSpec, options: dict[str, Any]) -> None:
    """What the options of a stage have to do with each other, done to ``options``."""
    complete = OPERATIONS[stage.op].complete
    if complete is None:
        return
    try:
        complete(options, len(stage.inputs))
    except Refused as error:
        raise stage.error(str(error), error.field, error.hint) from None


def _meaning(stages: Sequence[StageSpec]) -> list[dict[str, Any]]:
    made = []
    for stage in stages:
        if not OPERATIONS[stage.op].identity:
            continue
        values = {"op": stage.op, **stage.options}
        if stage.inputs:
            values[INPUTS] = [_meaning(each) for each in stage.inputs]
        made.append(values)
    return made


def _datasets(stages: Sequence[StageSpec]) -> list[str]:
    named = []
    for stage in stages:
        option = OPERATIONS[stage.op].dataset
        if option is not None:
            named.append(str(stage.options[option]))
        for each in stage.inputs:
            named.extend(_datasets(each))
    return named


def _dumped(values: object) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
