"""Answers as JSON, as tables of every format, and as pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from app.errors import NotAcceptableError
from app.losses.options import no_picture
from app.losses.pictures.drawing import PictureCollector
from app.losses.pictures.options import PictureOptions, can_draw
from app.losses.tables import table_encoder
from core.arrays import Rows
from core.budget import current
from core.losses.inputs import SummaryInfo
from core.losses.reports import Report

from .files import STAGE

_AT_ONCE = 1 << 16
"""Rows that are encoded together."""
_LABEL = 50
"""Characters of the name of a group in a picture."""


class Table(NamedTuple):
    """Rows of an answer."""

    report: Report
    pieces: Sequence[Rows]
    info: SummaryInfo | None
    """Columns to join by group or layer."""
    width: int
    """Bytes of an amount."""


def encode(tables: Sequence[Table], form: str, name: str) -> Iterator[bytes]:
    """Yield the bytes of the table that is named as what was asked for, or of the only one.

    Raises:
        NotAcceptableError: there are several, of other names.
    """
    tables = [table for table in tables if table.report.name == name] or tables
    if len(tables) != 1:
        names = " and ".join(table.report.name for table in tables)
        raise NotAcceptableError(
            f"{form} holds one table, and the answer has {names}",
            hint=f'Name one: {{"table": "{tables[0].report.name}"}}, or ask for JSON',
        )
    report, pieces, info, width = tables[0]
    encoder = table_encoder(form, report, width, info)
    yield encoder.begin()
    for rows in _slices(pieces):
        yield bytes(encoder.encode(rows))
    yield encoder.end()


def _slices(pieces: Sequence[Rows]) -> Iterator[Rows]:
    for rows in pieces:
        for begin in range(0, len(rows), _AT_ONCE):
            current().check(STAGE)
            yield rows[begin : begin + _AT_ONCE]


def encode_json(document: Mapping[str, Any], tables: Sequence[Table]) -> Iterator[bytes]:
    """Yield an answer as a JSON object: what is said of it, and rows and columns of each table."""
    # What a table cannot have is refused before a status is sent.
    encoders = [table_encoder("ndjson", table.report, table.width, table.info) for table in tables]
    yield orjson.dumps(document)[:-1] + b',"tables":{'
    for number, (table, encoder) in enumerate(zip(tables, encoders, strict=True)):
        yield (b"," if number else b"") + orjson.dumps(table.report.name) + b":["
        comma = b""
        for rows in _slices(table.pieces):
            lines = bytes(encoder.encode(rows)).rstrip(b"\n").replace(b"\n", b",")
            if lines:
                yield comma + lines
                comma = b","
        yield b"]"
    columns = {table.report.name: _columns(table) for table in tables}
    yield b'},"columns":' + orjson.dumps(columns) + b"}"


def _columns(table: Table) -> dict[str, str]:
    """Names and types of the columns, which no row tells where there are none."""
    names = {column.name: column.type for column in table.report.columns}
    types = {name: "integer" if kind == "i4" else "number" for name, kind in names.items()}
    return types | dict.fromkeys(table.info.columns if table.info is not None else (), "text")


def draw(tables: Sequence[Table], options: PictureOptions) -> bytes:
    """Draw the curves of an answer.

    Raises:
        NotAcceptableError: it has none.
        CoreError: they cannot be drawn.
    """
    curves = next((table for table in tables if table.report.name == "ept"), None)
    if not can_draw():
        raise no_picture("ept")
    if curves is None:
        fault = "there is no picture of this answer"
        raise NotAcceptableError(fault, hint="Pictures are of the report curves")
    collector = PictureCollector(
        "ept", replace(options, labels=options.labels or _labels(curves.info))
    )
    for rows in _slices(curves.pieces):
        collector.take("ept", rows)
    return collector.draw(None)


def _labels(info: SummaryInfo | None) -> Mapping[int, str]:
    """Name groups in a picture; summaries have their ids."""
    if info is None:
        return {}
    rows = zip(*info.columns.values(), strict=True)
    names = (" / ".join(row)[:_LABEL] for row in rows)
    printable = ("".join(c if c.isprintable() else " " for c in name) for name in names)
    return dict(zip(info.summary_ids.tolist(), printable, strict=True))
