"""Auxiliary files on disk: csv and packed ones as bytes, parquet as columns."""

from __future__ import annotations

from core.errors import InputError
from core.losses.inputs import Columns, Data

from .sources import read_file

_PARQUET = b"PAR1"


def read_input(path: str) -> Data:
    """Read an auxiliary file, whose form its content tells.

    Args:
        path: of the file, or ``-`` for standard input.

    Returns:
        The bytes of csv or packed records, or the columns of a parquet table.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    data = read_file(path)
    return _columns(data, path) if data.startswith(_PARQUET) else data


def _columns(data: bytes, source: str) -> Columns:
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and few inputs are parquet
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    hint = "It was read as parquet, because it begins with PAR1"
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as e:
        message = f"the parquet file is damaged: {e}"
        raise InputError(message, hint=hint, source=source) from e
    for name in table.column_names:
        if table.column(name).null_count:
            raise InputError(f"column {name} has missing values", hint=hint, source=source)
    return {name: table.column(name).to_numpy() for name in table.column_names}
