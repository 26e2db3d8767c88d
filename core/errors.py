"""The one error tree of the engine.

Every error a caller can meet is a class here with a stable ``code``; what a
program must know to react is in attributes, what a person must know is in the
message and the ``hint``.

* CoreError
    * OptionError ``option``: an option has a value it cannot have
    * ReportError ``report``: the wanted reports do not fit the stream or each other
    * InputError ``input``: an auxiliary file (quantiles, event rates, ...) is unusable
    * StateError ``state``: an exported state is malformed or of another stream
    * LimitError ``limit``: honest input, but larger than the caller allows
    * StarvedError ``starved``: a partition stays behind further than may be buffered
    * FormatError ``format``: a file is not what its format says, cut or contradictory
    * AmbiguousFormatError ``format-ambiguous``: several formats fit, or none
    * ShapeError ``shape``: shapes that do not fit the data or each other
    * SelectionError ``selection``: a view asks for what is not there
    * CastingError ``casting``: values that the wanted type cannot hold
    * RepairError ``repair``: an excluded pixel without a good neighbour
    * PipelineError ``pipeline``: a pipeline that cannot be, with its stage and field
    * PositionError ``position``: a position beyond the items there are
    * TransformError ``transform``: a transform failed on an item, which it names
    * StreamError: the bytes are not the loss stream they claim to be
        * EmptyStreamError ``stream-empty``
        * HeaderError ``stream-header``: unknown type bytes, absurd sample count
        * UnsupportedStreamError ``stream-unsupported``: a stream of another stage
        * TruncatedError ``stream-truncated``: the end came inside a header or block
        * IncompleteError ``stream-incomplete``: whole blocks, but fewer than declared
        * ExcessError ``stream-excess``: more than was declared
        * MismatchError ``stream-mismatch``: partitions that do not belong together
        * EventIdError ``event-id``: an event id below 1
        * EventReopenedError ``event-reopened``: an event that had ended comes again
        * EventOrderError ``event-order``: descending ids where order was asked for
        * BlockIdError ``block-id``: an item or summary id below 1
        * BlockRepeatedError ``block-repeated``: an item or summary twice in an event
        * ExposureError ``exposure``: exposure not finite, or negative
        * TerminatorError ``terminator``: a block end with a loss in it
        * SampleRangeError ``sample-range``: sidx below -5 or beyond len_sample
        * SampleRepeatedError ``sample-repeated``: a sidx twice in one block
        * SampleOrderError ``sample-order``: descending sidx
        * LossNotFiniteError ``loss-not-finite``: NaN or infinity
        * LossNegativeError ``loss-negative``
"""

from __future__ import annotations

from typing import Any, ClassVar


class CoreError(Exception):
    """Base of everything the engine raises on purpose.

    Attributes:
        code: stable identifier of the class, for programs.
        offset: byte offset in the stream of the first byte that is wrong, or None.
        event: id of the event the fault lies in, or None.
        block: item, coverage or summary id the fault lies in, or None.
        hint: what to do about it, or None.
        source: name of the stream or file, when the caller gave it one.
    """

    code: ClassVar[str] = "core"

    def __init__(  # noqa: PLR0913 - each is part of what every error can say
        self,
        message: str,
        *,
        offset: int | None = None,
        event: int | None = None,
        block: int | None = None,
        hint: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.event = event
        self.block = block
        self.hint = hint
        self.source = source

    @property
    def message(self) -> str:
        """What is wrong, without the place and the hint."""
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


class OptionError(CoreError):
    """An option has a value it cannot have, or contradicts another."""

    code = "option"


class ReportError(CoreError):
    """The wanted reports do not fit the stream, the inputs or each other."""

    code = "report"


class InputError(CoreError):
    """An auxiliary file cannot be used; ``offset`` is a byte or the message a line."""

    code = "input"


class StateError(CoreError):
    """An exported state is malformed, of another version or of another stream."""

    code = "state"


class PipelineError(CoreError):
    """A pipeline that cannot be.

    Attributes:
        stage: place of the stage it fails at, from 0; None if it is not one stage.
        field: name of what is wrong in it, such as ``size``, or None.
    """

    code = "pipeline"

    def __init__(
        self,
        message: str,
        *,
        stage: int | None = None,
        field: str | None = None,
        **place: Any,  # noqa: ANN401 - what every error can say
    ) -> None:
        super().__init__(message, **place)
        self.stage = stage
        self.field = field


class PositionError(CoreError):
    """A position beyond the items there are."""

    code = "position"


class TransformError(CoreError):
    """A transform failed on an item.

    Attributes:
        position: of the item in the input of the transform, or None.
    """

    code = "transform"

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        **place: Any,  # noqa: ANN401 - what every error can say
    ) -> None:
        super().__init__(message, **place)
        self.position = position


