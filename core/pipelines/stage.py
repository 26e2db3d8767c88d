"""The spec of one stage, and errors that point at it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ..errors import CastingError, OptionError, PipelineError

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
        values = {"op": self.op, **_copied(self.options)}
        if self.inputs:
            values[INPUTS] = [[stage.to_json() for stage in stages] for stages in self.inputs]
        return values


def _copied(options: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(options))
    return copied


def located(spec: StageSpec, make: Callable[[], T]) -> T:
    """Call ``make``, and let its errors of options point at the stage.

    Raises:
        PipelineError: as ``make`` raised it, with the place of the stage; or in place of an
            OptionError or CastingError.
    """
    try:
        return make()
    except PipelineError as error:
        if error.stage is not None:
            raise
        raise spec.error(f"is refused: {error.message}", error.field, error.hint) from error
    except (OptionError, CastingError) as error:
        raise spec.error(f"is refused: {error.message}", None, error.hint) from error
