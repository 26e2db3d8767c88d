"""Stages that begin a pipeline: a dataset, or a combination of several lists of stages."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import PipelineError
from ...iterate.base import Indexed, Stage
from ...iterate.combine import zipped
from ...iterate.mapping import named_map
from ...iterate.mixing import mixed
from ...iterate.positions import Range
from ..operation import BuildContext, Operation, Options
from ..options import Option, Refused, mapping, name, names, one_of, optional, seed, span, weights


def _source(context: BuildContext) -> Stage:
    options = context.spec.options
    choices = {key: options[key] for key in ("fields", "unit", "view")}
    given = {key: value for key, value in choices.items() if value is not None}
    stage = context.open_source(options["dataset"], given)
    fields, limits = options["fields"], options["range"]
    present = [field.name for field in stage.schema]
    if fields is not None and present != fields:
        stage = _with_fields(stage, fields, present)
    if limits is None:
        return stage
    if stage.length is not None and limits[1] > stage.length:
        raise context.spec.error(
            f"stops at {limits[1]}, but the dataset has {stage.length} items",
            "range",
            f"A range may stop at {stage.length} at most.",
        )
    return Range(stage, start=limits[0], stop=limits[1])


def _with_fields(stage: Indexed, fields: Sequence[str], present: Sequence[str]) -> Indexed:
    for field in fields:
        if field not in present:
            raise PipelineError(
                f"there is no field {field!r}",
                field="fields",
                hint=f"Fields: {', '.join(present)}.",
            )
    chosen = named_map(stage, "select", {"fields": fields})
    if not isinstance(chosen, Indexed):
        raise TypeError("a selection of fields lost random access")
    return chosen


def _zip(context: BuildContext) -> Stage:
    options = context.spec.options
    return zipped(context.inputs, names=options["names"], stop=options["stop"])


def _complete_zip(options: Options, inputs: int) -> None:
    if options["names"] is not None and len(options["names"]) != inputs:
        raise Refused(
            f"has {len(options['names'])} entries for {inputs} inputs",
            "Give one name for each input.",
            "names",
        )


def _mix(context: BuildContext) -> Stage:
    options = context.spec.options
    return mixed(
        context.inputs,
        weights=options["weights"],
        order=options["order"],
        stop=options["stop"],
        seed=options["seed"],
        path=context.path,
    )


def _complete_mix(options: Options, inputs: int) -> None:
    if options["weights"] is None:
        options["weights"] = [1] * inputs
    if len(options["weights"]) != inputs:
        raise Refused(
            f"has {len(options['weights'])} entries for {inputs} inputs",
            "Give one weight for each input.",
            "weights",
        )


SOURCE = Operation(
    name="source",
    takes="nothing",
    options={
        "dataset": Option(name),
        "range": Option(optional(span), None),
        "fields": Option(optional(names), None),
        "unit": Option(optional(name), None),
        "view": Option(optional(mapping), None),
    },
    make=_source,
    copies=3,
    dataset="dataset",
)

ZIP = Operation(
    name="zip",
    takes="nothing",
    options={
        "names": Option(optional(names), None),
        "stop": Option(one_of("shortest", "strict"), "shortest"),
    },
    complete=_complete_zip,
    make=_zip,
    combines=True,
)

MIX = Operation(
    name="mix",
    takes="nothing",
    options={
        "weights": Option(weights, None),
        "order": Option(one_of("quota", "random"), "quota"),
        "stop": Option(one_of("first", "all", "cycle"), "first"),
        "seed": Option(seed, 0),
    },
    complete=_complete_mix,
    make=_mix,
    copies=2,
    shares=True,
    combines=True,
    sequential=lambda options: options["order"] == "random",
    reorders=True,
)
