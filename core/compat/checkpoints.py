"""Checkpoints of the compatible packages: dicts of JSON values that are checked when they return.

A checkpoint names what it is of, and its version, so that no iterator takes that of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .errors import CheckpointError

VERSION = 1
MAX_COUNT = 2**63 - 1


class Saved:
    """The fields of a checkpoint, checked as they are read."""

    def __init__(  # noqa: PLR0913 - all that a checkpoint can differ in
        self,
        name: str,
        fields: tuple[str, ...],
        checkpoint: object,
        arguments: Mapping[str, Any] | None = None,
        optional: tuple[str, ...] = (),
        *,
        kind: str = "iterator",
    ) -> None:
        """Check the name, the version, the arguments and the names of the fields.

        Args:
            name: of the iterator.
            fields: the fields its checkpoint has.
            checkpoint: any value.
            arguments: of the iterator; the checkpoint must have the same.
            optional: fields that checkpoints of earlier releases lack, as they lack
                arguments.
            kind: the field that has the name.

        Raises:
            CheckpointError: it is malformed, or of another iterator, version or arguments.
        """
        arguments = arguments or {}
        self._name = name
        if not isinstance(checkpoint, Mapping) or kind not in checkpoint:
            found = (
                "a dict without it" if isinstance(checkpoint, Mapping) else f"{checkpoint!r:.60}"
            )
            raise CheckpointError(
                f"a checkpoint of {name} is a dict with the field {kind!r}, not {found}",
                hint="Pass what getstate returned, here or in another process.",
            )
        if checkpoint[kind] != name:
            raise CheckpointError(f"a checkpoint of {checkpoint[kind]!r} was given to {name}")
        if checkpoint.get("version") != VERSION:
            raise CheckpointError(
                f"a checkpoint of {name} has version {checkpoint.get('version')!r}",
                hint=f"This release reads version {VERSION}.",
            )
        required = {kind, "version", *fields}
        if not required <= set(checkpoint) <= required | {*arguments, *optional}:
            raise CheckpointError(
                f"a checkpoint of {name} has the fields {sorted(map(str, checkpoint))}, not"
                f" {sorted(required)}"
            )
        for argument, value in arguments.items():
            saved = checkpoint.get(argument, value)
            if type(saved) is not type(value) or saved != value:
                raise CheckpointError(
                    f"a checkpoint of {name} has {argument} {saved!r}, but here it is {value!r}"
                )
        self._values = checkpoint

    def get(self, field: str, default: object) -> Any:  # noqa: ANN401 - opaque
        """An optional field, or the default."""
        return self._values.get(field, default)

    def __getitem__(self, field: str) -> Any:  # noqa: ANN401 - opaque
        return self._values[field]

    def count(self, field: str, limit: int = MAX_COUNT) -> int:
        """An integer field.

        Raises:
            CheckpointError: it is not an integer from 0 to ``limit``.
        """
        return whole(self._values[field], f"{field} in a checkpoint of {self._name}", limit)

    def states(self, field: str, count: int) -> list[Any]:
        """A field that lists states.

        Raises:
            CheckpointError: it is not a list of ``count`` states.
        """
        values = self._values[field]
        if not isinstance(values, list | tuple) or len(values) != count:
            raise CheckpointError(f"a checkpoint of {self._name} needs {count} {field}")
        return list(values)


class _Beginning(Saved):
    """What is saved of an iterator that begins: zeros, and no states."""

    def __init__(self) -> None:
        self._values = {}

    def __getitem__(self, field: str) -> Any:  # noqa: ANN401 - opaque
        return None

    def count(self, field: str, limit: int = MAX_COUNT) -> int:
        """Return 0."""
        del field, limit
        return 0

    def states(self, field: str, count: int) -> list[Any]:
        """Return None for each, the state of a source that begins."""
        del field
        return [None] * count


BEGINNING: Final[Saved] = _Beginning()


def whole(value: object, label: str, limit: int = MAX_COUNT) -> int:
    """Check an integer of a checkpoint.

    Raises:
        CheckpointError: it is not an integer from 0 to ``limit``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise CheckpointError(f"{label} is {value!r}, not an integer from 0 to {limit}")
    return value
