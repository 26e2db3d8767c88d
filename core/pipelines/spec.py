"""Pipeline specs: parse JSON, fill in defaults, compute the identity.

Two specs that mean the same have the same canonical JSON, whichever defaults they spell out and
in whichever order their members come. A digest of that JSON and the version of the algorithm
is the identity of the pipeline.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import PipelineError, names_hint
from .operations import ALIASES, OPERATIONS
from .options import REQUIRED, Refused
from .stage import INPUTS, StageSpec

MEMBERS = ("order", "stages")
"""Members of a pipeline in JSON."""
ORDER = 1
"""Version of the order of items, which golden tests freeze."""
ALGORITHM = 1
"""Rises when the same pipeline over the same data would return other bytes."""

MAX_STAGES = 16
"""Stages of one list."""
MAX_INPUTS = 64
"""Sources of one pipeline."""
MAX_DEPTH = 4
"""Levels of inputs inside inputs."""

_OTHER_NAMES = ("type", "kind", "name", "stage")
"""What other programs call ``op``."""


@dataclass(frozen=True, slots=True, eq=False)
class PipelineSpec:
    """A pipeline whose stages and options are valid, as far as is known without its data."""

    stages: tuple[StageSpec, ...]

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values, with every option; parses to an equal spec."""
        return {"order": ORDER, "stages": [stage.to_json() for stage in self.stages]}

    @property
    def canonical(self) -> bytes:
        """Canonical JSON, without stages that change no batch, such as ``prefetch``."""
        return _compact_json({"order": ORDER, "stages": _identifying(self.stages)})

    @property
    def digest(self) -> bytes:
        """Identity of the pipeline, 16 bytes."""
        text = b"thalweg pipeline %d\0" % ALGORITHM + self.canonical
        return hashlib.blake2b(text, digest_size=16).digest()


def parse_spec(values: Mapping[str, Any]) -> PipelineSpec:
    """Parse a pipeline from JSON values; :mod:`.placement` checks the order of its stages.

    Raises:
        PipelineError: a stage or an option is unknown, missing or invalid.
    """
    if not isinstance(values, Mapping):
        raise PipelineError(
            "the pipeline is not an object", hint='Give {"order": 1, "stages": […]}.'
        )
    unknown = sorted(str(key) for key in set(values).difference(MEMBERS))
    if unknown:
        raise PipelineError(
            f"a pipeline has no member {unknown[0]!r}",
            field=unknown[0],
            hint=f"{names_hint(unknown[0], MEMBERS)}.",
        )
    order = values.get("order", ORDER)
    if isinstance(order, bool) or not isinstance(order, int) or order != ORDER:
        raise PipelineError(
            f"order is {order!r}", field="order", hint=f"The only order is {ORDER}."
        )
    stages = _Parser().stages(values.get("stages"), "stages", None, "", 0)
    return PipelineSpec(stages)