class LimitError(CoreError):
    """Honest input that is larger than the caller allows."""

    code = "limit"


class StarvedError(CoreError):
    """A merge waits for one partition and may not buffer more of the others."""

    code = "starved"


class FormatError(CoreError):
    """A file is not of the format it should be, is damaged, cut, or contradicts another."""

    code = "format"


class AmbiguousFormatError(CoreError):
    """More than one format fits a file, or none does."""

    code = "format-ambiguous"


class ShapeError(CoreError):
    """Shapes, sizes or tile shapes that do not fit the data or each other."""

    code = "shape"


class SelectionError(CoreError):
    """A view asks for frames or pixels that do not exist, or for none."""

    code = "selection"


class CastingError(CoreError):
    """The wanted type cannot hold the values."""

    code = "casting"


class RepairError(CoreError):
    """An excluded pixel has no good neighbour to be repaired from."""

    code = "repair"


class StreamError(CoreError):
    """The bytes are not the loss stream they claim to be."""

    code = "stream"


class EmptyStreamError(StreamError):
    """Not one byte came."""

    code = "stream-empty"


class HeaderError(StreamError):
    """The type bytes or the sample count make no sense."""

    code = "stream-header"


class UnsupportedStreamError(StreamError):
    """A stream of another stage of the model chain, such as cdf."""

    code = "stream-unsupported"


class TruncatedError(StreamError):
    """The stream ended inside its header or inside a block."""

    code = "stream-truncated"


class IncompleteError(StreamError):
    """The stream ended between blocks, but short of what was declared."""

    code = "stream-incomplete"


class ExcessError(StreamError):
    """The stream went on beyond what was declared."""

    code = "stream-excess"


class MismatchError(StreamError):
    """Partitions whose kind, sample count or summary set differ."""

    code = "stream-mismatch"


class EventIdError(StreamError):
    """An event id below 1, which no writer may produce."""

    code = "event-id"


class EventReopenedError(StreamError):
    """An event whose blocks had ended comes again, here or in another partition."""

    code = "event-reopened"


class EventOrderError(StreamError):
    """Event ids descend where the caller asked for event order."""

    code = "event-order"


class BlockIdError(StreamError):
    """An item, coverage or summary id below 1."""

    code = "block-id"


class BlockRepeatedError(StreamError):
    """An item, coverage or summary comes twice in one event."""

    code = "block-repeated"


class ExposureError(StreamError):
    """A summary's exposure is not finite, or negative."""

    code = "exposure"


class TerminatorError(StreamError):
    """The pair that ends a block carries a loss."""

    code = "terminator"


class SampleRangeError(StreamError):
    """A sidx below -5 or beyond the header's len_sample."""

    code = "sample-range"


class SampleRepeatedError(StreamError):
    """A sidx comes twice in one block."""

    code = "sample-repeated"


class SampleOrderError(StreamError):
    """A sidx descends, or a special sidx comes after a sample."""

    code = "sample-order"


class LossNotFiniteError(StreamError):
    """A loss is NaN or infinite."""

    code = "loss-not-finite"


class LossNegativeError(StreamError):
    """A loss is negative."""

    code = "loss-negative"
