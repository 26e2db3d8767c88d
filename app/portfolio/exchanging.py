"""Loss sets of tables that clients send, and tables of loss sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from app.decoding.base import Decoders
from app.errors import InvalidOptionError, NotAcceptableError
from app.http.identity import Identity
from app.losses.input_parsers import refuse_packed
from app.losses.parquet import MAGIC, read_parquet
from app.losses.schemas import given
from app.losses.service import LossService
from app.losses.tables import table_encoder
from core.arrays import Rows
from core.budget import Scope, current
from core.errors import InputError
from core.losses.inputs import Data, encode_occurrence
from core.portfolio.exporting import EXPORTS, OF_A_SAMPLE, export_rows, occurrence_of
from core.portfolio.importing import import_table
from core.portfolio.labels import tidy
from core.portfolio.losses import LossTable
from core.portfolio.tables import Given, Imported
from core.slices import digest, slices

from .contents import OpenSet, Shape, happening, parts_of, write_contents
from .files import STAGE
from .records import LossSet, LossSets, SetWriter

Form = Literal["splt", "selt", "ylt", "openquake", "climada", "elt"]
BLOCKS, OCCURRENCE = "blocks", "occurrence"
_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
"""How Arrow files and streams begin."""


class ImportOptions(BaseModel):
    """What is said of a table besides it."""

    model_config = ConfigDict(extra="forbid")

    form: Form = Field(description="What its rows are")
    currency: str | None = given("Currency of its losses", pattern="^[A-Z]{3}$")
    perspective: Literal["gul", "il", "ri", "rl"] | None = given("Of its losses")
    no_of_periods: int | None = given(
        "Number of periods, those without a loss included", ge=1, le=2**31 - 1
    )
    samples: int | None = given(
        "Number of samples; the largest there is without, and for elt 1000 to 10, by its rows",
        ge=1,
        le=2**31 - 1,
    )
    occurrence: str | None = given("For selt: digest of an input")
    periods: str | None = given("Weights of the periods: digest of an input")
    summary_info: str | None = given("What its summaries are: digest of an input")
    apart: bool = Field(False, description="Make each occurrence an event of its own")
    repeated: bool = Field(False, description="Take an event that is there twice to happen twice")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="For elt: of what is simulated")
    frequency: Literal["poisson", "negative-binomial"] = Field(
        "poisson", description="For elt: number of events in a period"
    )
    dispersion: float | None = given("For elt: variance over mean of a negative binomial", gt=1)


@dataclass(frozen=True, slots=True)
class Importing:
    """Makes loss sets of tables."""

    sets: LossSets
    losses: LossService
    decoders: Decoders

    def put(
        self, caller: Identity, ident: str, body: bytes, options: ImportOptions
    ) -> tuple[LossSet, bool]:
        """Make a set of a table, unless it was imported before; return it, and whether it is new.

        Raises:
            InvalidOptionError: the table is damaged, contradicts itself or the options.
            CoreError, ServiceError: there is no memory, or a store failed.
        """
        _check(options)
        source = hashlib.blake2b(options.model_dump_json().encode(), digest_size=12)
        digest(source, body, STAGE)

        def content(writer: SetWriter) -> Mapping[str, Any]:
            try:
                details = self._details(caller, options)
                imported = parse(options.form, body, details, self.decoders, ident)
            except InputError as e:
                raise InvalidOptionError(str(e.message), hint=e.hint, option=options.form) from e
            _check_used(imported, details, options)
            return _write(writer, imported, options)

        return self.sets.create(caller, ident, source.hexdigest(), content)

    def _details(self, caller: Identity, options: ImportOptions) -> Given:
        inputs = self.losses.inputs
        read = {
            name: None if text is None else inputs.parsed(caller, name, text)
            for name in ("periods", "summary_info")
            for text in [getattr(options, name)]
        }
        occurrence = None
        if options.occurrence is not None:
            occurrence = inputs.occurrence(caller, options.occurrence, options.no_of_periods)
        weights = None if read["periods"] is None else read["periods"].weights
        count = options.no_of_periods or (None if weights is None else len(weights))
        return Given(
            periods=None if occurrence is not None else count,
            samples=options.samples,
            weights=weights,
            occurrence=occurrence,
            info=None if read["summary_info"] is None else tidy(read["summary_info"]),
            apart=options.apart,
            repeated=options.repeated,
            seed=options.seed,
            frequency=options.frequency,
            dispersion=options.dispersion,
        )


_FORMS: Mapping[str, Sequence[str]] = {
    "occurrence": ("selt",),
    "repeated": ("splt", "ylt", "openquake"),
    "apart": ("splt", "ylt", "openquake", "climada"),
    **dict.fromkeys(("seed", "frequency", "dispersion"), ("elt",)),
}
"""Forms that use an option which others would ignore."""


def _check(options: ImportOptions) -> None:
    """Refuse options that the form does not use, and ask for those that it needs."""
    form = options.form
    for name, forms in _FORMS.items():
        if form not in forms and name in options.model_fields_set:
            fault = f"a table of the form {form} does not use {name}"
            raise _wrong(name, fault, f"Leave it out; it is for {', '.join(forms)}")
    if (options.frequency == "poisson") == (options.dispersion is not None):
        fault = "dispersion and frequency=negative-binomial go together"
        raise _wrong("dispersion", fault, "Give both, dispersion= above 1, or neither")
    if form == "selt" and options.occurrence is None:
        fault = "a table of events does not tell when they happen"
        raise _wrong("occurrence", fault, "Give the digest of an input as occurrence=")
    if form != "selt" and options.no_of_periods is None and options.periods is None:
        fault = "the table does not tell how many periods there are, as some have no loss"
        hint = "Give their number as no_of_periods=, or the weights of all as periods="
        raise _wrong("no_of_periods", fault, hint)


def _check_used(imported: Imported, details: Given, options: ImportOptions) -> None:
    """Refuse what a table without the columns for it would ignore."""
    if details.samples not in {None, imported.samples}:
        fault = f"the table has no column SampleId, and so 1 sample, not {details.samples}"
        raise _wrong("samples", fault, "Leave samples out")
    if details.info is not None and imported.dimensions is not details.info:
        fault = f"the {options.form} has its dimensions as columns, besides summary_info"
        raise _wrong("summary_info", fault, "Leave one of them out")
    check_currency(imported.currency, options.currency)


def check_currency(own: str | None, currency: str | None) -> None:
    """Refuse a currency that is not the one that losses have by a column of theirs."""
    if None not in {own, currency} and own != currency:
        fault = f"currency is {currency}, and losses are in {own} by the column that names it"
        raise _wrong("currency", fault, "Leave it out: losses are not converted")


def _wrong(option: str, fault: str, hint: str) -> InvalidOptionError:
    return InvalidOptionError(fault, hint=hint, option=option)


def _write(writer: SetWriter, imported: Imported, options: ImportOptions) -> Mapping[str, Any]:
    table = imported.table
    with Scope(STAGE, sum(column.nbytes for column in table)):
        shape = Shape(imported.samples, table.losses.dtype.itemsize)
        written = write_contents(
            writer, parts_of(table), shape, imported.calendar, imported.dimensions
        )
    currency = options.currency or imported.currency
    document = {"run": None, "perspective": options.perspective, "currency": currency}
    numbers = {"summary_set": None, **happening(table.event_ids, imported.calendar)}
    remarks = {"left_out": dict(imported.left_out), "notes": list(imported.notes)}
    return {**document, **numbers, **remarks, **written}


def parse(
    form: str, body: bytes, details: Given, decoders: Decoders, source: str | None = None
) -> Imported:
    """Read a table as a loss set; isolated processes decode parquet and Arrow.

    Args:
        form: one of ``core.portfolio.importing.ALL_FORMS``.
        body: the whole table, in csv, parquet or Arrow, as its first bytes tell.
        details: what is said besides.
        decoders: decode parquet and Arrow.
        source: name of the table, for messages.

    Raises:
        InputError: the table is damaged, or not of this form.
        BusyError: no decoder became free.
    """
    refuse_packed(body, source)
    data: Data = body
    if body.startswith((MAGIC, *_ARROW)):
        data = read_parquet(body, decoders, "parquet" if body.startswith(MAGIC) else "arrow")
    return import_table(form, data, details, source)


def export(opened: OpenSet, form: str, encoding: str, sample: int | None) -> Iterator[bytes]:
    """Yield a loss set as a table.

    Args:
        opened: the set.
        form: one of ``EXPORTS``, or the occurrences.
        encoding: csv, ndjson, arrow, parquet or bin.
        sample: which one, of a form that has one.

    Raises:
        InvalidOptionError: there is no such sample, or the form does not tell which.
        NotAcceptableError: the table is not in this format.
    """
    chosen = _chosen(opened, form, sample)
    if form == OCCURRENCE:
        if encoding not in {"csv", "bin"}:
            raise NotAcceptableError("occurrences are csv or bin", hint="Use format=csv")
        happens = occurrence_of(opened.calendar)
        with Scope(STAGE, _OCCURRENCE_BYTES * len(happens.event_ids)):
            yield encode_occurrence(happens, "csv" if encoding == "csv" else "bin")
        return
    table: LossTable = opened.losses.table
    encoder = table_encoder(encoding, EXPORTS[form], table.losses.dtype.itemsize)
    exact = form == "elt" and encoding == "csv"
    yield encoder.begin()
    for rows in export_rows(form, table, opened.calendar, opened.samples, chosen):
        # However many there are.
        current().renew()
        yield from _exact(rows) if exact else [bytes(encoder.encode(rows))]
    opened.losses.check()
    yield encoder.end()


def _exact(rows: Rows) -> Iterator[bytes]:
    """Lines with all digits, as rates are smaller than what six decimals tell."""
    for a, b in slices(len(rows), STAGE, 1 << 13):
        yield "".join(f"{','.join(map(str, row))}\n" for row in rows[a:b].tolist()).encode()


def check_sample(form: str, sample: int | None) -> None:
    """Refuse a sample where the table is of all."""
    if sample is not None and form not in OF_A_SAMPLE:
        fault = f"a table of the form {form} is of all samples"
        raise _wrong("sample", fault, f"Leave it out; it is for {' and '.join(OF_A_SAMPLE)}")


def _chosen(opened: OpenSet, form: str, sample: int | None) -> int:
    """Return the sample of a form that has one."""
    most, means = opened.samples, opened.record.value.get("means", True)
    hint = f"Give one of 1 to {most}" + ", or 0 for the numerical mean" * means
    if sample is None and most > 1 and form in OF_A_SAMPLE:
        fault = f"a table of the form {form} has one loss of an event, and the loss set {most}"
        raise _wrong("sample", fault, f"Say which as sample=. {hint}")
    if sample is not None and not (1 - means <= sample <= most):
        raise _wrong("sample", f"the loss set has no sample {sample}", hint)
    if form in OF_A_SAMPLE and len(opened.calendar.weights):
        fault = f"the periods of the loss set have weights, and a table of the form {form} none"
        raise _wrong("form", fault, "Export ylt or splt, which have a column PeriodWeight")
    return 1 if sample is None else sample


_OCCURRENCE_BYTES = 120


def export_tag(record: LossSet, form: str, encoding: str, sample: int | None = None) -> str:
    """Return the strong entity tag of a table of a set."""
    text = orjson.dumps([record.digest, form, encoding, sample])
    return f'"{hashlib.blake2b(text, digest_size=16).hexdigest()}"'
