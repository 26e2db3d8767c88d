"""Requests about loss sets, and what is answered to questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict

import numpy as np

from ..errors import ProtocolError
from ..losses.requests import InputLike, check_names
from ..losses.rows import ReportTable, warn
from ..runs.requests import Perspective
from ..transport.requests import OCTETS, Reply, Request, json_request, path_of, query_of

SETS = "/v1/portfolios/loss-sets"
_PATIENCE = 3600.0
"""Seconds that an answer may take: to make a set of 10⁹ losses takes minutes without a word."""
FORMATS = ("json", "csv", "ndjson", "arrow", "parquet", "bin", "svg", "png")


@dataclass(frozen=True, slots=True)
class LossSet:
    """A loss set, kept apart from the run that it was made of.

    Attributes:
        id: by which questions name it.
        document: all that the service says of it.
    """

    id: str
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Read a description.

        Raises:
            ProtocolError: it has no id.
        """
        if not isinstance(document.get("id"), str):
            raise ProtocolError("the description of a loss set has no id")
        return cls(document["id"], document)


SetLike = str | LossSet | Mapping[str, Any]
"""A loss set by its id, as ``create`` returned it, or as the contract has it, with a weight."""


class QueryOptions(TypedDict, total=False):
    """Members of a question, as the contract has them."""

    currency: str | None
    rates: Mapping[str, float]
    blend: Mapping[str, float]
    filter: Mapping[str, Any]
    group_by: Sequence[str]
    programme_by: Sequence[str]
    curves: str
    return_periods: Sequence[int]
    tvar: str
    programme: Mapping[str, Any]
    perils: Mapping[str, str | Sequence[int]]
    of: str
    insured_value: str
    float_width: int
    seed: int
    confidence: float
    tolerance: float
    band: float
    leave_one_out: bool
    table: str


class TableOptions(TypedDict, total=False):
    """What is said of a table of losses besides it; those left out have the server's defaults.

    An input is the digest (str) of a stored file, or a Path or bytes, which are stored first.
    """

    occurrence: InputLike | None
    """For selt: when events happen."""
    periods: InputLike | None
    """Weights of the periods."""
    summary_info: InputLike | None
    """What the summaries are."""
    no_of_periods: int | None
    """Periods, those without a loss included."""
    samples: int | None
    """The largest there is without; of elt 1000 to 10, by its rows."""
    currency: str | None
    perspective: Perspective | None
    seed: int
    """For elt: of what is simulated, with the two that follow."""
    frequency: Literal["poisson", "negative-binomial"]
    dispersion: float | None
    apart: bool
    """Make each occurrence an event of its own."""
    repeated: bool
    """Take an event that is there twice to happen twice."""


def question(
    sets: SetLike | Sequence[SetLike], report: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """A question as the contract has it.

    Raises:
        TypeError: there is no such option, or a set is given by something else.
    """
    check_names(options, QueryOptions.__annotations__)
    each = [sets] if isinstance(sets, str | LossSet | Mapping) else list(sets)
    members = {name: value for name, value in options.items() if value is not None}
    return {"loss_sets": [_part(one) for one in each], "report": report, **members}


def _part(one: SetLike) -> Mapping[str, Any]:
    if isinstance(one, Mapping):
        return one
    if not isinstance(one, str | LossSet):
        raise TypeError(f"a loss set is given by its id, or as create returned it, not as {one!r}")
    return {"id": ident_of(one)}


def ident_of(one: str | LossSet) -> str:
    """The id of a loss set.

    Raises:
        ValueError: a name would be another address.
    """
    ident = one if isinstance(one, str) else one.id
    if "/" in ident or not ident:
        has = "Use letters, digits and . _ -, the first a letter or digit"
        raise ValueError(f"{ident!r} is not the name of a loss set. {has}")
    return ident


def query_request(content: Mapping[str, Any], form: str = "json") -> Request:
    """Ask a question.

    Raises:
        ValueError: a number is not finite, or there is no such format.
    """
    if form not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {form!r}")
    return json_request(f"/v1/portfolios/query?format={form}", content, patience=_PATIENCE)


def set_request(method: str, one: str | LossSet, below: str = "") -> Request:
    """Ask about a loss set, or what is below it, or delete it."""
    return Request(method, path_of("portfolios", "loss-sets", ident_of(one)) + below)


def table_request(name: str, data: bytes, options: Mapping[str, Any]) -> Request:
    """Make a loss set of a table."""
    target = set_request("PUT", name, query_of(**options)).target
    return Request("PUT", target, OCTETS, data, patience=_PATIENCE)


@dataclass(frozen=True, slots=True)
class PortfolioAnswer:
    """The answer to a question: tables by the name of their report.

    Attributes:
        tables: aal, ept, psept, plt, layers and so on, each as :class:`ReportTable` has them.
        document: the answer without its rows.
        etag: of this answer: equal questions about equal sets have the same.
    """

    tables: Mapping[str, ReportTable]
    document: Mapping[str, Any]
    etag: str | None

    @classmethod
    def parse(cls, reply: Reply) -> Self:
        """Read an answer.

        Raises:
            ProtocolError: it is of another form.
        """
        document = reply.json()
        tables = document.pop("tables", None)
        if not isinstance(tables, dict):
            raise ProtocolError("the answer has no tables")
        columns = document.pop("columns", {})
        read = {
            name: ReportTable(name, _rows(rows, columns.get(name, {})), None)
            for name, rows in tables.items()
        }
        return cls(read, document, reply.head.headers.get("etag"))

    def __getitem__(self, report: str) -> ReportTable:
        if report not in self.tables:
            raise KeyError(f"the answer has no table {report!r}, but {', '.join(self.tables)}")
        return self.tables[report]


_TYPES = {"integer": "i8", "number": "f8", "text": "U1"}


def _rows(
    rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]
) -> np.ndarray[Any, np.dtype[np.void]]:
    """Rows of a table: whole numbers, floats (NaN for null) and texts."""
    if not isinstance(rows, list):
        raise ProtocolError("a table of the answer is no list")
    if not rows:
        return np.empty(0, [(name, _TYPES.get(kind, "f8")) for name, kind in kinds.items()])
    names = list(rows[0])
    columns = [_column([row.get(name) for row in rows]) for name in names]
    dtype = [(name, column.dtype) for name, column in zip(names, columns, strict=True)]
    table = np.empty(len(rows), dtype)
    for name, column in zip(names, columns, strict=True):
        table[name] = column
    return table


def _column(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def warn_of_notes(headers: Mapping[str, str]) -> None:
    """Warn of what is to be known of an answer that has no place for it."""
    notes = json.loads(headers.get("thalweg-notes", "[]"))
    for note in notes if isinstance(notes, list) else ():
        warn(str(note))


def creation(run: str, options: Mapping[str, Any]) -> Request:
    """Make a loss set of a run."""
    members = {name: value for name, value in options.items() if value is not None}
    return json_request(SETS, {"run": run, **members}, patience=_PATIENCE)
