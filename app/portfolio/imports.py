"""Tables that clients send, as loss sets; parquet and Arrow are decoded by isolated processes."""

from __future__ import annotations

from app.decoding.base import Decoders
from app.losses.input_parsers import refuse_packed
from app.losses.parquet import MAGIC, read_parquet
from core.portfolio.importing import import_table
from core.portfolio.tables import Given, Imported

_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
"""How Arrow files and streams begin."""


def parse(
    form: str, body: bytes, given: Given, decoders: Decoders, source: str | None = None
) -> Imported:
    """Make a loss set of a table.

    Args:
        form: one of ``core.portfolio.importing.ALL_FORMS``.
        body: the whole table, in csv, parquet or Arrow, as its first bytes tell.
        given: what is said besides.
        decoders: decode parquet and Arrow.
        source: name of the table, for messages.

    Raises:
        InputError: the table is damaged, or not of this form.
        OptionError: there is no such form.
        BusyError: no decoder became free.
    """
    refuse_packed(body, source)
    if body.startswith(MAGIC):
        return import_table(form, read_parquet(body, decoders), given, source)
    if body.startswith(_ARROW):
        return import_table(form, read_parquet(body, decoders, "arrow"), given, source)
    return import_table(form, body, given, source)
