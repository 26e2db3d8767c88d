"""The one error tree of the engine.

Every error a caller can meet is a class here with a stable ``code``. Attributes tell a
program how to react; the message and the ``hint`` tell a person. The service shows the
first paragraph of each docstring at ``/problems/<code>``.

* CoreError
    * OptionError ``option``: an option has an invalid value
    * ReportError ``report``: the requested reports do not fit the stream or each other
    * InputError ``input``: an auxiliary file (quantiles, event rates, ...) is unusable
    * StateError ``state``: an exported state is malformed or belongs to another stream
    * LimitError ``limit``: valid input, but larger than the caller allows
    * StarvedError ``starved``: a partition lags further than the buffer allows
    * FormatError ``format``: a file violates its format, is cut or contradictory
    * AmbiguousFormatError ``format-ambiguous``: several formats fit, or none
    * ShapeError ``shape``: shapes that do not fit the data or each other
    * SelectionError ``selection``: a view selects frames or pixels that do not exist
    * CastingError ``casting``: values that the requested type cannot hold
    * RepairError ``repair``: an excluded pixel without a valid neighbour
    * PipelineError ``pipeline``: an invalid pipeline, with its stage and field
    * PositionError ``position``: a position past the last item
    * TransformError ``transform``: a transform failed on an item
    * WorkStoppedError ``stopped``: the work was stopped, whatever its input
        * BudgetExceededError ``budget-exceeded``: it needs more than a request may use
        * CancelledError ``cancelled``: nobody waits for the result any more
    * StreamError: the bytes are not the loss stream they claim to be
        * EmptyStreamError ``stream-empty``
        * HeaderError ``stream-header``: unknown type bytes, implausible sample count
        * UnsupportedStreamError ``stream-unsupported``: a stream of another stage
        * TruncatedError ``stream-truncated``: the stream ends inside a header or block
        * IncompleteError ``stream-incomplete``: whole blocks, but fewer than declared
        * ExcessError ``stream-excess``: more than was declared
        * ConcatenatedError ``stream-concatenated``: a second stream follows in the same bytes
        * MismatchError ``stream-mismatch``: partitions that do not belong together
        * EventIdError ``event-id``: an event id below 1
        * EventReopenedError ``event-reopened``: an event that had ended appears again
        * EventOrderError ``event-order``: descending ids where order was requested
        * BlockIdError ``block-id``: an item or summary id below 1
        * BlockRepeatedError ``block-repeated``: an item or summary twice in an event
        * ItemUnknownError ``item-unknown``: an item without a summary in the xref
        * ExposureError ``exposure``: exposure not finite, or negative
        * TerminatorError ``terminator``: the pair that ends a block has a loss
        * SampleRangeError ``sample-range``: sidx below -5 or beyond len_sample
        * SampleRepeatedError ``sample-repeated``: a sidx twice in one block
        * SampleOrderError ``sample-order``: descending sidx
        * LossNotFiniteError ``loss-not-finite``: NaN or infinity
        * LossNegativeError ``loss-negative``
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar

_LONGEST = 80
"""Characters of a name that are compared: names come from anybody."""


def shown(value: object) -> str:
    """Return a JSON value for a message, shortened: callers wrote null and true, not None."""
    is_word = value is None or isinstance(value, bool)
    return json.dumps(value) if is_word else f"{value!r:.80}"


def names_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that is not known: the nearest one, and all of them."""
    names = list(known)
    lowered = {each.lower(): each for each in names}
    word = name[:_LONGEST].lower()
    nearest = get_close_matches(word, lowered, 1) or [n for n in lowered if n in word.split("_")]
    guess = f"Did you mean {lowered[nearest[0]]}? " if nearest else ""
    return f"{guess}Use {', '.join(names)}"


