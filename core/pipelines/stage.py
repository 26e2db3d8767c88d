"""What a stage is: its spec in a pipeline, with errors that point at it, and the row of its kind.

Parsing, placement, cost, building and the warm-up consult the row, and none of them knows a
stage by name. So a new stage is a row in a module of :mod:`.operations` and a line in the
table there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from ..errors import CastingError, CoreError, OptionError, PipelineError
from ..iterate.base import Block, Indexed, Schema, Stage
from ..iterate.batching import BucketBatch
from ..iterate.collate import Padding
from .cost import Cost, Demand
from .options import Option

T = TypeVar("T")

INPUTS: Final = "inputs"
"""The member of a stage's JSON that lists the stages it combines."""
_MAX_TEXT = 160
"""Characters of a stage in a message."""


@dataclass(frozen=True, slots=True, eq=False)
class StageSpec:
    """A stage whose options are checked and complete, defaults included."""

    op: str
    options: Mapping[str, Any]
    inputs: tuple[tuple[StageSpec, ...], ...]
    place: int
    """Index in the outermost list of stages; inputs have that of the stage they feed."""
    path: str
    """Prefix of the names of its fields, such as ``inputs[0][2].``; empty for outer stages."""

    def error(
        self, message: str, field: str | None = None, hint: str | None = None
    ) -> PipelineError:
        """An error that points at this stage and, if given, at one of its options.

        Args:
            message: a predicate, such as ``is missing``; the name of the stage precedes it.
            field: name of the option.
            hint: how to fix it.
        """
        where = f"{self.path}{field}" if field is not None else self.path.rstrip(".") or None
        named = f"{self.op}: {field}" if field is not None else self.op
        return PipelineError(f"{named} {message}", stage=self.place, field=where, hint=hint)

    @property
    def described(self) -> str:
        """The stage with its place and what it says, cut short, for people."""
        text = json.dumps(self.to_json())
        text = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
        return f"{self.op} (stage {self.place}, {text})"

    def to_json(self) -> dict[str, Any]:
        """The stage as JSON values, with every option."""
        values: dict[str, Any] = {"op": self.op, **json.loads(json.dumps(self.options))}
        if self.inputs:
            values[INPUTS] = [[stage.to_json() for stage in stages] for stages in self.inputs]
        return values


def located(spec: StageSpec, make: Callable[[], T]) -> T:
    """Call ``make``, and let its errors of options point at the stage.

    Raises:
        PipelineError: as ``make`` raised it, with the place of the stage; or in place of an
            OptionError or CastingError.
        CoreError: any other that ``make`` raised, with the place of the stage.
    """
    try:
        return make()
    except CoreError as error:
        if error.stage is not None:
            raise
        if isinstance(error, PipelineError | OptionError | CastingError):
            raise spec.error(f"is refused: {error.message}", error.field, error.hint) from error
        error.stage, error.field = spec.place, error.field and f"{spec.path}{error.field}"
        raise


Last = Literal["keep", "drop", "pad", "wrap"]
Takes = Literal["nothing", "items", "batches", "either"]
Options = dict[str, Any]
Condition = Callable[[Mapping[str, Any]], bool]
"""A condition on the options of a stage."""
Path = tuple[str | int, ...]
"""Steps of the key that a random stage draws with: the epoch, and the input it belongs to."""
OpenSource = Callable[[str, Mapping[str, Any]], Indexed]
"""Returns the source of a dataset id, given its options ``fields``, ``unit`` and ``view``; or, with
``scan``, the shape of a scan, the source of what it has for each position of it."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The settings of the stage that makes batches, and of those after it."""

    size: int
    """Rows of a global batch; the most rows if batches differ."""
    last: Last = "keep"
    """What becomes of a last batch that is too short."""
    padding: Padding | None = None
    collate: Callable[[Block], Block] = lambda block: block
    """Pads the rows of a batch; its errors point at the stage."""
    limit: int | None = None
    """Most batches of the pipeline; None for no limit."""
    epoch_size: int | None = None
    """Batches of an epoch; None if an epoch is one pass over the data."""
    epochs: int | None = 1
    """Passes over the data; None for no end."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Everything that building one stage needs."""

    spec: StageSpec
    path: Path
    open_source: OpenSource
    inputs: Sequence[Stage] = ()
    """The stages it combines."""
    inner: Stage | None = None
    """The stage it takes items from; None for a first stage."""

    @property
    def items(self) -> Stage:
        """The stage it takes items from; placement has made sure that there is one."""
        assert self.inner is not None  # noqa: S101 - only first stages have none
        return self.inner

    @property
    def indexed(self) -> Indexed:
        """The stage it takes items from, with random access.

        Raises:
            PipelineError: that stage is sequential.
        """
        if not isinstance(self.inner, Indexed):
            raise self.spec.error(
                "needs random access, but the stage before it is sequential",
                hint="Put it before any filter, scan, or select_many of items of unknown lengths;"
                " or save what comes out of those as a dataset.",
            )
        return self.inner


