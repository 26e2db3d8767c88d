"""Summary info: what each summary is, as columns to join to the rows of reports.

From csv with the column ``summary_id`` and any others, such as ``LocNumber`` and ``tiv``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ...errors import InputError
from .rows import Data
from .text_tables import decode_texts, encode_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_ID: Final = "summary_id"


@dataclass(frozen=True, slots=True, eq=False)
class SummaryInfo:
    """Descriptions of summaries, by ascending summary."""

    summary_ids: NDArray[np.int32]
    """Ascending and unique, at least 1; shape (n,)."""
    columns: Mapping[str, NDArray[np.str_]]
    """Texts as in the file, by the name of their column and in its order; shape (n,) each."""


def parse_summary_info(data: Data, source: str | None = None) -> SummaryInfo:
    """Read what summaries are.

    Args:
        data: the whole file, or its columns.
        source: name of the file, for messages.

    Raises:
        InputError: it is not csv, is empty, has no column ``summary_id`` or only that, a column
            twice, or a summary below 1 or twice.
    """
    table = decode_texts(data, source)
    ids = table.integers(_ID, 1)
    table.require_unique(ids, _ID)
    for name in table.names:
        table.column(name)
    order = np.argsort(ids)
    columns = {
        name: table.columns[i][order] for i, name in enumerate(table.names) if name.lower() != _ID
    }
    if not columns:
        hint = "Add a column that describes them"
        raise InputError("summaries have no column but their id", hint=hint, source=source)
    return SummaryInfo(ids[order].astype(np.int32), columns)


def encode_summary_info(info: SummaryInfo) -> bytes:
    """Write what summaries are as csv, which is their only form."""
    names = (_ID, *info.columns)
    return encode_texts(names, [info.summary_ids.astype(np.str_), *info.columns.values()])