class _Parser:
    """Parses lists of stages, and counts the sources of the whole pipeline."""

    def __init__(self) -> None:
        self._sources = 0

    def stages(
        self, values: object, field: str, place: int | None, path: str, depth: int
    ) -> tuple[StageSpec, ...]:
        """Parse a list of stages; ``place`` is that of the stage they feed, None if outermost."""
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            fault = "is missing" if values is None else "is not a list of stages"
            raise PipelineError(
                f"{field} {'is empty' if values == [] else fault}",
                stage=place,
                field=field,
                hint="Give a list of one stage or more.",
            )
        if len(values) > MAX_STAGES:
            raise PipelineError(
                f"{field} has {len(values)} stages",
                stage=place,
                field=field,
                hint=f"A list may have {MAX_STAGES}.",
            )
        return tuple(
            self._stage(item, k if place is None else place, f"{path}[{k}]." if path else "", depth)
            for k, item in enumerate(values)
        )

    def _stage(self, values: object, place: int, path: str, depth: int) -> StageSpec:
        if not isinstance(values, Mapping):
            raise PipelineError(
                "the stage is not an object", stage=place, field=path.rstrip(".") or None,
                hint='Give {"op": …}.',
            )  # fmt: skip
        op = values.get("op")
        op = ALIASES.get(op, op) if isinstance(op, str) else op
        if not isinstance(op, str) or op not in OPERATIONS:
            fault = "the stage has no op" if op is None else f"there is no stage {str(op)[:60]!r}"
            known = sorted(OPERATIONS.keys() - {"delay"})
            other = next((name for name in _OTHER_NAMES if op is None and name in values), None)
            guess = "" if other is None else f"Did you mean op, not {other}? "
            hint = f"{guess}{names_hint(str(op), known)}."
            raise PipelineError(fault, stage=place, field=f"{path}op", hint=hint)
        operation = OPERATIONS[op]
        bare = StageSpec(op, {}, (), place, path)
        members = {key: value for key, value in values.items() if key != "op"}
        lists = members.pop(INPUTS, None) if operation.combines else None
        self._check_names(bare, members)
        inputs = self._inputs(bare, lists, depth) if operation.combines else ()
        options = _options(bare, members)
        self._sources += operation.sources(options)
        if self._sources > MAX_INPUTS:
            raise bare.error(
                "is one source too many", hint=f"A pipeline may have {MAX_INPUTS} sources."
            )
        stage = StageSpec(op, options, inputs, place, path)
        _complete(stage, options)
        return stage

    def _check_names(self, stage: StageSpec, members: Mapping[str, Any]) -> None:
        options = OPERATIONS[stage.op].options
        unknown = sorted(str(key) for key in members if key not in options)
        if unknown:
            hint = names_hint(unknown[0], options) if options else "It has no options"
            raise stage.error("is not an option of this stage", unknown[0], f"{hint}.")

    def _inputs(
        self, stage: StageSpec, lists: object, depth: int
    ) -> tuple[tuple[StageSpec, ...], ...]:
        if not isinstance(lists, Sequence) or isinstance(lists, str) or not lists:
            raise stage.error(
                "is not a list of lists of stages", INPUTS, "Give a list of stages for each input."
            )
        if len(lists) > MAX_INPUTS:
            raise stage.error(
                f"has {len(lists)} entries", INPUTS, f"A stage may have {MAX_INPUTS} inputs."
            )
        if depth >= MAX_DEPTH:
            raise stage.error(
                "are nested too deep", INPUTS, f"Inputs may nest {MAX_DEPTH} levels deep."
            )
        return tuple(
            self.stages(
                stages,
                f"{stage.path}{INPUTS}[{k}]",
                stage.place,
                f"{stage.path}{INPUTS}[{k}]",
                depth + 1,
            )
            for k, stages in enumerate(lists)
        )


def _options(stage: StageSpec, members: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a stage, checked and sorted by name; defaults fill the gaps."""
    options: dict[str, Any] = {}
    for key, option in sorted(OPERATIONS[stage.op].options.items()):
        if key not in members:
            if option.default is REQUIRED:
                args = members.get("args")
                is_inside = isinstance(args, Mapping) and key in args
                hint = "Give it beside args, not in it." if is_inside else "It has no default."
                raise stage.error("is missing", key, hint)
            value = option.default
        else:
            try:
                value = option.check(members[key])
            except Refused as error:
                raise stage.error(str(error), key, error.hint) from None
        if option.kept:
            options[key] = value
    return options


def _complete(stage: StageSpec, options: dict[str, Any]) -> None:
    """Check options against each other, and fill in derived ones in place."""
    complete = OPERATIONS[stage.op].complete
    if complete is None:
        return
    try:
        complete(options, len(stage.inputs))
    except Refused as error:
        raise stage.error(str(error), error.field, error.hint) from None


def _identifying(stages: Sequence[StageSpec]) -> list[dict[str, Any]]:
    """The JSON values of the stages that can change a batch."""
    identifying = []
    for stage in stages:
        if not OPERATIONS[stage.op].identity:
            continue
        values = {"op": stage.op, **stage.options}
        if any(_is_large(value) for value in stage.options.get("args", {}).values()):
            # Batches of earlier versions, which rounded it, are others.
            values["exact"] = True
        if stage.inputs:
            values[INPUTS] = [_identifying(inputs) for inputs in stage.inputs]
        identifying.append(values)
    return identifying


def _is_large(value: object) -> bool:
    """Whether it is a number near which float64 lacks integers."""
    return isinstance(value, int | float) and abs(value) >= 2**53


def _compact_json(values: object) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
