"""Whole tables of reports, as numpy arrays and as what other libraries make of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..transport.frames import Rows


@dataclass(frozen=True, slots=True, eq=False)
class ReportTable:
    """All rows of one report.

    Attributes:
        report: its name.
        rows: structured array, shape (n,), in the order of the service.
        summary_set: of a stream of items; None of other streams.
    """

    report: str
    rows: Rows
    summary_set: int | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def columns(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """The columns by name, each contiguous, shape (n,)."""
        return {name: np.ascontiguousarray(self.rows[name]) for name in self.rows.dtype.names or ()}

    def to_arrow(self) -> Any:  # noqa: ANN401 - the library is imported when it is asked for
        """A ``pyarrow.Table``.

        Raises:
            ImportError: pyarrow is not installed.
        """
        return import_module("pyarrow").table(self.columns())

    def to_pandas(self) -> Any:  # noqa: ANN401 - as above
        """A ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return import_module("pandas").DataFrame(self.columns())

    def to_polars(self) -> Any:  # noqa: ANN401 - as above
        """A ``polars.DataFrame``.

        Raises:
            ImportError: polars is not installed.
        """
        return import_module("polars").DataFrame(self.columns())
