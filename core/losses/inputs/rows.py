"""Rows of small tables in csv, packed records or columns, with the place of every fault.

The bytes alone decide whether a file is csv or packed: packed records practically always hold
a byte that UTF-8 text does not. Csv may start with a byte order mark and a header line, end its
lines with LF, CRLF or CR and have blank lines at its end. Columns come from files that the
caller decodes, such as parquet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Floats
from ...budget import current
from ...errors import InputError
from ...slices import slices
from ...sorting import order_of

Columns = Mapping[str, Array]
"""Columns of a table by name, each of shape (rows,)."""
Data = bytes | Columns
"""A whole file, or its columns where the caller has decoded it."""
Form = Literal["csv", "bin"]
"""How a file is written: text, or packed records."""

INT_MAX: Final = 2**31 - 1
"""Largest id of the formats."""
MAX_POINTS: Final = 100_000
"""Return periods of a curve, and quantiles of a distribution."""
PACKED_HINT: Final = "It was read as packed records, for it is not UTF-8 csv text"
"""What helps when a damaged csv was taken for packed records."""

_HEADER: Final = re.compile(rb'[\w ,;."-]*[A-Za-z]{3}[\w ,;."-]*[\r\n]')
"""A line of names: packed records have zeros in their first ids, or what no name has."""
_LONGEST: Final = 256
"""Bytes of such a line, so that it is found at once."""
_HIGHEST: Final = float(np.finfo(np.float32).max)
_ROWS: Final = 1 << 17
"""Rows whose memory is taken at a time."""
_BLOCK: Final = 1 << 16
"""Characters that are read at a time."""
_SHOWN: Final = 60
"""Characters of a malformed text that a message shows at the most."""
_TYPES: Final = {"i": "a 64-bit integer", "f": "a number"}
_WIDE: Final = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"", "utf-16-le"),
    (b"", "utf-16-be"),
)
"""Marks and encodings of text that would pass for packed records of odd numbers."""
_BEGINNING: Final = 16
"""Bytes by which such text is told. A mark alone may begin records, such as of event 65279."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows come from, as far as messages need it."""

    source: str | None
    """Name of the input, if it has one."""
    hint: str
    """What helps whatever is wrong with a row."""
    noun: str = "line"
    """What a row is to the reader of a message."""
    first: int = 1
    """Number of the first row."""
    base: int | None = None
    """Byte offset of the first packed record, None in text."""
    titled: bool = False
    """Whether the input itself names its columns."""

    def place(self, row: int) -> str:
        """Name a row, counted from 0, as a person would."""
        return f"{self.noun} {self.first + row}"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of an input, with the checks that all inputs share."""

    data: NDArray[np.void]
    """Structured rows, shape (n,), n at least 1."""
    origin: Origin

    @property
    def names(self) -> tuple[str, ...]:
        """Fields of a row."""
        return self.data.dtype.names or ()

    def refuse(self, row: int, field: str, text: str) -> InputError:
        """Make the error about one field of one row."""
        origin, offset = self.origin, None
        if origin.base is not None:
            offset = origin.base + row * self.data.itemsize + self._offset(field)
        message = f"{origin.place(row)}: {field} {self.data[field][row]} {text}"
        return InputError(message, offset=offset, hint=origin.hint, source=origin.source)

    def _offset(self, field: str) -> int:
        sizes = [self.data.dtype[name].itemsize for name in self.names]
        return sum(sizes[: self.names.index(field)])

    def require(self, good: NDArray[np.bool_], field: str, text: str) -> None:
        """Raise ``InputError`` about the first row that is not good."""
        current().check("input")
        if not good.all():
            raise self.refuse(int(np.argmin(good)), field, text)

    def require_float(self, field: str, other: str) -> None:
        """Raise ``InputError`` about the first packed value that is an integer's bytes."""
        if self.origin.base is not None:
            values = self.data[field]
            good = (values == 0) | (values >= np.finfo(values.dtype).tiny)
            self.require(good, field, f"is none: the file looks like {other}")

    def weights(self, field: str) -> Floats:
        """Values of a field of floats, each required to be finite and not negative."""
        with np.errstate(invalid="ignore"):  # a signalling NaN is refused below
            values = self.data[field].astype(np.float64)
        usable = np.isfinite(values) & (values >= 0)
        self.require(usable, field, "is negative or not finite")
        self.require(values <= _HIGHEST, field, "is beyond float32, in which rows have it")
        self.require_float(field, "one of whole numbers")
        return np.abs(values)

    def limit_points(self, field: str) -> None:
        """Raise ``InputError`` about the first row beyond ``MAX_POINTS``."""
        if len(self.data) > MAX_POINTS:
            raise self.refuse(MAX_POINTS, field, f"is one too many: there may be {MAX_POINTS}")

    def integers(self, field: str, low: int, high: int = INT_MAX) -> NDArray[np.int64]:
        """Values of an integer field, each required to be in ``low`` to ``high``."""
        values = np.empty(len(self.data), np.int64)
        self._take(field, low, high, values)
        return values

    def ids(self, field: str, high: int = INT_MAX) -> NDArray[np.int32]:
        """Values of an integer field, each required to be in 1 to ``high``."""
        values = np.empty(len(self.data), np.int32)
        self._take(field, 1, high, values)
        return values

    def _take(
        self, field: str, low: int, high: int, values: NDArray[np.signedinteger[Any]]
    ) -> None:
        column = self.data[field]
        for a, b in slices(len(column), "input"):
            good = (column[a:b] >= low) & (column[a:b] <= high)
            if not good.all():
                raise self.refuse(a + int(np.argmin(good)), field, f"is not in {low} to {high}")
            values[a:b] = column[a:b]

    def require_unique(self, values: NDArray[Any], field: str, where: str = "") -> None:
        """Raise ``InputError`` about the first row whose value of ``field`` came before."""
        if (repeat := first_again(values)) is not None:
            row, earlier = repeat
            raise self.refuse(row, field, f"is already in {self.origin.place(earlier)}{where}")