class CoreError(Exception):
    """Base of everything the engine raises on purpose.

    Attributes:
        code: stable identifier of the class, for programs.
        offset: byte offset in the stream of the first byte that is wrong, or None.
        event: id of the event the fault lies in, or None.
        block: id of the item, coverage or summary the fault lies in, or None.
        hint: how to fix it, or None.
        source: name of the stream or file, when the caller gave it one.
        stage: index of the faulty stage of a pipeline, from 0; None if no single one is at fault.
        field: name of its faulty option, such as ``size``, or None.
    """

    code: ClassVar[str] = "core"

    def __init_subclass__(cls, code: str = "") -> None:
        super().__init_subclass__()
        cls.code = code or cls.code

    def __init__(  # noqa: PLR0913 - every error can have all of them
        self,
        message: str,
        *,
        offset: int | None = None,
        event: int | None = None,
        block: int | None = None,
        hint: str | None = None,
        source: str | None = None,
        stage: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.event = event
        self.block = block
        self.hint = hint
        self.source = source
        self.stage = stage
        self.field = field

    @property
    def message(self) -> str:
        """The message without location and hint."""
        return str(self.args[0])

    def __str__(self) -> str:
        place = []
        if self.offset is not None:
            place.append(f"byte {self.offset}")
        if self.event is not None:
            place.append(f"event {self.event}")
        if self.block is not None:
            place.append(f"item or summary {self.block}")
        text = self.message
        if self.source is not None:
            text = f"{self.source}: {text}"
        if place:
            text = f"{text} (at {', '.join(place)})"
        if self.hint is not None:
            text = f"{text}. {self.hint}"
        return text


class OptionError(CoreError, code="option"):
    """An option has an invalid value, or contradicts another option."""


class ReportError(CoreError, code="report"):
    """The requested reports do not fit the stream, the inputs or each other.

    Attributes:
        inputs: names of inputs that a report needs and that are not there; None if that is not it.
        option: name of the input or option that no report takes; None if that is not it.
    """

    def __init__(
        self,
        message: str,
        *,
        inputs: Sequence[str] | None = None,
        option: str | None = None,
        **place: Any,  # noqa: ANN401 - of all
    ) -> None:
        super().__init__(message, **place)
        self.inputs = None if inputs is None else list(inputs)
        self.option = option


class InputError(CoreError, code="input"):
    """An auxiliary file is malformed or inconsistent.

    ``offset`` is a byte of the file; for csv the message names the line.

    Attributes:
        parameter: the caller's argument that is at fault rather than the file, or None.
    """

    def __init__(self, message: str, *, parameter: str | None = None, **place: Any) -> None:  # noqa: ANN401 - of all
        super().__init__(message, **place)
        self.parameter = parameter


class StateError(CoreError, code="state"):
    """The exported state is malformed, or belongs to another version or stream."""


class PipelineError(CoreError, code="pipeline"):
    """The pipeline is invalid; the problem names the stage and the field."""


class PositionError(CoreError, code="position"):
    """The position lies past the last item."""


class TransformError(CoreError, code="transform"):
    """A transform failed on an item.

    Attributes:
        position: index of the item in the input of the transform, or None.
    """

    def __init__(self, message: str, *, position: int | None = None, **place: Any) -> None:  # noqa: ANN401 - of all
        super().__init__(message, **place)
        self.position = position


class WorkStoppedError(CoreError, code="stopped"):
    """The work was stopped before its end, whatever its input."""


class BudgetExceededError(WorkStoppedError, code="budget-exceeded"):
    """The request needs more memory, CPU time or items than a request may use.

    A stream ends before the step that exceeds a budget, and its token continues there; the
    problem means that even a whole budget does not suffice for this one step. A retry fails in
    the same way.

    Attributes:
        stage_name: the stage of the work that exceeded the budget, such as ``pad``.
        budget: ``memory``, ``cpu`` or ``items``.
        limit: the bound, in bytes, seconds or items.
        setting: name of the variable that sets the bound, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        stage_name: str = "",
        budget: str = "",
        limit: float = 0,
        setting: str | None = None,
        **place: Any,  # noqa: ANN401 - those of every error
    ) -> None:
        super().__init__(message, **place)
        self.stage_name = stage_name
        self.budget = budget
        self.limit = limit
        self.setting = setting


class CancelledError(WorkStoppedError, code="cancelled"):
    """The work was cancelled, since nobody waits for its result or the server stops."""


class LimitError(CoreError, code="limit"):
    """The input is valid, but larger than the limits allow.

    Attributes:
        limit: name of the limit.
        allowed: the largest value.
    """

    def __init__(self, message: str, *, limit: str, allowed: float, **place: Any) -> None:  # noqa: ANN401 - of all
        super().__init__(message, **place)
        self.limit, self.allowed = limit, allowed

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), limit=self.limit, allowed=self.allowed)
        return make, self.args, self.__dict__


class StarvedError(CoreError, code="starved"):
    """A merge waits for one partition and cannot buffer more rows of the others."""


class FormatError(CoreError, code="format"):
    """A file violates its format, is damaged or cut, or contradicts another file."""


class AmbiguousFormatError(CoreError, code="format-ambiguous"):
    """Several formats fit the files, or none does."""


class ShapeError(CoreError, code="shape"):
    """Shapes or sizes do not fit the data or each other."""


class SelectionError(CoreError, code="selection"):
    """The view selects frames or pixels that do not exist, or none at all."""


class CastingError(CoreError, code="casting"):
    """The requested type cannot hold the values."""


class RepairError(CoreError, code="repair"):
    """An excluded pixel has no valid neighbour to be repaired from."""


class StreamError(CoreError, code="stream"):
    """The bytes are not the loss stream they claim to be."""


class EmptyStreamError(StreamError, code="stream-empty"):
    """The stream is empty."""


class HeaderError(StreamError, code="stream-header"):
    """The header's type bytes are unknown, or its sample count is implausible."""


class UnsupportedStreamError(StreamError, code="stream-unsupported"):
    """The stream belongs to another stage of the model chain, such as cdf."""


class TruncatedError(StreamError, code="stream-truncated"):
    """The stream ends inside its header or inside a block."""


class IncompleteError(StreamError, code="stream-incomplete"):
    """The stream ends between two blocks, but is shorter than declared."""


class ExcessError(StreamError, code="stream-excess"):
    """The stream is longer than declared."""


class ConcatenatedError(StreamError, code="stream-concatenated"):
    """Where a block should be, a second stream begins: files were joined."""


class MismatchError(StreamError, code="stream-mismatch"):
    """The partitions differ in kind, sample count or summary set."""


class EventIdError(StreamError, code="event-id"):
    """An event id is below 1."""


class EventReopenedError(StreamError, code="event-reopened"):
    """An event that had ended appears again, here or in another partition."""


class EventOrderError(StreamError, code="event-order"):
    """Event ids descend although event order was requested."""


class BlockIdError(StreamError, code="block-id"):
    """An item, coverage or summary id is below 1."""


class BlockRepeatedError(StreamError, code="block-repeated"):
    """An item, coverage or summary appears twice in one event."""


class ItemUnknownError(StreamError, code="item-unknown"):
    """The summary xref gives an item of the stream no summary of a requested set."""


class ExposureError(StreamError, code="exposure"):
    """The exposure of a summary is negative or not finite."""


class TerminatorError(StreamError, code="terminator"):
    """The pair that ends a block has a loss."""


class SampleRangeError(StreamError, code="sample-range"):
    """A sidx is below -5 or above the header's len_sample."""


class SampleRepeatedError(StreamError, code="sample-repeated"):
    """A sidx appears twice in one block."""


class SampleOrderError(StreamError, code="sample-order"):
    """The sidx of a block descend, or a special sidx follows a sample."""


class LossNotFiniteError(StreamError, code="loss-not-finite"):
    """A loss is NaN or infinite."""


class LossNegativeError(StreamError, code="loss-negative"):
    """A loss is negative; the option negative=keep takes such losses."""
