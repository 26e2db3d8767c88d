"""What a reader of a loss stream accepts, and what it makes of the odd value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..errors import OptionError
from .format import FLOAT_WIDTHS, MAX_BLOCKS, MAX_SAMPLES

NanPolicy = Literal["error", "zero", "drop"]
NegativePolicy = Literal["error", "keep"]
MissingEnd = Literal["error", "accept"]
SampleOrder = Literal["ascending", "any"]
EventOrder = Literal["any", "ascending"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How strict a reader is. The default accepts what a sound model run writes.

    Raises:
        OptionError: a value is not one of those documented.
    """

    float_width: int = 4
    """Bytes of a loss, 4 or 8: the stream does not say."""
    nan: NanPolicy = "error"
    """NaN and infinite losses: refuse, read as 0, or drop the pair (as if absent)."""
    negative: NegativePolicy = "error"
    """Negative losses: refuse or keep."""
    sample_order: SampleOrder = "ascending"
    """Order of sidx in a block: special ones, then ascending samples; or any."""
    event_order: EventOrder = "any"
    """Whether event ids must ascend."""
    missing_end: MissingEnd = "error"
    """A stream that ends after a whole pair of its last block, without that block's end:
    refuse it as truncated, or take the block as it is and report ``unterminated``."""
    max_samples: int = MAX_SAMPLES
    """Largest len_sample accepted; memory per stream is about 40 bytes times this."""
    max_blocks: int = MAX_BLOCKS
    """Most blocks of one event, at least: about 20 bytes are kept for each, and the
    limit is looked at when memory for four times as many is wanted."""

    def __post_init__(self) -> None:
        choices: dict[str, tuple[Any, ...]] = {
            "float_width": FLOAT_WIDTHS,
            "nan": get_args(NanPolicy),
            "negative": get_args(NegativePolicy),
            "sample_order": get_args(SampleOrder),
            "event_order": get_args(EventOrder),
            "missing_end": get_args(MissingEnd),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                text = ", ".join(str(choice) for choice in allowed)
                raise OptionError(f"{name} is {value!r}, but must be one of {text}")
        for name in ("max_samples", "max_blocks"):
            if not 1 <= getattr(self, name) < 2**31:
                raise OptionError(f"{name} is {getattr(self, name)}, but must be 1 to 2147483647")

    def to_json(self) -> dict[str, Any]:
        """The policy as plain values.

        ``missing_end`` is left out where it is the default, as in earlier releases, so that
        their states go on being of the same policy.
        """
        values = asdict(self)
        if self.missing_end == "error":
            del values["missing_end"]
        return values
