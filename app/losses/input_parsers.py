"""Auxiliary files by name: what parses each, from bytes or columns; and files on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from core.errors import InputError
from core.losses.format import BEGINNINGS, TYPE_SIZE
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


_UNPACK = "Unpack it first"
_PACKED = {
    b"\x1f\x8b": ("compressed with gzip", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", _UNPACK),
    b"PK\3\4": ("a zip archive", _UNPACK),
    b"--": ("a form, as curl -F sends it", "Send the file alone: curl -T FILE"),
}
"""How files begin that hold others, what they are, and what to do."""
_ANY_COLUMNS = {"summary_map", "summary_info"}
"""Files that may have columns of any names."""
_BEGINNING = 48 << 10
"""Bytes that tell the kind of a file: a multiple of 48, which are whole records of every kind."""
STREAM = "stream"
_MAX_PERIODS = 2**31 - 1


def refuse_packed(data: bytes | bytearray | memoryview, source: str | None) -> None:
    """Raise ``InputError`` about a file that holds others."""
    head = bytes(data[:4])
    for magic, (found, hint) in _PACKED.items():
        if head.startswith(magic):
            raise InputError(f"it is {found}", hint=hint, source=source)


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
        InputError: the content is not valid; the hint says so if it looks like another input.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        refuse_packed(data, source)
    try:
        return PARSERS[name](data, periods, source)
    except InputError as e:
        kinds = kinds_of(data)
        if name in kinds or not kinds or _is_titled(name, data):
            raise
        message = "it is of another kind" if e.parameter else e.message
        hint = f"It looks like {described(kinds)}"
        raise InputError(message, offset=e.offset, hint=hint, source=source) from e


def beginning_of(size: int) -> int:
    """How many of a file's bytes tell its kind: its last record is cut off just as theirs is."""
    return size if size <= _BEGINNING else _BEGINNING + size % 48


def kinds_of(data: Data) -> list[str]:
    """What a file is by its beginning: names of PARSERS, several if in doubt; or a stream."""
    if not isinstance(data, bytes):
        data = {name: column[:_BEGINNING] for name, column in data.items()}
    elif data[:TYPE_SIZE] in BEGINNINGS:
        return [STREAM]
    else:
        data = data[: beginning_of(len(data))]
        if len(data) >= _BEGINNING and 0 not in data:
            data = data[: data.rfind(b"\n") + 1]
    return [kind for kind in PARSERS if _is(kind, data)]


def _is_titled(kind: str, data: Data) -> bool:
    """Whether a file has the header line of a kind, so that its fault is in a row."""
    if not isinstance(data, bytes) or kind in _ANY_COLUMNS:
        return False
    line = data[: data.find(b"\n") + 1]
    try:
        PARSERS[kind](line, _MAX_PERIODS, None)
    except InputError as e:
        return len(line) < len(data) and e.message == "there is a header line but no other"
    return False


def _is(kind: str, beginning: Data) -> bool:
    for periods in (None, _MAX_PERIODS):
        with suppress(InputError):
            PARSERS[kind](beginning, periods, None)
            return True
    return False


def described(kinds: Sequence[str]) -> str:
    """Say what a file of some of these kinds is, and how to give it."""
    if STREAM in kinds:
        return "a loss stream, which is no input: it is what reports are made of"
    # In words: it may be an option, an argument or a part of an address.
    return f"the input {' or '.join(kinds).replace('_', ' ')}: give it as that one"


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
