"""Loss sets from tables of all forms: those of :mod:`.tables`, and event loss tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..budget import Scope
from ..errors import InputError
from ..losses.inputs import Data
from . import elt
from .columns import read_table
from .labels import currency_of, index_notes, is_currency, notes_of, number_notes, stripped
from .tables import FORMS, Form, Given, Imported

ALL_FORMS: Final[Mapping[str, Form]] = {
    **FORMS,
    "elt": Form(elt.FIELDS, elt.of_rates, dimensions=True),
}
"""By name."""
_BYTES_PER_BYTE = 8
"""What reading a csv takes for each byte of it."""
_ROW_BYTES = 200
"""What a row takes while a table is sorted and checked."""


def import_table(form: str, data: Data, details: Given, source: str | None = None) -> Imported:
    """Make a loss set of a table.

    Args:
        form: one of ``ALL_FORMS``.
        data: csv with a header, or columns.
        details: what is said besides.
        source: name of the file, for messages.

    Raises:
        InputError: the table is not of this form, contradicts itself or what is said besides.
    """
    chosen = ALL_FORMS[form]
    with Scope("input", _BYTES_PER_BYTE * len(data) if isinstance(data, bytes) else 0) as budget:
        table = read_table(data, chosen.fields, source, dimensions=chosen.dimensions)
        budget.hold("input", _ROW_BYTES * table.rows)
        texts = stripped(table.dimensions)
        currency = currency_of(texts, table.place, source)
        texts = {name: each for name, each in texts.items() if not is_currency(name)}
        imported = chosen.make(replace(table, dimensions=texts), details)
        notes = [*imported.notes, *index_notes(texts), *number_notes(texts)]
        if imported.dimensions is not None:
            notes += notes_of(imported.dimensions)
            columns, ids = imported.dimensions.columns, imported.dimensions.summary_ids
            own = currency_of(columns, lambda row: f"summary {ids[row]} of the summary info")
            if None not in {currency, own} and currency != own:
                message = f"the currency of the table is {currency}, and that of summaries {own}"
                raise InputError(message, hint="Correct one of them", source=source)
            currency = currency or own
        return imported._replace(currency=currency, notes=notes)
