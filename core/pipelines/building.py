"""Stages out of what a pipeline says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..arrays import Indices
from ..errors import CastingError, OptionError, PipelineError
from ..iterate.base import Indexed, Sequential, Stage
from ..iterate.batching import BucketBatch
from ..iterate.combine import zipped
from ..iterate.limits import Head
from ..iterate.mapping import named_filter, named_map
from ..iterate.mixing import mixed
from ..iterate.positions import Permute, Range, Repeat, Shard
from ..iterate.recurrent import Scan
from ..iterate.selecting import select_many
from ..iterate.shuffle import BlockShuffle, OverlapShuffle, ReservoirShuffle
from ..iterate.split import KeySplit, Split
from ..iterate.window import Window
from .bounds import Bounds, Cost, items_cost
from .placement import makes_epochs
from .spec import StageSpec

OpenSource = Callable[[str, Mapping[str, Any]], Indexed]
"""Gives the source of a dataset id, and of the options ``fields``, ``unit`` and ``view``."""
Wrap = Callable[[Stage, str], Stage]
"""Put around every stage, given its place and name, such as ``2.map``."""
Path = tuple[str | int, ...]

KEPT_EPOCHS = 8
"""Epochs whose stages are kept, for readers in different ones."""
S = TypeVar("S")


@runtime_checkable
class KnowsElements(Protocol):
    """A source that knows how many elements its ragged items have."""

    def element_offsets(self, field: str) -> Indices | None:
        """Elements before each item, and of all, shape (items + 1,); None if not known."""


class Builder:
    """Makes the stages of a pipeline, and again those that differ from epoch to epoch.

    Args:
        stages: up to what makes batches, without it.
        open_source: gives the sources.
        bounds: what they may take.
        wrap: put around every stage, for a profile.
    """

    def __init__(
        self,
        stages: Sequence[StageSpec],
        open_source: OpenSource,
        bounds: Bounds,
        wrap: Wrap | None = None,
    ) -> None:
        self.bounds = bounds
        self.costs: list[tuple[StageSpec, Cost]] = []
        self._open = open_source
        self._wrap = wrap
        self._measured = True
        self.epochs, stop = _epochs(stages)
        self._maker = stages[stop] if stop < len(stages) else None
        self._behind = stages[stop + 1 :]
        self._before = self._chain(stages[:stop], ())
        self.chain = lru_cache(maxsize=KEPT_EPOCHS)(self._epoch)
        self.chain(0)
        self._measured = False

    def _epoch(self, epoch: int) -> Stage:
        """All stages, as they are in one epoch; keys of the first are those of no epochs."""
        stage = self._before
        if self._maker is not None:
            stage = self._made(self._maker, stage, lambda s: self._one_epoch(s, epoch))
        path: Path = ("epoch", epoch) if epoch else ()
        for spec in self._behind:
            stage = self._next(spec, stage, path)
        return stage

    def _one_epoch(self, inner: Stage, epoch: int) -> Stage:
        spec = self._maker
        if isinstance(inner, Sequential) or spec is None:
            return inner
        n = inner.length
        name = "times" if spec.op == "repeat" else "epochs"
        if n is None:
            raise spec.error(
                "goes over items without end", name, "Leave it out, or give the source a range."
            )
        if n == 0:
            if self.epochs is None:
                raise spec.error("is without end over no items", name, "Give the number of epochs.")
            return inner
        if spec.op == "repeat":
            return inner
        every = Permute(inner, seed=spec.options["seed"], epochs=None)
        return Range(every, start=epoch * n, stop=(epoch + 1) * n)

    def _chain(self, stages: Sequence[StageSpec], path: Path) -> Stage:
        stage = self._first(stages[0], path)
        for spec in stages[1:]:
            stage = self._next(spec, stage, path)
        return stage

    def _first(self, spec: StageSpec, path: Path) -> Stage:
        if spec.op == "source":
            return self._made(spec, None, lambda _: self._source(spec))
        inputs = [self._chain(stages, (*path, "input", k)) for k, stages in enumerate(spec.inputs)]
        options = spec.options
        if spec.op == "zip":
            return self._made(
                spec,
                None,
                lambda _: zipped(inputs, names=options["names"], stop=options["stop"]),
            )
        return self._made(
            spec,
            None,
            lambda _: mixed(
                inputs,
                weights=options["weights"],
                order=options["order"],
                stop=options["stop"],
                seed=options["seed"],
                path=path,
            ),
        )

    def _source(self, spec: StageSpec) -> Stage:
        asked = {name: spec.options[name] for name in ("fields", "unit", "view")}
        given = {name: value for name, value in asked.items() if value is not None}
        stage: Indexed = self._open(spec.options["dataset"], given)
        fields, span = spec.options["fields"], spec.options["range"]
        names = [field.name for field in stage.schema]
        if fields is not None and names != fields:
            stage = _with_fields(stage, fields, names)
        if span is None:
            return stage
        if stage.length is not None and span[1] > stage.length:
            raise spec.error(
                f"ends at {span[1]}, and there are {stage.length} items",
                "range",
                f"Ranges end at {stage.length} at most.",
            )
        return Range(stage, start=span[0], stop=span[1])

    def _next(self, spec: StageSpec, inner: Stage, path: Path) -> Stage:
        if spec.op == "prefetch":
            return inner
        make = _MAKERS[spec.op]
        return self._made(spec, inner, lambda stage: make(spec, stage, path))

    def _made(
        self,
        spec: StageSpec,
        inner: S,
        make: Callable[[S], Stage],
    ) -> Stage:
        """A stage; errors get its place, and its cost is written down the first time."""
        stage = located(spec, lambda: make(inner))
        if self._measured and isinstance(inner, Indexed | Sequential):
            length = inner.length if isinstance(inner, Indexed) else None
            self.costs.append((spec, items_cost(spec, inner, length)))
        if self._wrap is not None and spec.op != "repeat":
            return self._wrap(stage, f"{spec.place}.{spec.op}")
        return stage


def located(spec: StageSpec, make: Callable[[], S]) -> S:
    """What ``make`` gives; an error of options that does not say where points at the stage.

    Raises:
        PipelineError: one of the options, or what ``make`` raises.
    """
    try:
        return make()
    except PipelineError as error:
        if error.stage is not None:
            raise
        raise spec.error(f"cannot be: {error.message}", error.field, error.hint) from error
    except (OptionError, CastingError) as error:
        raise spec.error(f"cannot be: {error.message}", None, error.hint) from error


def _epochs(stages: Sequence[StageSpec]) -> tuple[int | None, int]:
    """How many epochs, and the stage that says so."""
    for k, spec in enumerate(stages):
        if makes_epochs(spec):
            return spec.options["times" if spec.op == "repeat" else "epochs"], k
    return 1, len(stages)


def _with_fields(stage: Indexed, fields: Sequence[str], names: Sequence[str]) -> Indexed:
    for name in fields:
        if name not in names:
            raise PipelineError(
                f"there is no field {name!r}", field="fields", hint=f"Fields: {', '.join(names)}."
            )
    chosen = named_map(stage, "select", {"fields": fields})
    if not isinstance(chosen, Indexed):
        raise TypeError("a selection of fields changed the kind of a stage")
    return chosen


def _indexed(spec: StageSpec, inner: Stage) -> Indexed:
    if not isinstance(inner, Indexed):
        raise spec.error(
            "needs items by position, which what comes before it cannot give",
            hint="Put it before filters, scans and what flattens items of unknown lengths.",
        )
    return inner


def _permute(spec: StageSpec, inner: Stage, path: Path) -> Stage:
    options = spec.options
    return Permute(_indexed(spec, inner), seed=options["seed"], epochs=options["epochs"], path=path)


def _repeat(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    return Repeat(_indexed(spec, inner), epochs=spec.options["times"])


def _shuffle(spec: StageSpec, inner: Stage, path: Path) -> Stage:
    size, seed = spec.options["size"], spec.options["seed"]
    match spec.options["kind"]:
        case "block":
            return BlockShuffle(_indexed(spec, inner), size=size, seed=seed, path=path)
        case "overlap":
            return OverlapShuffle(_indexed(spec, inner), size=size, seed=seed, path=path)
    return ReservoirShuffle(inner, size=size, seed=seed, path=path)


def _shard(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    options = spec.options
    return Shard(
        _indexed(spec, inner), of=options["of"], index=options["index"], mode=options["mode"]
    )


def _split(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    options, stage = spec.options, _indexed(spec, inner)
    part, fraction, seed = options["part"], options["fraction"], options["seed"]
    if options["key"] is None:
        return Split(stage, fraction=fraction, part=part, seed=seed)
    return KeySplit(stage, options["key"], fraction=fraction, part=part, seed=seed)


def _map(spec: StageSpec, inner: Stage, path: Path) -> Stage:
    options = spec.options
    return named_map(inner, options["fn"], options["args"], seed=options["seed"], path=path)


def _filter(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    return named_filter(inner, spec.options["pred"], spec.options["args"])


def _select_many(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    field = spec.options["field"]
    offsets = inner.element_offsets(field) if isinstance(inner, KnowsElements) else None
    return select_many(inner, field=field, offsets=offsets)


def _window(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    options = spec.options
    return Window(
        _indexed(spec, inner),
        width=options["width"],
        stride=options["stride"],
        partial=options["partial"],
    )


def _scan(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    options = spec.options
    return Scan(inner, fn=options["fn"], field=options["field"], args=options["args"])


def _limit(spec: StageSpec, inner: Stage, _path: Path) -> Stage:
    count = spec.options["count"]
    if count is None:
        return inner
    if isinstance(inner, Sequential):
        return Head(inner, count)
    return Range(inner, stop=count if inner.length is None else min(count, inner.length))


def bucketed(spec: StageSpec, inner: Stage, epoch: int) -> BucketBatch:
    """The stage that makes batches of similar length."""
    options = {key: value for key, value in spec.options.items() if key != "op"}
    path: Path = ("epoch", epoch) if epoch else ()
    return located(spec, lambda: BucketBatch(inner, **options, path=path))


_MAKERS: Mapping[str, Callable[[StageSpec, Stage, Path], Stage]] = {
    "filter": _filter,
    "limit": _limit,
    "map": _map,
    "permute": _permute,
    "repeat": _repeat,
    "scan": _scan,
    "select_many": _select_many,
    "shard": _shard,
    "shuffle": _shuffle,
    "split": _split,
    "window": _window,
}