def first_again(values: NDArray[Any]) -> tuple[int, int] | None:
    """The first row whose value came before, and the row in which it did; None if all differ."""
    ordered, order = order_of(values, "input")
    repeats = order[1:][ordered[1:] == ordered[:-1]]
    if not len(repeats):
        return None
    row = int(repeats.min())
    return row, int(np.argmax(values == values[row]))


def decode_rows(
    data: Data, csv: Sequence[np.dtype[np.void]], packed: np.dtype[np.void], source: str | None
) -> Rows:
    """Read the rows of a file without a header of its own.

    Args:
        data: the whole file, or its columns.
        csv: layouts of its csv and columns, with fields of type ``<i8`` and ``<f8``.
        packed: layout of its packed records.
        source: name of the input, for messages.

    Raises:
        InputError: the rows are of no such layout, or there are none.
    """
    if not isinstance(data, bytes):
        return column_rows(data, csv, source)
    text = text_of(data, source)
    return packed_rows(data, packed, 0, source) if text is None else csv_rows(text, csv, source)


def column_rows(columns: Columns, layouts: Sequence[np.dtype[np.void]], source: str | None) -> Rows:
    """Take columns of one of several layouts, whatever their order and the case of their names.

    Args:
        columns: by name.
        layouts: fields of type ``<i8`` and ``<f8``.
        source: name of the input, for messages.

    Raises:
        InputError: there are other columns, or none of a row; or one has another kind of
            values than numbers, or fractions where integers belong.
    """
    named = {name.lower(): values for name, values in columns.items()}
    layout = next(
        (x for x in layouts if {name.lower() for name in x.names or ()} == set(named)), None
    )
    if layout is None:
        message = f"the columns are {','.join(columns)[:_SHOWN]}"
        hint = f"They have to be {' or '.join(map(_columns, layouts))}"
        raise InputError(message, hint=hint, source=source)
    hint = f"The columns were taken to be {_columns(layout)}"
    count = max(map(len, named.values()))
    if count == 0:
        raise InputError("there are no rows", hint=hint, source=source)
    data = np.empty(count, layout)
    for name in layout.names or ():
        values = named[name.lower()]
        kinds = "iu" if layout[name].kind == "i" else "iuf"
        if values.dtype.kind not in kinds or values.dtype == np.uint64:
            message = (
                f"column {name} has values of type {values.dtype}, not {_TYPES[layout[name].kind]}"
            )
            raise InputError(message, hint=hint, source=source)
        # Memory comes with the first column.
        for a, b in slices(count, "input", _ROWS):
            data[name][a:b] = values[a:b]
    return Rows(data, Origin(source, hint, "row", titled=True))


