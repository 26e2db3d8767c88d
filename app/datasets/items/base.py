"""The interface of item formats: sources of items, and the bytes that items depend on.

Formats are :mod:`.losses` (stored loss streams), :mod:`.tables` (Parquet and Arrow) and
:mod:`.lines` (text).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from core.iterate.base import Indexed, Schema


class Items(Protocol):
    """The items in the files of a dataset; several threads may read at once."""

    @property
    def units(self) -> tuple[str, ...]:
        """What an item can be, such as an event or a block; the default first."""

    def schema(self, unit: str) -> Schema:
        """Return all fields of an item."""

    def count(self, unit: str) -> int:
        """Return the number of items."""

    def source(self, unit: str, fields: Sequence[str] | None) -> Indexed:
        """Return a source of the items.

        Args:
            unit: what an item is.
            fields: names of the requested fields; None for all.

        Raises:
            OptionError: there is no such field.
        """

    def stops(self, unit: str, count: int) -> tuple[int, ...]:
        """Return the leading bytes of each file that the first ``count`` items depend on.

        Later files, which these items do not need, are left out.
        """

    def describe(self) -> Mapping[str, Any]:
        """Return further metadata, as JSON values."""
