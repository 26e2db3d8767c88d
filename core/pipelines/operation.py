"""What a kind of stage is: the row that says everything about it.

A new stage is a module in :mod:`.operations` with a row, and its line in the table there.
Parsing, placement, cost, building and the warm-up ask the row; none of them knows a stage
by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..iterate.base import Indexed, Schema, Stage
from ..iterate.batching import BucketBatch
from .batching import Batching
from .cost import Cost
from .options import Option
from .stage import StageSpec

Takes = Literal["nothing", "items", "batches", "either"]
Options = dict[str, Any]
Condition = Callable[[Mapping[str, Any]], bool]
"""Of the options of a stage."""
Path = tuple[str | int, ...]
"""Of the keys that random stages draw with: the epoch, and the input it is part of."""
OpenSource = Callable[[str, Mapping[str, Any]], Indexed]
"""Gives the source of a dataset id, and of the options ``fields``, ``unit`` and ``view``."""


@dataclass(frozen=True, slots=True)
class Making:
    """What a stage is made from."""

    spec: StageSpec
    path: Path
    open_source: OpenSource
    inputs: Sequence[Stage] = ()
    """What it combines."""
    inner: Stage | None = None
    """What it takes items from."""

    @property
    def items(self) -> Stage:
        """What it takes items from, which there is: placement has been checked."""
        assert self.inner is not None  # noqa: S101 - only first stages take nothing
        return self.inner

    @property
    def indexed(self) -> Indexed:
        """What it takes items from, by position.

        Raises:
            PipelineError: it has no items by position.
        """
        if not isinstance(self.inner, Indexed):
            raise self.spec.error(
                "needs items by position, which what comes before it cannot give",
                hint="Put it before filters, scans and what flattens items of unknown lengths.",
            )
        return self.inner


Make = Callable[[Making], Stage]


@dataclass(frozen=True, slots=True)
class Taken:
    """What the cost of a stage depends on."""

    spec: StageSpec
    item_bytes: int
    """Of the items it takes."""
    length: int | None
    """Number of those; None if not known."""
    batch: int = 0
    """Rows of a batch, at most; 0 for a stage of items."""

    @property
    def size(self) -> int:
        """Its option ``size``, but no more than there are items."""
        size: int = self.spec.options.get("size", 1)
        return size if self.length is None else min(size, max(self.length, 1))


@dataclass(frozen=True, slots=True)
class Epochs:
    """What a stage that says how often the data is gone through does."""

    option: str
    """Says how often; None there means without end."""
    of: Callable[[StageSpec, Indexed, int], Stage] | None = None
    """The items in an epoch, by its number; without, they are the same in each."""
    when: Condition = lambda _: True
    """Whether the stage says it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A stage to build and read once, so that its kernels are compiled."""

    options: Mapping[str, Any]
    items: int = 8
    """How many the stage takes; they are the field ``index``, int64."""


def never(_options: Mapping[str, Any]) -> bool:
    """The condition of what holds for no options."""
    return False


def always(_options: Mapping[str, Any]) -> bool:
    """The condition of what holds for all options."""
    return True


def _free(_taken: Taken) -> Cost:
    return Cost()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kind of stage."""

    name: str
    takes: Takes
    """What comes in: nothing for those a list of stages begins with."""
    options: Mapping[str, Option]
    complete: Callable[[Options, int], None] | None = None
    """Checks options against each other and the number of inputs, and fills them in."""
    make: Make | None = None
    """Makes the stage; without, items pass as they are."""
    make_batches: Callable[[StageSpec, Stage, Path], BucketBatch] | None = None
    """Makes batches that differ in their number of rows; without, they are cut by size."""
    shape: Callable[[Batching, StageSpec, Schema], Batching] | None = None
    """What it does to batches of items of a schema."""
    cost: Callable[[Taken], Cost] = _free
    dataset: str | None = None
    """Option that names the dataset it reads."""
    combines: bool = False
    """Whether it has lists of stages as inputs."""
    batches: bool = False
    """Whether it makes batches of items."""
    random_access: Condition = never
    """Whether what comes in must be indexed."""
    without_access: str | None = None
    """What to do where that cannot be, besides moving the stage."""
    sequential: Condition = never
    """Whether its items come one after the other only, whatever it takes."""
    reorders: bool = False
    """Whether after it an item's position says nothing of the item, or changes as data grows."""
    keeps_sides: bool = False
    """Whether it decides by position, so that nothing before it may reorder."""
    once: bool = False
    """Whether it can stand only once: among the items, and once more among the batches."""
    limit: str | None = None
    """Option that says how many items there are at most."""
    epochs: Epochs | None = None
    identity: bool = True
    """Whether it is part of what a pipeline's batches depend on."""
    samples: Sequence[Sample] = ()
    """For the warm-up; empty for stages without kernels of their own."""

    def makes_epochs(self, options: Mapping[str, Any]) -> bool:
        """Whether a stage with these options says how often the data is gone through."""
        return self.epochs is not None and self.epochs.when(options)