def encode_rows(rows: NDArray[np.void], form: Form) -> bytes:
    """Write packed rows as they are, or as csv with a header.

    Csv has the fewest digits that read back as the same number.
    """
    if form == "bin":
        return rows.tobytes()
    names = rows.dtype.names or ()
    columns = [rows[name].astype(str).tolist() for name in names]
    lines = [",".join(names), *map(",".join, zip(*columns, strict=True)), ""]
    return "\n".join(lines).encode()


def text_of(data: bytes, source: str | None) -> str | None:
    """Decode a csv.

    Args:
        data: the whole input.
        source: name of the input, for messages.

    Returns:
        The text without byte order mark, or None when the bytes are not text.

    Raises:
        InputError: there is nothing, or nothing but white space, or text in UTF-16 or UTF-32.
    """
    wide = _wide_encoding(data)
    if wide is not None:
        hint = "Store it as UTF-8, which Excel calls CSV UTF-8"
        raise InputError(f"it is text in {wide}", hint=hint, source=source)
    if any(_CONTROL.search(data, *ends) for ends in slices(len(data), "input", _BLOCK)):
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if not text or text.isspace():
        hint = "It has to be csv or packed records"
        raise InputError("there is no data", hint=hint, source=source)
    return text


def no_text(data: bytes, hint: str, source: str | None) -> InputError:
    """Make the error about bytes of which :func:`text_of` is None."""
    for a, b in slices(len(data), "input", _BLOCK):
        if found := _CONTROL.search(data, a, b):
            message = f"the byte 0x{found[0].hex()} is a control character, and no text"
            return InputError(message, offset=found.start(), hint=hint, source=source)
    return InputError("the bytes are not UTF-8 text", hint=hint, source=source)


def _wide_encoding(data: bytes) -> str | None:
    """Return the encoding of ASCII text of two or four bytes a character; None for other data."""
    for mark, encoding in _WIDE:
        if data.startswith(mark):
            begin = data[len(mark) : len(mark) + _BEGINNING]
            text = begin.decode(encoding, "replace").removesuffix("\ufffd")
            if text and text.isascii() and not _CONTROL.search(text.encode()):
                return encoding[:6].upper()
    return None


def packed_rows(data: bytes, layout: np.dtype[np.void], base: int, source: str | None) -> Rows:
    """Take the packed records that follow the first ``base`` bytes.

    Raises:
        InputError: there is no record, or the last one is not whole.
    """
    if base == 0 and _HEADER.match(data, 0, _LONGEST):
        raise no_text(data, "Its first line is that of csv, which is UTF-8 text", source)
    count, rest = divmod(len(data) - base, layout.itemsize)
    if rest:
        message = f"record {count + 1} is cut off after {rest} of {layout.itemsize} bytes"
        raise InputError(message, offset=len(data) - rest, hint=PACKED_HINT, source=source)
    if count == 0:
        raise InputError("there are no records", offset=base, hint=PACKED_HINT, source=source)
    origin = Origin(source, PACKED_HINT, "record", base=base)
    return Rows(np.frombuffer(data, layout, offset=base), origin)


