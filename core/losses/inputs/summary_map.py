"""Summary maps: the building each item, or each output of the financial module, is of.

From csv with the columns ``loc_id``, ``building_id`` and ``item_id`` (gul) or ``output_id`` (fm)
among any others. The peer counts affected risks, sidx -4, by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ...errors import InputError
from ...sorting import numbered, order_of
from .rows import Data
from .text_tables import decode_texts, encode_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

MapColumn = Literal["item_id", "output_id"]
_COLUMNS: Final[tuple[MapColumn, ...]] = ("output_id", "item_id")


@dataclass(frozen=True, slots=True, eq=False)
class SummaryMap:
    """Locations and buildings of items or outputs, in the order of the file."""

    ids: NDArray[np.int32]
    """Items or outputs, at least 1 and unique; shape (n,)."""
    loc_ids: NDArray[np.int32]
    """Shape (n,)."""
    building_ids: NDArray[np.int32]
    """Buildings of a location, shape (n,)."""
    id_column: MapColumn
    """What ``ids`` are."""

    def risks(self) -> NDArray[np.int64]:
        """The risk of each item or output, from 0: a building of a location; shape (n,)."""
        keys = self.loc_ids.astype(np.int64) << 32 | self.building_ids
        return numbered(keys, "summary_map")[1]


def parse_summary_map(data: Data, source: str | None = None) -> SummaryMap:
    """Read a summary map.

    Args:
        data: the whole file, or its columns; of both ids, outputs count.
        source: name of the file, for messages.

    Raises:
        InputError: it is not csv, is empty, lacks a column, has an id out of range, or an item
            or output in two locations or buildings.
    """
    table = decode_texts(data, source, (*_COLUMNS, "loc_id", "building_id"))
    names = {name.lower() for name in table.names}
    column = next((name for name in _COLUMNS if name in names), None)
    if column is None:
        hint = f"The columns are {','.join(table.names)[:200]}"
        raise InputError("no column is named item_id or output_id", hint=hint, source=source)
    ids = table.integers(column, 1)
    loc_ids, building_ids = table.integers("loc_id", 0), table.integers("building_id", 0)
    # The peer writes an output once for each item it comes from.
    ordered, order = order_of(ids, "summary_map")
    first = np.append(True, ordered[1:] != ordered[:-1])
    places = (loc_ids << 32 | building_ids)[order]
    moved = np.append(False, places[1:] != places[:-1]) & ~first
    if moved.any():
        row = int(order[moved].min())
        raise table.refuse(row, f"{column} {ids[row]} is in another building before")
    distinct = np.sort(order[first])
    return SummaryMap(
        ids[distinct].astype(np.int32),
        loc_ids[distinct].astype(np.int32),
        building_ids[distinct].astype(np.int32),
        column,
    )


def encode_summary_map(summary_map: SummaryMap) -> bytes:
    """Write a summary map as csv with the three columns that matter."""
    columns = (summary_map.loc_ids, summary_map.ids, summary_map.building_ids)
    names = ("loc_id", summary_map.id_column, "building_id")
    return encode_texts(names, [column.astype(np.str_) for column in columns])
