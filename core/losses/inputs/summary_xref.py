"""Summary xrefs: the summary each item, or each output of the financial module, belongs to.

From csv (``item_id,summary_id,summaryset_id`` for gul, ``output,…`` for fm) or packed (i4, i4, i4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...slices import slices
from ...sorting import distinct
from .rows import Data, Form, decode_rows, encode_rows

IdColumn = Literal["item_id", "output"]


def _layout(ids: str, dtype: str) -> np.dtype[np.void]:
    return np.dtype([(ids, dtype), ("summary_id", dtype), ("summaryset_id", dtype)])


_CSV: Final = (_layout("item_id", "<i8"), _layout("output", "<i8"))
_BIN: Final = _layout("item_id", "<i4")


@dataclass(frozen=True, slots=True, eq=False)
class SummaryXref:
    """Summaries of items or outputs, in the order of the file."""

    ids: NDArray[np.int32]
    """Items or outputs, at least 1; shape (n,)."""
    summary_ids: NDArray[np.int32]
    """At least 1; shape (n,)."""
    set_ids: NDArray[np.int32]
    """At least 1; shape (n,)."""
    id_column: IdColumn | None
    """What ``ids`` are, if the file tells: a packed one does not."""

    @property
    def sets(self) -> NDArray[np.int32]:
        """The summary sets, ascending."""
        return distinct(self.set_ids, "input")[0].astype(np.int32)


def parse_summary_xref(data: Data, source: str | None = None) -> SummaryXref:
    """Read a summary xref of items or outputs.

    Args:
        data: the whole file, or its columns; csv without a header may be of either kind.
        source: name of the file, for messages.

    Raises:
        InputError: the file is of another form or empty, has an id below 1, or an item or
            output twice in one set.
    """
    rows = decode_rows(data, _CSV, _BIN, source)
    column: IdColumn = "output" if "output" in rows.names else "item_id"
    ids = rows.ids(column)
    summary_ids = rows.ids("summary_id")
    set_ids = rows.ids("summaryset_id")
    keys = np.empty(len(ids), np.int64)
    for a, b in slices(len(ids), "input"):
        keys[a:b] = set_ids[a:b].astype(np.int64) << 32 | ids[a:b]
    rows.require_unique(keys, column, ", for the same set")
    return SummaryXref(ids, summary_ids, set_ids, column if rows.origin.titled else None)


def encode_summary_xref(xref: SummaryXref, form: Form) -> bytes:
    """Write a summary xref as the peer's file of this form; csv of items if it is not known."""
    rows = np.empty(len(xref.ids), _layout(xref.id_column or "item_id", "<i4"))
    for name, values in zip(
        rows.dtype.names or (), (xref.ids, xref.summary_ids, xref.set_ids), strict=True
    ):
        rows[name] = values
    return encode_rows(rows, form)
