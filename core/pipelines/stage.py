"""One stage of a pipeline as its spec has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ..errors import CastingError, OptionError, PipelineError

T = TypeVar("T")

INPUTS: Final = "inputs"
"""The member of a stage's JSON that lists the stages it combines."""


@dataclass(frozen=True, slots=True, eq=False)
class StageSpec:
    """One stage, checked by itself, every option filled in."""

    op: str
    options: Mapping[str, Any]
    inputs: tuple[tuple[StageSpec, ...], ...]
    place: int
    """In the outermost list of stages, from 0; inputs have that of the stage they feed."""
    path: str
    """What precedes the name of one of its fields: ``inputs[0][2].``, or nothing."""

    def error(
        self, message: str, field: str | None = None, hint: str | None = None
    ) -> PipelineError:
        """An error that points at this stage, and at one of its fields."""
        where = f"{self.path}{field}" if field is not None else self.path.rstrip(".") or None
        named = f"{self.op}: {field}" if field is not None else self.op
        return PipelineError(f"{named} {message}", stage=self.place, field=where, hint=hint)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with every option."""
        values = {"op": self.op, **_copied(self.options)}
        if self.inputs:
            values[INPUTS] = [[stage.to_json() for stage in stages] for stages in self.inputs]
        return values


def _copied(options: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(options))
    return copied


def located(spec: StageSpec, make: Callable[[], T]) -> T:
    """The result of ``make``; an error of options that says no place points at the stage.

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
