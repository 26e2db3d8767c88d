"""Auxiliary files by name: what parses each, from bytes or columns; and files on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.errors import InputError
from core.losses.inputs import (
    Columns,
    Data,
    parse_event_rates,
    parse_occurrence,
    parse_periods,
    parse_quantiles,
    parse_return_periods,
    parse_summary_info,
    parse_summary_map,
    parse_summary_xref,
)

from .sources import read_file

Parser = Callable[[Data, int | None, str | None], Any]
"""Takes (content, number of periods if it is known, name of the file for messages)."""


def _unaware_of_periods(parse: Callable[[Data, str | None], Any]) -> Parser:
    return lambda data, _periods, source: parse(data, source)


PARSERS: Mapping[str, Parser] = {
    "quantiles": _unaware_of_periods(parse_quantiles),
    "event_rates": _unaware_of_periods(parse_event_rates),
    "occurrence": parse_occurrence,
    "periods": parse_periods,
    "return_periods": _unaware_of_periods(parse_return_periods),
    "summary_xref": _unaware_of_periods(parse_summary_xref),
    "summary_map": _unaware_of_periods(parse_summary_map),
    "summary_info": _unaware_of_periods(parse_summary_info),
}
"""Parsers by the name of their file."""


_PACKED = {
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"PK\3\4": "a zip archive",
    b"--": "a form, as curl -F sends it",
}
"""How files begin that hold others."""


def refuse_packed(data: bytes | bytearray | memoryview, source: str | None) -> None:
    """Raise ``InputError`` about a file that holds others."""
    head = bytes(data[:4])
    for magic, found in _PACKED.items():
        if head.startswith(magic):
            raise InputError(f"it is {found}", hint="Unpack it first", source=source)


def parse_input(
    name: str, data: Data, periods: int | None = None, source: str | None = None
) -> Any:  # noqa: ANN401 - the class of the file's content
    """Parse an auxiliary file.

    Args:
        name: one of PARSERS.
        data: the whole file, or its columns.
        periods: number of periods, for occurrences and period weights.
        source: name of the file, for messages.

    Raises:
        InputError: the content is not valid.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        refuse_packed(data, source)
    return PARSERS[name](data, periods, source)


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
