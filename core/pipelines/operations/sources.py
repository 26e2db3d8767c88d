"""Stages that begin a pipeline: a dataset, or a combination of several lists of stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ...arrays import Indices
from ...errors import OptionError, PipelineError, names_hint
from ...iterate.base import Indexed, Stage
from ...iterate.combine import Zip, zipped
from ...iterate.mapping import named_map
from ...iterate.mixing import mixed
from ...iterate.positions import Range, Reordering
from ..options import Option, Refused, mapping, name, names, one_of, optional, seed, span, weights
from ..stage import BuildContext, Operation, Options

_ORDERS = ("permute", "shuffle")
"""Stages that draw an order, which depends on the input they are in."""
_OF_FRAMES = ("data", "index", "nav")
"""Fields that frames have, whether or not they are asked for."""


@runtime_checkable
class KnowsScan(Protocol):
    """A source of frames that knows where in a scan they are."""

    scan: tuple[int, ...]
    """Shape of the scan."""

    def places(self, positions: Indices) -> Indices:
        """Flat index in the scan of each item, shape (k,)."""


class _Placed(Reordering):
    """Of what there is for each position of a scan, that for the items of a source of frames."""

    def __init__(self, inner: Indexed, length: int | None, frames: KnowsScan) -> None:
        super().__init__(inner, length)
        self._frames = frames

    def where(self, positions: Indices) -> Indices:
        """Ask the frames where they are."""
        return self._frames.places(positions)


def _source(context: BuildContext) -> Stage:
    options = context.spec.options
    fields, limits, joined = options["fields"], options["range"], options.get("labels", {})
    choices = {key: options[key] for key in ("fields", "unit", "view")}
    if fields is not None:
        # Where only labels are asked for, no frame is read.
        choices["fields"] = [field for field in fields if field not in joined] or ["index"]
        fields = [*fields, *(label for label in joined if label not in fields)]
    values = {key: value for key, value in choices.items() if value is not None}
    stage = context.open_source(options["dataset"], values)
    if joined:
        stage = _labelled(context, stage, joined)
    if fields is not None:
        stage = _with_fields(stage, fields, "fields")
    if limits is None:
        return stage
    if stage.length is not None and limits[1] > stage.length:
        raise context.spec.error(
            f"stops at {limits[1]}, but the dataset has {stage.length} items",
            "range",
            f"A range may stop at {stage.length} at most.",
        )
    return Range(stage, start=limits[0], stop=limits[1])


def _labelled(context: BuildContext, frames: Indexed, datasets: Mapping[str, str]) -> Indexed:
    """Frames with the labels of their positions in the scan."""
    if not isinstance(frames, KnowsScan):
        raise context.spec.error(
            "need frames, of an array that does not grow",
            "labels",
            "Of a view, set unit to frame. Combine other items by zip.",
        )
    inputs: list[Indexed] = [frames]
    for label, dataset in datasets.items():
        if label in _OF_FRAMES or label in (field.name for field in frames.schema):
            hint = 'Give it another name: {"label": id}.'
            raise context.spec.error(f"name {label!r}, a field of the frames", "labels", hint)
        try:
            found = context.open_source(dataset, {"fields": [label], "scan": list(frames.scan)})
        except OptionError as e:
            if e.field != "fields":
                raise
            message = f"ask {dataset!r} for {label!r}, of which it has no field"
            hint = f'Name labels by its fields: {{"FIELD": "{dataset}"}}. {e.hint}.'
            raise context.spec.error(message, "labels", hint) from e
        if found.length != math.prod(frames.scan):
            found_is = f"of {dataset!r} are {found.length}, for a scan {list(frames.scan)}"
            raise context.spec.error(found_is, "labels", "Give one for each position.")
        found = _with_fields(found, [label], "labels")
        inputs.append(_Placed(found, frames.length, frames))
    return Zip(inputs)


def _view(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """A view, or the id of one: ``{"id": id}``."""
    return {"id": name(value)} if isinstance(value, str) else mapping(value)


def _labels(value: Any) -> dict[str, str]:  # noqa: ANN401 - any JSON value
    """Names of fields and ids of datasets; an id alone is that of the field ``label``."""
    if not isinstance(value, str | dict) or not value:
        raise Refused("name no dataset", 'Give the id of one, or {"label": id}.')
    labels = {"label": value} if isinstance(value, str) else mapping(value)
    return {name(key): name(ident) for key, ident in labels.items()}


def _complete_source(options: Options, _inputs: int) -> None:
    if options["labels"] is None:
        # As if there were no such option: the identity of a pipeline covers all that it has.
        del options["labels"]


def _with_fields(stage: Indexed, fields: Sequence[str], option: str) -> Indexed:
    present = [field.name for field in stage.schema]
    if present == fields:
        return stage
    for field in fields:
        if field not in present:
            hint = f"{names_hint(field, present)}."
            raise PipelineError(f"there is no field {field!r}", field=option, hint=hint)
    chosen = named_map(stage, "select", {"fields": fields})
    if not isinstance(chosen, Indexed):
        raise TypeError("a selection of fields lost random access")
    return chosen


def _complete_zip(options: Options, inputs: int) -> None:
    if options["names"] is not None and len(options["names"]) != inputs:
        raise Refused(
            f"has {len(options['names'])} entries for {inputs} inputs",
            "Give one name for each input.",
            "names",
        )


def _zip_note(context: BuildContext, built: Stage) -> str | None:
    lengths = [stage.length or 0 for stage in context.inputs if isinstance(stage, Indexed)]
    used = built.length if isinstance(built, Indexed) else None
    notes = []
    if used is not None and used != max(lengths):
        notes.append(f"uses {used:,} of the {max(lengths):,} items of its longest input")
    orders = [
        {(stage.op, stage.options["seed"]) for stage in stages if stage.op in _ORDERS}
        for stages in context.spec.inputs
    ]
    if len(set().union(*orders)) < sum(map(len, orders)):
        notes.append(
            "orders each input in its own way, though seeds are equal: to keep together what"
            " belongs together, zip first, then permute or shuffle"
        )
    return "; it ".join(notes) or None


def _mix_note(context: BuildContext, _built: Stage) -> str | None:
    idle = [str(k) for k, weight in enumerate(context.spec.options["weights"]) if not weight]
    return f"takes nothing of input {', '.join(idle)}, whose weight is 0" if idle else None


def _complete_mix(options: Options, inputs: int) -> None:
    if options["weights"] is None:
        options["weights"] = [1] * inputs
    if options["seed"] and options["order"] == "quota":
        raise Refused("has no effect on a mix by quota", 'Set order to "random".', "seed")
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
        "view": Option(optional(_view), None),
        "labels": Option(optional(_labels), None),
    },
    complete=_complete_source,
    make=_source,
    copies=3,
    sources=lambda options: 1 + len(options["labels"] or ()),
)

ZIP = Operation(
    name="zip",
    takes="nothing",
    options={
        "names": Option(optional(names), None),
        "stop": Option(one_of("shortest", "strict"), "shortest"),
    },
    complete=_complete_zip,
    make=lambda stage: zipped(stage.inputs, **stage.spec.options),
    note=_zip_note,
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
    make=lambda stage: mixed(stage.inputs, **stage.spec.options, path=stage.path),
    note=_mix_note,
    copies=2,
    shares=True,
    combines=True,
    sequential=lambda options: options["order"] == "random",
    reorders=True,
)