Make = Callable[[BuildContext], Stage]


@dataclass(frozen=True, slots=True)
class Sizing:
    """The quantities that the cost of a stage depends on."""

    spec: StageSpec
    item_bytes: int
    """Bytes of one item that comes in."""
    length: int | None
    """Number of items that come in; None if unknown or endless."""
    batch: int = 0
    """Most rows of a batch; 0 for a stage of items."""

    @property
    def size(self) -> int:
        """The option ``size``, at most the number of items."""
        size: int = self.spec.options.get("size", 1)
        return size if self.length is None else min(size, max(self.length, 1))


@dataclass(frozen=True, slots=True)
class Epochs:
    """How a stage repeats the data in epochs."""

    option: str
    """Name of the option with the number of epochs, whose None means endless."""
    items_of: Callable[[StageSpec, Indexed, int], Stage] | None = None
    """Returns the items of an epoch, given its number; None if epochs do not differ."""
    when: Condition = lambda _: True
    """Whether a stage with these options repeats the data at all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Options of a stage that the warm-up builds and reads."""

    options: Mapping[str, Any]
    items: int = 8
    """Number of items that come in, with one field ``index`` of int64."""


def never(_options: Mapping[str, Any]) -> bool:
    """The condition that holds for no options."""
    return False


def always(_options: Mapping[str, Any]) -> bool:
    """The condition that holds for all options."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kind of stage."""

    name: str
    options: Mapping[str, Option]
    takes: Takes = "items"
    """The kind of input; a stage that takes nothing begins a list of stages."""
    complete: Callable[[Options, int], None] | None = None
    """Checks options against each other and the number of inputs; fills in derived ones."""
    make: Make | None = None
    """Builds the stage; None if items pass unchanged."""
    make_batches: Callable[[StageSpec, Stage, Path], BucketBatch] | None = None
    """Builds a stage that cuts batches itself; None if batches have a fixed size."""
    shape: Callable[[StageSpec, Schema], Mapping[str, Any]] = lambda _spec, _schema: {}
    """Its settings of the batching of items of a schema: members of ``Batching``."""
    cost: Callable[[Sizing], Cost] = lambda _sizing: Cost()
    """The cost of its tables and of resuming it."""
    note: Callable[[BuildContext, Stage], str | None] = lambda _context, _built: None
    """What people should know of the stage that was built, as the end of a sentence about it."""
    copies: int = 0
    """Blocks of the size of its result that it may hold; 0 if items pass as they are."""
    reads: Callable[[Mapping[str, Any], Demand], Demand] = lambda _options, demand: demand
    """How much it asks of the stage before it, given what is asked of it."""
    pads: bool = False
    """Whether it pads batches."""
    shares: bool = False
    """Whether its inputs divide what is asked of it, rather than each being asked for all."""
    sources: Callable[[Mapping[str, Any]], int] = lambda _: 0
    """Number of datasets it reads."""
    combines: bool = False
    """Whether its inputs are lists of stages."""
    batches: bool = False
    """Whether it makes batches of items."""
    random_access: Condition = never
    """Whether the stage before it must be indexed."""
    beyond_order: str = ""
    """What else to do where it must come before a sequential stage."""
    sequential: Condition = never
    """Whether it is always sequential, even after an indexed stage."""
    reorders: bool = False
    """Whether an item may have another position after it, or get one as the data grows."""
    keeps_sides: bool = False
    """Whether it assigns items to sides by position, so that no stage before it may reorder."""
    draws: Condition = never
    """Whether it draws a number for each item, which its seed and the item's position determine."""
    once: bool = False
    """Whether it may occur only once among the stages of items, and once among those of batches."""
    drops: bool = False
    """Whether it may leave nothing of an item."""
    limit: str | None = None
    """Name of the option that limits the number of items."""
    epochs: Epochs | None = None
    identity: bool = True
    """Whether it can change a batch, and so belongs to the identity of a pipeline."""
    samples: Sequence[Sample] = ()
    """For the warm-up; empty if the stage has no kernels of its own."""

    def makes_epochs(self, options: Mapping[str, Any]) -> bool:
        """Whether a stage with these options repeats the data in epochs."""
        return self.epochs is not None and self.epochs.when(options)
