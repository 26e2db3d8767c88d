"""What every format of items gives: sources of them, and what they depend on.

The formats are :mod:`.loss_items`, :mod:`.table_items` and :mod:`.line_items`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from core.iterate.base import Indexed, Schema


class Items(Protocol):
    """The items of a dataset's files; any thread may ask, also at once."""

    @property
    def units(self) -> tuple[str, ...]:
        """What an item may be, the default first."""

    def schema(self, unit: str) -> Schema:
        """All fields of such items."""

    def count(self, unit: str) -> int:
        """How many there are."""

    def source(self, unit: str, fields: Sequence[str] | None) -> Indexed:
        """The items, with these fields or all.

        Raises:
            OptionError: a field is not there.
        """

    def stops(self, unit: str, count: int) -> tuple[int, ...]:
        """Bytes of each of the first files that the first items depend on."""

    def describe(self) -> Mapping[str, Any]:
        """What else is known, as JSON values."""
