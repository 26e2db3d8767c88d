"""Caffe2's schemas and records: named fields, which may be nested structures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .errors import ContractError


class Field(ABC):
    """Schema of a record or of a part of one."""

    @abstractmethod
    def field_names(self) -> list[str]:
        """Names of its scalars, ``outer:inner`` for nested ones."""

    @abstractmethod
    def field_types(self) -> list[np.dtype[Any]]:
        """Dtypes of its scalars."""

    def has_blobs(self) -> bool:
        """Whether it holds values; only a :class:`Record` does."""
        return False

    def field_blobs(self) -> list[Any]:
        """The values of its scalars, in order.

        Raises:
            ContractError: it is a schema without values.
        """
        raise ContractError("Value is not set for this field.")

    @abstractmethod
    def assemble(self, values: Iterator[Any]) -> Any:  # noqa: ANN401 - values are anything
        """Build a value of this schema from the values of its scalars, in order."""


class Scalar(Field):
    """One value."""

    def __init__(self, dtype: Any) -> None:  # noqa: ANN401 - as numpy takes it
        self.dtype = np.dtype(dtype)

    def field_names(self) -> list[str]:
        """One empty name."""
        return [""]

    def field_types(self) -> list[np.dtype[Any]]:
        """Return the dtype, as the only one."""
        return [self.dtype]

    def assemble(self, values: Iterator[Any]) -> Any:  # noqa: ANN401 - values are anything
        """The next value."""
        return next(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"Scalar({self.dtype.name})"


class Struct(Field):
    """Named fields, in order.

    Args:
        fields: pairs of a name and a Field or dtype.

    Raises:
        ContractError: a name occurs twice, also as ``outer:inner`` of a nested structure.
    """

    def __init__(self, *fields: tuple[str, Any]) -> None:
        self.fields = {
            name: field if isinstance(field, Field) else Scalar(field) for name, field in fields
        }
        names = self.field_names()
        if len(self.fields) != len(fields) or len(set(names)) != len(names):
            raise ContractError("a name comes twice in a schema")

    def __getitem__(self, name: str) -> Field:
        return self.fields[name]

    def field_names(self) -> list[str]:
        """Names of its scalars."""
        return [
            f"{name}:{inner}" if inner else name
            for name, field in self.fields.items()
            for inner in field.field_names()
        ]

    def field_types(self) -> list[np.dtype[Any]]:
        """Dtypes of its scalars."""
        return [dtype for field in self.fields.values() for dtype in field.field_types()]

    def assemble(self, values: Iterator[Any]) -> dict[str, Any]:
        """A dict by name."""
        return {name: field.assemble(values) for name, field in self.fields.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and list(self.fields.items()) == list(other.fields.items())

    def __hash__(self) -> int:
        return hash(tuple(self.fields.items()))

    def __repr__(self) -> str:
        parts = (f"({name!r}, {field!r})" for name, field in self.fields.items())
        return f"Struct({', '.join(parts)})"


class Record(Field):
    """Values with their schema; a field itself, as in Caffe2.

    ``record["name"]`` is a value, or a dict if the schema has a structure there.
    """

    def __init__(self, schema: Field, values: Sequence[Any]) -> None:
        """Combine a schema and the values of its scalars.

        Raises:
            ContractError: the number of values is not that of the scalars of the schema.
        """
        expected = len(schema.field_names())
        if len(values) != expected:
            raise ContractError(
                f"Values must have {expected} element{'s' * (expected != 1)}, got {len(values)}",
                hint=f"The fields are {schema.field_names()}.",
            )
        self.schema = schema
        self.values = tuple(values)

    def field_names(self) -> list[str]:
        """Names of the scalars of its schema."""
        return self.schema.field_names()

    def field_types(self) -> list[np.dtype[Any]]:
        """Dtypes of the scalars of its schema."""
        return self.schema.field_types()

    def has_blobs(self) -> bool:
        """True: a record holds values."""
        return True

    def field_blobs(self) -> list[Any]:
        """The values of its scalars, in order."""
        return list(self.values)

    def assemble(self, values: Iterator[Any]) -> Any:  # noqa: ANN401 - values are anything
        """Build a value of its schema from other values."""
        return self.schema.assemble(values)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - values are anything
        return self.schema.assemble(iter(self.values))[name]

    def __repr__(self) -> str:
        return f"Record({self.schema.assemble(iter(self.values))!r})"


def from_blob_list(
    schema: Field, values: Sequence[Any], throw_on_type_mismatch: bool = False
) -> Record:
    """Combine a schema and the values of its scalars into a record.

    Args:
        schema: of the record; of a :class:`Record`, only the schema is used.
        values: in the order of ``schema.field_names()``.
        throw_on_type_mismatch: require arrays of the dtypes of the scalars.

    Raises:
        ContractError: ``schema`` is not a Field, the number of values is not that of its
            scalars, or a value is of another type.
    """
    if not isinstance(schema, Field):
        raise ContractError("Argument `schema` must be a Field.")
    record = Record(schema.schema if isinstance(schema, Record) else schema, values)
    if throw_on_type_mismatch:
        for dtype, value in zip(record.field_types(), values, strict=True):
            if not isinstance(value, np.ndarray):
                raise ContractError(f"Got {value!r}", hint="An array was expected.")
            if value.dtype.base != dtype.base:
                raise ContractError(f"Expected {dtype.base}, got {value.dtype.base}")
    return record