def csv_rows(text: str, layouts: Sequence[np.dtype[np.void]], source: str | None) -> Rows:
    """Read csv text of one of several layouts.

    A header chooses the layout and the order of the columns, whatever the case of
    its letters. Without one the number of columns chooses the layout.

    Args:
        text: not blank.
        layouts: fields of type ``<i8`` and ``<f8``.
        source: name of the input, for messages.

    Raises:
        InputError: the header or a line does not fit, or there is no line but the header.
    """
    budget = current()
    budget.check("input")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    budget.check("input")
    text = text.rstrip()
    budget.check("input")
    end = text.find("\n")
    layout, has_header = _layout_of(text if end < 0 else text[:end], layouts, source)
    hint = f"The columns were taken to be {_columns(layout)}"
    if has_header and end < 0:
        raise InputError("there is a header line but no other", hint=hint, source=source)
    start = end + 1 if has_header else 0
    data = np.empty(text.count("\n", start) + 1, layout)
    count = 0
    # Lines in a list take ten times their size, and a whole file would hold the
    # interpreter's lock for seconds.
    for lines in _blocks(text, start):
        budget.check("input")
        first = 1 + has_header + count
        rows = rows_of_lines(lines, layout, Origin(source, hint, first=first))
        data[count : count + len(lines)] = rows.data
        count += len(lines)
    return Rows(data, Origin(source, hint, first=1 + has_header, titled=has_header))


def _blocks(text: str, start: int) -> Iterator[list[str]]:
    """Yield the lines from an offset on, in blocks of at least one."""
    while start <= len(text):
        stop = text.find("\n", start + _BLOCK)
        stop = len(text) if stop < 0 else stop
        yield text[start:stop].split("\n")
        start = stop + 1


def rows_of_lines(lines: Sequence[str], layout: np.dtype[np.void], origin: Origin) -> Rows:
    """Read lines that are one row each; only a fault costs the search for its line.

    Args:
        lines: without line ends, at least one.
        layout: fields of type ``<i8`` and ``<f8``, in the order of the columns.
        origin: where the lines come from.

    Raises:
        InputError: a line is not a row of the layout.
    """
    data = _load(lines, layout)
    if data is not None:
        return Rows(data, origin)
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        if _load(lines[low:middle], layout) is None:
            high = middle
        else:
            low = middle
    message = f"{origin.place(low)}: {_explain(lines[low], layout)}"
    raise InputError(message, hint=origin.hint, source=origin.source)


def _load(lines: Sequence[str], layout: np.dtype[np.void]) -> NDArray[np.void] | None:
    """One row per line, or None when some line is not a row of the layout."""
    # loadtxt would skip empty lines, and the numbers of the lines would shift. It reads beyond a
    # table of its own where it takes letters beyond ASCII for digits, which ends some processes.
    if "" in lines or not all(map(str.isascii, lines)):
        return None
    try:
        return np.loadtxt(lines, dtype=layout, delimiter=",", comments=None, ndmin=1)
    except ValueError:
        return None


def _explain(line: str, layout: np.dtype[np.void]) -> str:
    """Say why a line is not a row of the layout."""
    names = layout.names or ()
    cells = [cell.strip(" \t") for cell in line.split(",")]
    if not any(cells):
        return "there are no values"
    if len(cells) != len(names):
        return f"the number of columns is {len(cells)} and has to be {len(names)}"
    faults = [
        f"{name} {cell[:_SHOWN]!r} is not {_TYPES[layout[name].kind]}"
        for name, cell in zip(names, cells, strict=True)
        if _load([cell], np.dtype([(name, layout[name])])) is None
    ]
    return "; ".join(faults)


def _layout_of(
    line: str, layouts: Sequence[np.dtype[np.void]], source: str | None
) -> tuple[np.dtype[np.void], bool]:
    """Layout of a csv by its first line, and whether that line is a header."""
    cells = [cell.strip().strip('"') for cell in line.split(",")]
    if not all(cell.isidentifier() and not is_number(cell) for cell in cells):
        fitting = [layout for layout in layouts if len(layout.names or ()) == len(cells)]
        return (fitting or list(layouts))[0], False
    wanted = sorted(cell.lower() for cell in cells)
    for layout in layouts:
        names = {name.lower(): name for name in layout.names or ()}
        if wanted == sorted(names):
            columns = [names[cell.lower()] for cell in cells]
            return np.dtype([(name, layout[name]) for name in columns]), True
    message = f"line 1: the columns are {','.join(cells)[:_SHOWN]}"
    hint = f"They have to be {' or '.join(map(_columns, layouts))}"
    raise InputError(message, hint=hint, source=source)


def _columns(layout: np.dtype[np.void]) -> str:
    return ",".join(layout.names or ())


def is_number(text: str) -> bool:
    """Whether a text is a number; nan is one here: a bad value, not a column."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
